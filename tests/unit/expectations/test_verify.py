"""`firn verify`: the judge put to commits in a table's history, lane by lane, and to commits that are wrong."""

import json

import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake import clock
from firnlake.engine.local import LocalEngine
from firnlake.errors import RefusedError
from firnlake.iceberg.authorship import SNAPSHOT_ID
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit
from firnlake.validate.validate import Verified, verify
from infra.foreign.files import on_disk
from tests.support.commands import firn
from tests.support.committing import commit
from tests.support.topics import DAY, NOW, Record, Topic, updates


def verified(topic: Topic, snapshot_id: int | None = None) -> list[Verified]:
    return verify(topic.lake, topic.table, snapshot_id, LocalEngine())


def broken(found: list[Verified]) -> set[str]:
    return {row.promise.name for one in found for row in one.rows if row.broken}


@pytest.mark.parametrize("lane", ["merge", "clean", "full"])
def test_a_commit_of_every_lane_is_proved_by_its_files_alone(topic: Topic, lane: str) -> None:
    topic.land(updates("a=1", "b=1", "a=2"), updates("c=", "b=", "d=1", start=3))
    topic.clean("merge", force=True)
    topic.land(updates("d=2", start=6), updates("e=1", start=7))
    topic.clean("merge", force=True)
    if lane != "merge":
        topic.clean(lane, force=True)
    found = verified(topic)
    assert broken(found) == set()
    assert {one.claim.lane for one in found} == {lane}
    assert all(one.passed and one.claim.records_in for one in found)


def test_c9_stamps_removed_tombstones_and_their_return_are_proved(topic: Topic) -> None:
    topic.create(delete_retention_ms="1000")
    topic.land(updates("a=1", "b=1"), updates("a=", start=5), updates("z=1", start=9))
    topic.clean("full", force=True)
    assert broken(verified(topic)) == set()
    topic.land(updates("y=1", start=10))
    topic.clean("full", NOW + DAY, force=True)
    (found,) = verified(topic)
    assert found.passed, found.rows
    assert found.claim.tombstones_removed == 1
    topic.land([Record(3, b"a", b"late")])
    topic.clean("full", NOW + 2 * DAY, force=True)
    (found,) = verified(topic)
    assert found.passed, [row for row in found.rows if row.broken]
    assert found.claim.restored == 1


def test_c5_quarantined_records_and_segments_in_place_are_part_of_the_proof(topic: Topic) -> None:
    records = [Record(offset, b"k%03d" % offset, bytes(range(256)) * 2) for offset in range(100)]
    topic.create(segment_bytes="1024").land(*(records[start : start + 20] for start in range(0, 100, 20)))
    topic.clean("full", force=True)
    topic.land([Record(100, b"k045", b"new"), Record(101, None, b"no key"), Record(102, b"end", b"")])
    topic.clean("full", force=True)
    (found,) = verified(topic)
    assert found.passed, [row for row in found.rows if row.broken]
    assert (found.claim.quarantined, found.claim.records_in_place) == (1, 80)


def test_a_commit_that_lost_a_record_is_refused(topic: Topic) -> None:
    """A commit as Firn makes it, which drops a key."""
    topic.land(updates("a=1", "b=1", "a=2"))
    topic.clean("full", force=True)
    table = topic.lake.table(topic.table)
    said = dict(table.current_snapshot().summary.additional_properties)  # type: ignore[union-attr]
    claimed = {name: value for name, value in said.items() if name.startswith("firn.") and name != SNAPSHOT_ID}
    removed = [task.file.file_path for task in table.scan().plan_files()]
    (added,) = _dataframe_to_data_files(table.metadata, table.scan().to_arrow().slice(1), table.io)
    added.spec_id = table.spec().spec_id
    commit(topic.lake, Commit(table, [(MAIN_BRANCH, Change(removed, [added], claimed))]), topic.table)
    (found,) = verified(topic)
    assert {"expect_newest_record_kept", "expect_record_counts_to_add_up"} <= broken([found])


def test_c8_horizons_are_held_to_the_retention_of_their_commit(topic: Topic) -> None:
    topic.create(delete_retention_ms="1000").land(updates("a=1", "b=", "c=1"))
    topic.clean("full", force=True)
    written = on_disk(topic.lake.table(topic.table).metadata_location)
    with topic.lake.table(topic.table).transaction() as change:
        change.set_properties({"firn.delete.retention.ms": "5000"})
    (found,) = verified(topic)
    assert (found.passed, found.claim.stamp_ms) == (True, NOW + 1000)
    written.unlink()
    (found,) = verified(topic)
    assert (found.passed, found.claim.stamp_ms) == (True, None)
    assert any("not judged: the metadata file" in row.observed for row in found.rows)


def test_the_command_prints_every_promise_and_says_so_by_its_exit_code(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "a=2"))
    topic.clean("full", clock.now_ms(), force=True)
    ran = firn(topic.lake, "verify", topic.table, "--engine", "local")
    assert ran.returncode == 0, ran.stderr
    assert "every promise is kept" in ran.stdout
    assert "kept    expect_newest_record_kept (C1, C2, C3): broken by 0 of 2 keys." in ran.stdout
    told = json.loads(firn(topic.lake, "verify", topic.table, "--engine", "local", "--json").stdout)
    assert [one["passed"] for one in told] == [True]
    refused = firn(topic.lake, "verify", topic.table, "--snapshot", "7", "--engine", "local")
    assert refused.returncode != 0
    assert "has no snapshot 7" in refused.stderr


def test_what_cannot_be_verified_is_refused_by_name(topic: Topic) -> None:
    topic.land(updates("a=1"))
    with pytest.raises(RefusedError, match="has no commit to verify"):
        verified(topic)
    snapshot = topic.lake.table(topic.table).current_snapshot()
    assert snapshot is not None
    with pytest.raises(RefusedError, match="was not published by Firn"):
        verified(topic, snapshot.snapshot_id)
    with pytest.raises(RefusedError, match="has no snapshot 7"):
        verified(topic, 7)
