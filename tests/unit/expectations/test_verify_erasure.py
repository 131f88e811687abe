"""C30: `firn verify` holds commits of lane `erase` to the requests that they served, right and wrong ones."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.engine.local import LocalEngine
from firnlake.iceberg.authorship import firn_properties
from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit
from firnlake.validate.validate import verify
from infra.foreign.files import on_disk
from tests.support.committing import commit
from tests.support.erasing import request
from tests.support.lakes import Row
from tests.support.row_deletes import data_file, delete
from tests.support.topics import NOW, Record, Topic, updates

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile


def verified(topic: Topic, snapshot_id: int | None = None) -> tuple[set[str], list[int]]:
    """The promises that a commit of lane `erase` broke, and the number of records that each of its plans has erased."""
    verdicts = verify(topic.lake, topic.table, snapshot_id, LocalEngine())
    assert {one.claim.lane for one in verdicts} == {"erase"}
    broken = {row.promise.name for one in verdicts for row in one.rows if row.broken}
    return broken, [one.claim.erased for one in verdicts]


def erased(topic: Topic, key: bytes) -> tuple[set[str], list[int]]:
    request(topic, key)
    topic.clean("erase", force=True)
    return verified(topic)


def test_c30_levels_and_segments_in_place_and_each_commit_is_held_to_its_own_requests(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "c=1")).clean("full")
    topic.land(updates("a=2", "d=1", start=3), updates("b=2", start=5), updates("a=3", start=6)).clean("merge")
    topic.land(updates("e=1", start=7))
    assert erased(topic, b"a") == (set(), [3])
    first = topic.lake.table(topic.table).metadata.current_snapshot_id
    assert erased(topic, b"b") == (set(), [2])
    assert verified(topic, first) == (set(), [3]), "b was not requested yet"


def test_c9_removed_tombstones(topic: Topic) -> None:
    topic.create(delete_retention_ms="0")
    topic.land([*updates("a=1", "a=", "b="), *updates("c=1", start=3)]).clean("full")
    topic.clean("full", NOW + 1, force=True)
    assert erased(topic, b"a") == (set(), [0]), "what main has lost already does not count"
    assert [row["key"] for row in topic.removed_tombstones()] == [b"b"]


TWO = [Record(offset, key, b"1", part) for part in (0, 1) for offset, key in enumerate((b"a", b"b"))]


@pytest.mark.parametrize(
    ("landed", "hidden", "counts"),
    [
        pytest.param(updates("a=1", "b=1", "a=2"), (), [1], id="a log end that is requested"),
        pytest.param(updates("a=1", "b=1", "a=2", "c=1"), (0,), [1], id="records that deletes hide"),
        pytest.param(updates("b=1", "c=1"), (), [0], id="nothing is found"),
        pytest.param(TWO, (), [1, 1], id="two plans in a commit"),
    ],
)
def test_c30_sound_commits(topic: Topic, landed: list[Record], hidden: tuple[int, ...], counts: list[int]) -> None:
    topic.land(landed)
    if hidden:
        topic.land(updates("z=1", start=9))
        delete(topic, *hidden)
    assert erased(topic, b"a") == (set(), counts)


Kept = Callable[[list[Row]], list[Row]]


def forged(topic: Topic, kept: Kept, erased: int) -> None:
    """A commit that keeps ``kept`` of each segment. It says of itself what the right commit of lane `erase` says, but
    for the number of records that it ``erased``."""
    table = topic.lake.table(topic.table)
    topic.clean("erase", force=True)
    right = next(ancestors(topic.lake.table(topic.table)))
    topic.lake.table(topic.table).manage_snapshots().rollback_to_snapshot(right.parent_snapshot_id or 0).commit()
    said = {name: value for name, value in firn_properties(right).items() if name.startswith("firn.")}
    gone: list[str] = []
    added: list[DataFile] = []
    for file in (task.file for task in table.scan().plan_files()):
        rows = pq.read_table(on_disk(file.file_path), partitioning=None).to_pylist()
        if (remaining := kept(rows)) != rows:
            gone.append(file.file_path)
            values = [file.partition[place] for place in range(len(file.partition))]
            added.append(data_file(table, remaining, file.spec_id, values))
    change = Change(gone, added, {**said, "firn.erased": str(erased)})
    commit(topic.lake, Commit(topic.lake.table(topic.table), [(MAIN_BRANCH, change)]), topic.table)


def without(*offsets: int, **changed: Any) -> Kept:
    """Without the records at ``offsets``, and with the ``changed`` values of the record at offset 1."""
    return lambda rows: [
        {**one, **(changed if one["offset"] == 1 else {})} for one in rows if one["offset"] not in offsets
    ]


@pytest.mark.parametrize(
    ("kept", "erased", "promise"),
    [
        pytest.param(without(0, 1, 2), 3, "expect_other_records_unchanged", id="took another key"),
        pytest.param(without(0, 2, 4), 3, "expect_other_records_unchanged", id="took a newer record"),
        pytest.param(without(0), 1, "expect_requested_records_gone", id="left a record in what it wrote"),
        pytest.param(without(4), 1, "expect_requested_records_gone", id="left a segment in place"),
        pytest.param(without(0, 2, 6), 3, "expect_log_end_kept", id="took the log end"),
        pytest.param(without(0, 2, value=b"other"), 2, "expect_other_records_unchanged", id="changed a value"),
        pytest.param(without(0, 2, offset=9), 2, "expect_other_records_unchanged", id="renumbered a record"),
        pytest.param(without(0, 2), 1, "expect_record_counts_to_add_up", id="claimed fewer"),
    ],
)
def test_c30_forged_commits(topic: Topic, kept: Kept, erased: int, promise: str) -> None:
    topic.land(updates("a=1", "b=1", "a=2", "c=1"))
    request(topic, b"a")
    topic.land(updates("a=3", "d=1", "e=1", start=4))
    forged(topic, kept, erased)
    broken, _ = verified(topic)
    assert promise in broken
