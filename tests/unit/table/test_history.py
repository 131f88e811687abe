"""The known history of a table: from the snapshots of main alone, and from summaries as Firn writes them."""

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit
from firnlake.job.plan import Plan
from firnlake.table.published_plans import RecordCounts, published, published_plans
from firnlake.table.segments import read
from firnlake.table.summaries import (
    CommitSummary,
    FileBytes,
    appended,
    commit_clocks,
    file_bytes,
    newest_clock,
    summary,
)
from firnlake.table.topic_partition import TopicPartition
from tests.support import lakes
from tests.support.committing import commit as settled
from tests.support.lakes import NOW, append, only_plan, row
from tests.support.templates import Templates

COUNTS = RecordCounts(
    records_in=3, records_out=2, superseded=1, tombstones_removed=0, quarantined=0,
    bytes_in=30, bytes_out=20, segments_in=3, segments_out=1,
)  # fmt: skip


def commit(lake: Lake, properties: dict[str, str], branch: str = "main") -> Table:
    """A commit of Firn's that says ``properties``, whatever it does."""
    return settled(lake, Commit(lake.table(lakes.TABLE), [(branch, Change(summary=properties))])).table


def append_saying(lake: Lake, properties: dict[str, str]) -> Table:
    """An append by another writer that says ``properties``."""
    lake.table(lakes.TABLE).append(lakes.stored([row(9)]), snapshot_properties=properties)
    return lake.table(lakes.TABLE)


@pytest.fixture
def plan(lake: Lake, table: str, templates: Templates) -> Plan:
    """A plan on a table whose branch ``side`` has one snapshot more than main."""

    def make(lake: Lake) -> Plan:
        append(lake, [row(0)])
        append(lake, [row(1)])
        lake.table(table).manage_snapshots().create_branch(lakes.snapshot(lake) or 0, "side").commit()
        return only_plan(lake)

    return templates.step(lake, "side", make)


def told(lake: Lake, plan: Plan) -> dict[str, str]:
    return summary(lake.table(lakes.TABLE), plan.id, [plan], {plan.id: COUNTS})


def test_a_plan_on_main_is_known_as_published(lake: Lake, plan: Plan) -> None:
    target = commit(lake, told(lake, plan))
    current = lakes.snapshot(lake)
    assert published(target, plan.id) == current
    ((snapshot_id, found),) = published_plans(target, [plan.id]).values()
    assert (snapshot_id, found.id, found.topic_partition, found.counts) == (
        *(current, plan.id),
        *(plan.topic_partition, COUNTS),
    )
    assert newest_clock(target) == NOW
    assert len(list(ancestors(target))) == 4, "the empty one that the table began with, two appends, and this one"


def test_a_snapshot_of_a_side_branch_is_no_part_of_the_history(lake: Lake, plan: Plan) -> None:
    before = [one.snapshot_id for one in ancestors(lake.table(lakes.TABLE))]
    target = commit(lake, told(lake, plan), branch="side")
    assert [one.snapshot_id for one in ancestors(target)][1:] == before, "main moves with every commit"
    assert (published(target, plan.id), published_plans(target, [plan.id]), newest_clock(target)) == (None, {}, None)
    side = target.metadata.snapshot_by_name("side")
    assert side is not None
    assert commit_clocks(target)[side.snapshot_id].by_firn, "a file may come to main from there"


def test_c29_the_history_ends_at_an_expired_snapshot(lake: Lake, table: str) -> None:
    for offset in range(3):
        append(lake, [row(offset)])
    *_, first, second, third = (one.snapshot_id for one in lake.table(table).metadata.snapshots)
    lake.table(table).maintenance.expire_snapshots().by_id(second).commit()
    left = lake.table(table)
    assert [one.snapshot_id for one in ancestors(left)] == [third]
    assert first in commit_clocks(left)


def test_c24_a_summary_is_read_back_as_it_was_written(lake: Lake, plan: Plan) -> None:
    commit(lake, told(lake, plan))
    current = lake.table(lakes.TABLE).current_snapshot()
    assert current is not None
    assert CommitSummary.of(current) == CommitSummary(
        plan.id, "full", str(plan.topic_partition), plan.reason, 1, COUNTS
    )
    assert appended(current) is None


def test_the_core_time_of_a_commit_is_read_back(lake: Lake, plan: Plan) -> None:
    told_so = summary(lake.table(lakes.TABLE), plan.id, [plan], {plan.id: COUNTS}, 4200)
    for properties, core_ms in ((told_so, 4200), (told_so | {"firn.core-ms": "-1"}, 0)):
        snapshot = commit(lake, properties).current_snapshot()
        assert snapshot is not None
        found = CommitSummary.of(snapshot)
        assert found is not None
        assert found.core_ms == core_ms


@pytest.mark.usefixtures("table")
class TestFileBytes:
    """Iceberg's own figures in a summary, by whichever writer."""

    def test_what_was_added_and_what_was_removed(self, lake: Lake) -> None:
        append(lake, [row(0)])
        added = lake.table(lakes.TABLE).inspect.files()["file_size_in_bytes"].to_pylist()
        lake.table(lakes.TABLE).delete()
        *_, first, last = map(file_bytes, lake.table(lakes.TABLE).metadata.snapshots)
        assert (first, last) == (FileBytes(sum(added), 0), FileBytes(0, sum(added)))

    @pytest.mark.parametrize(
        ("properties", "found"),
        [
            ({}, FileBytes(0, 0)),
            ({"added-data-files": "3"}, FileBytes(None, 0)),
            ({"removed-delete-files": "1", "added-files-size": "7"}, FileBytes(7, None)),
            ({"added-files-size": "seven", "removed-files-size": "-7"}, FileBytes(None, None)),
        ],
    )
    def test_c26_a_summary_without_sizes_is_no_zero(self, properties: dict[str, str], found: FileBytes) -> None:
        said = {"snapshot-id": 1, "manifest-list": "none"}
        with_sizes = said | {"summary": Summary(Operation.OVERWRITE, **properties)}
        assert file_bytes(Snapshot.model_validate(with_sizes)) == found
        assert file_bytes(Snapshot.model_validate(said)) == FileBytes(None, None)


@pytest.mark.parametrize(
    "properties",
    [{}, {"firn.lane": "full"}, {"firn.lane": "full", "firn.plan-id": "x"}, {"firn.plans": "no", "firn.job-id": "x"}],
)
def test_c26_what_is_not_as_firn_writes_it_is_an_append_of_another_writer(
    lake: Lake, table: str, properties: dict[str, str]
) -> None:
    snapshot = append_saying(lake, properties).current_snapshot()
    assert snapshot is not None
    assert CommitSummary.of(snapshot) is None
    found = appended(snapshot)
    assert found is not None
    assert (found.records, found.bytes) == (
        1,
        read(lake.table(table), table).by_partition[TopicPartition("orders", 0)][0].bytes,
    )


@pytest.mark.parametrize(("waiting", "whole"), [(0, True), (2, False)])
def test_c16_waiting_segments_are_told(lake: Lake, plan: Plan, waiting: int, whole: bool) -> None:
    commit(lake, told(lake, plan.model_copy(update={"waiting_segments": waiting})))
    assert commit_clocks(lake.table(lakes.TABLE))[lakes.snapshot(lake) or 0].whole is whole


@pytest.mark.usefixtures("table")
def test_c16_without_a_count_of_waiting_segments_a_clean_was_not_whole(lake: Lake) -> None:
    target = commit(lake, {"firn.now-ms": str(NOW)})
    clock = commit_clocks(target)[lakes.snapshot(lake) or 0]
    assert (clock.by_firn, clock.whole) == (True, False)
