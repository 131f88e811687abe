"""C30: `firn verify` holds commits of lane `erase` to the requests that they served, right and wrong ones."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.cli.main import main
from firnlake.engine.local import LocalEngine
from firnlake.errors import RefusedError
from firnlake.iceberg.branches import ERASURES
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit
from firnlake.lanes.erasure.memory import ErasuresChange
from firnlake.lanes.erasure.requests import SearchProgress
from firnlake.publish.publish_jobs import publish_stages
from firnlake.table.published_plans import RecordCounts
from firnlake.validate.validate import Verified, verify
from infra.foreign.files import on_disk
from tests.support.committing import commit
from tests.support.erasing import progress, request
from tests.support.lakes import Row
from tests.support.proving import write
from tests.support.row_deletes import delete
from tests.support.topics import NOW, Record, Topic, updates

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from firnlake.iceberg.branch_snapshot import BranchChange


def verified(topic: Topic, snapshot_id: int | None = None) -> Verified:
    """The verdict on a commit of one plan."""
    (verdict,) = verify(topic.lake, topic.table, snapshot_id, LocalEngine())
    return verdict


def broken(verdict: Verified) -> set[str]:
    return {row.promise.name for row in verdict.rows if row.broken}


def erased(topic: Topic, key: bytes) -> Verified:
    """Request the key, and erase it: the verdict on the commit, which breaks no promise."""
    request(topic, key)
    topic.clean("erase", force=True)
    verdict = verified(topic)
    assert broken(verdict) == set()
    return verdict


class TestSound:
    """Commits that erased what was requested, and nothing else."""

    def test_c30_records_of_every_level_and_segments_in_place(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1", "c=1")).clean("full")
        topic.land(updates("a=2", "d=1", start=3), updates("b=2", start=5), updates("a=3", start=6))
        topic.clean("merge")
        topic.land(updates("e=1", start=7))
        verdict = erased(topic, b"a")
        assert (verdict.claim.lane, verdict.claim.erased, verdict.claim.erase_before) == ("erase", 3, None)
        assert {"expect_requested_records_gone", "expect_other_records_unchanged"} <= {
            row.promise.name for row in verdict.rows if row.checked
        }

    def test_c9_removed_tombstones(self, topic: Topic) -> None:
        topic.create(delete_retention_ms="0")
        topic.land([*updates("a=1"), Record(1, b"a", None), Record(2, b"b", None), *updates("c=1", start=3)])
        topic.clean("full")
        topic.clean("full", NOW + 1, force=True)
        verdict = erased(topic, b"a")
        assert (verdict.claim.erased, verdict.claim.records_in) == (1, 1)

    def test_c4_a_log_end_that_is_requested(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1", "a=2"))
        verdict = erased(topic, b"a")
        assert (verdict.claim.end_kept, verdict.claim.log_end_offset, verdict.claim.erase_before) == (True, 2, None)

    def test_c11_one_that_stopped_at_what_is_too_young(self, topic: Topic) -> None:
        topic.create(min_compaction_lag_ms="60000")
        topic.land(updates("a=1", "b=1"))
        topic.land([Record(2, b"a", b"2", timestamp_ms=NOW), Record(3, b"c", b"1", timestamp_ms=NOW)])
        verdict = erased(topic, b"a")
        assert verdict.claim.erase_before == 2

    def test_c27_records_that_deletes_hide(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1", "a=2"), updates("c=1", start=3))
        delete(topic, 0)
        verdict = erased(topic, b"a")
        assert (verdict.claim.erased, verdict.claim.deleted) == (1, 1)

    def test_c30_a_search_that_finds_nothing(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1"))
        verdict = erased(topic, b"never seen")
        assert verdict.claim.erased == 0

    def test_c22_what_lands_between_plan_and_commit_was_not_searched(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1", start=5))
        request(topic, b"a")
        stages = topic.validated(topic.plans("erase", force=True))
        topic.append(updates("a=0", "c=1", start=1))
        topic.append(updates("a=9", start=9))
        assert publish_stages(topic.lake, {stage: [] for stage in stages}).failures == {}
        verdict = verified(topic)
        assert broken(verdict) == set()
        assert verdict.claim.log_end_offset == 6

    def test_c30_every_plan_of_a_commit(self, topic: Topic) -> None:
        topic.land([Record(offset, key, b"1", part) for part in (0, 1) for offset, key in enumerate((b"a", b"b"))])
        request(topic, b"a")
        topic.clean("erase", force=True)
        verdicts = verify(topic.lake, topic.table, None, LocalEngine())
        assert [(one.claim.partition, broken(one), one.claim.erased) for one in verdicts] == [
            (0, set(), 1),
            (1, set(), 1),
        ]


class TestHistory:
    """Older commits, by what branch `firn_erasures` still tells of them."""

    @pytest.fixture
    def twice(self, topic: Topic) -> tuple[Topic, int, int]:
        """A topic with two searches, and the snapshots that they made on main and on the branch."""
        topic.land(updates("a=1", "b=1", "c=1"))
        request(topic, b"a")
        topic.clean("erase", force=True)
        first = progress(topic).snapshot_id
        ref = topic.lake.table(topic.table).metadata.refs[ERASURES].snapshot_id
        request(topic, b"b", b"c")
        topic.clean("erase", force=True)
        return topic, first, ref

    def test_c30_an_older_search_is_held_to_its_own_requests(self, twice: tuple[Topic, int, int]) -> None:
        topic, first, _ = twice
        assert (broken(verified(topic, first)), verified(topic, first).claim.erased) == (set(), 1)
        assert (broken(verified(topic)), verified(topic).claim.erased) == (set(), 1)

    def test_c30_a_search_whose_requests_have_expired_is_refused(self, twice: tuple[Topic, int, int]) -> None:
        topic, first, ref = twice
        table = topic.lake.table(topic.table)
        between = [
            one.snapshot_id
            for one in table.metadata.snapshots
            if one.snapshot_id == ref or one.parent_snapshot_id == ref
        ]
        table.maintenance.expire_snapshots().by_ids(between).commit()
        with pytest.raises(RefusedError, match=r"the requests that snapshot \d+ served in orders-0 are unknown"):
            verified(topic, first)
        assert broken(verified(topic)) == set(), "the last search is still known"

    def test_c30_the_last_search_is_known_by_the_head(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1", "c=1"))
        request(topic, b"a")
        topic.clean("erase", force=True)
        ref = topic.lake.table(topic.table).metadata.refs[ERASURES].snapshot_id
        request(topic, b"b")
        topic.lake.table(topic.table).maintenance.expire_snapshots().by_id(ref).commit()
        assert broken(verified(topic, progress(topic).snapshot_id)) == set()


Rows = list[Row]


def forged(topic: Topic, kept: Callable[[Rows], Rows], *, erased: int) -> None:
    """A commit that says it is lane `erase`'s: of the segments' records it keeps ``kept``, and claims that it
    ``erased`` so many for all requests. What is kept of a segment is written anew; one that stays whole stays."""
    table = topic.lake.table(topic.table)
    head = table.current_snapshot()
    assert head is not None
    gone: list[str] = []
    added: list[DataFile] = []
    records_in = bytes_in = 0
    for task in table.scan().plan_files():
        rows = pq.read_table(on_disk(task.file.file_path), partitioning=None).to_pylist()
        remaining = kept(rows)
        if remaining != rows:
            gone.append(task.file.file_path)
            added += write(table, remaining)
            records_in += len(rows)
            bytes_in += task.file.file_size_in_bytes
    counts = RecordCounts(
        **dict.fromkeys(("superseded", "tombstones_removed", "quarantined"), 0),
        bytes_in=bytes_in,
        bytes_out=sum(file.file_size_in_bytes for file in added),
        records_in=records_in,
        records_out=records_in - erased,
        erased=erased,
        segments_in=len(gone),
        segments_out=len(added),
    )
    properties = {
        "firn.lane": "erase",
        "firn.plan-id": "0123456789abcdef",
        "firn.topic-partition": "orders-0",
        "firn.reason": "1 request to erase a key",
        "firn.now-ms": str(NOW),
        "firn.planned-on": str(head.snapshot_id),
        "firn.waiting-segments": "0",
        "firn.core-ms": "0",
    } | counts.summary()
    changes: dict[str, BranchChange] = {
        MAIN_BRANCH: Change(gone, added, properties),
        ERASURES: ErasuresChange(
            lambda old: old.with_progress(
                [SearchProgress("orders", 0, max(old.ids), None, head.sequence_number or 0, prepared.snapshot_id)]
            )
        ),
    }
    prepared = Commit(table, changes.items())
    commit(topic.lake, prepared, topic.table)


def without(*offsets: int) -> Callable[[Rows], Rows]:
    return lambda rows: [one for one in rows if one["offset"] not in offsets]


def changed(place: int, **values: Any) -> Callable[[Rows], Rows]:
    """Without the requested records of key `a`, and with other values of the one at offset ``place``."""

    def kept(rows: Sequence[Row]) -> Rows:
        return [{**one, **values} if one["offset"] == place else one for one in without(0, 2)(list(rows))]

    return kept


class TestSabotaged:
    """A wrong commit in the history: `a` at 0 and 2 is requested, 4 is newer than the request, 6 is the log end."""

    @pytest.fixture
    def requested(self, topic: Topic) -> Topic:
        topic.land(updates("a=1", "b=1", "a=2", "c=1"))
        request(topic, b"a")
        topic.land(updates("a=3", "d=1", "e=1", start=4))
        return topic

    def test_a_sound_one_passes(self, requested: Topic) -> None:
        forged(requested, without(0, 2), erased=2)
        assert broken(verified(requested)) == set()

    @pytest.mark.parametrize(
        ("kept", "erased", "promises"),
        [
            pytest.param(without(0, 1, 2), 3, {"expect_other_records_unchanged"}, id="took another key"),
            pytest.param(without(0, 2, 4), 3, {"expect_other_records_unchanged"}, id="took a newer record"),
            pytest.param(without(0), 1, {"expect_requested_records_gone"}, id="left a record in what it wrote"),
            pytest.param(lambda rows: rows, 0, {"expect_requested_records_gone"}, id="left a segment in place"),
            pytest.param(without(0, 2, 6), 2, {"expect_log_end_kept"}, id="took the log end"),
            pytest.param(changed(1, value=b"other"), 2, {"expect_other_records_unchanged"}, id="changed a value"),
            pytest.param(changed(1, offset=9), 2, {"expect_other_records_unchanged"}, id="renumbered a record"),
            pytest.param(without(0, 2), 1, {"expect_record_counts_to_add_up"}, id="claimed fewer"),
        ],
    )
    def test_c30_a_wrong_one_does_not(
        self, requested: Topic, kept: Callable[[Rows], Rows], erased: int, promises: set[str]
    ) -> None:
        forged(requested, kept, erased=erased)
        assert promises <= broken(verified(requested))

    def test_c30_the_command_says_so(
        self, requested: Topic, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        forged(requested, without(0, 1, 2), erased=3)
        monkeypatch.setattr(Lake, "load", lambda: requested.lake)
        monkeypatch.setattr(sys, "argv", ["firn", "verify", requested.table, "--engine", "local"])
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr().out
        assert left.value.code == 1
        assert "orders-0 erase" in printed
        assert "PROMISES ARE BROKEN" in printed
        assert "broken  expect_other_records_unchanged (C1, C30)" in printed
