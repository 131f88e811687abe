"""Publishing: exactly what was validated, all or nothing."""

import pytest

from firnlake.clock import from_ms
from firnlake.errors import ConflictError
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.job.stage import Stage, stages_of
from firnlake.plan.make import plan_table
from firnlake.table.segments import read
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.foreign import append_again, rename, written_under_no_spec
from tests.support.lakes import NOW, TABLE, Fates, append, append_file, append_two, only_plan, ready, row
from tests.support.publishing import publish
from tests.support.stages import documents_of


class TestPublishing:
    """The effect of one commit."""

    def test_c22_inputs_out_and_results_in_with_one_commit(self, lake: Lake, stage: Stage) -> None:
        before = len(lake.table(TABLE).metadata.snapshots)
        done = publish(lake, stage.identifier)
        after = lake.table(TABLE)
        assert lakes.offsets(lake) == [1]
        assert [one.level for one in read(after, TABLE)] == [3]
        assert len(after.metadata.snapshots) == before + 1
        assert done.snapshot_id == lakes.snapshot(lake)
        assert (done.table, done.plan_id, done.attempts, done.repeated) == (TABLE, stage.job_id, 1, False)

    def test_c22_readers_of_the_snapshot_before_are_not_disturbed(self, lake: Lake, stage: Stage) -> None:
        reader = lake.table(TABLE).scan()
        publish(lake, stage.identifier)
        assert sorted(reader.to_arrow()["offset"].to_pylist()) == [0, 1]

    def test_c23_the_files_are_the_stages_own(self, lake: Lake, stage: Stage) -> None:
        staged = {file.file_path for file in stage.files[stage.job_id].all}
        publish(lake, stage.identifier)
        assert lakes.paths(lake.table(TABLE)) == staged

    def test_c24_the_summary_holds_the_record_counts_and_where_they_come_from(self, lake: Lake, stage: Stage) -> None:
        done = publish(lake, stage.identifier)
        snapshot = lake.table(TABLE).snapshot_by_id(done.snapshot_id)
        assert snapshot is not None
        assert snapshot.summary is not None
        counts = done.counts
        assert counts is not None
        expected = counts.summary() | {
            "firn.records-in": "2",
            "firn.records-out": "1",
            "firn.superseded": "1",
            "firn.tombstones-removed": "0",
            "firn.expired": "0",
            "firn.quarantined": "0",
            "firn.segments-in": "2",
            "firn.segments-out": "1",
            "firn.plan-id": stage.job_id,
            "firn.lane": "full",
            "firn.topic-partition": "orders-0",
            "firn.reason": stage.plans[0].reason,
            "firn.now-ms": str(NOW),
        }
        assert {name: snapshot.summary[name] for name in expected} == expected
        assert snapshot.summary["total-records"] == "1"
        assert snapshot.summary["deleted-data-files"] == "2"

    def test_the_stage_is_gone_afterwards_and_its_data_is_not(self, lake: Lake, stage: Stage) -> None:
        publish(lake, stage.identifier)
        assert stages_of(lake, TABLE) == []
        assert not documents_of(stage).exists()
        assert all(on_disk(path).exists() for path in lakes.paths(lake.table(TABLE)))

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize("name", ["50% é.parquet", "a%20b.parquet", "q?x=1#y.parquet", "it's [0-9]* {a,b}"])
    def test_segments_may_have_any_name(self, lake: Lake, name: str) -> None:
        path = rename(lake, append_file(lake, [row(0)]), name)
        append(lake, [row(1)])
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1))
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [1]
        assert on_disk(path).exists(), "snapshots before still hold it"

    def test_an_empty_result_is_published(self, lake: Lake, table: str) -> None:
        append(lake, [row(0, value=None, level=3), row(1, partition=1)])
        (plan,) = [one for one in plan_table(lake, table, Lane.FULL, NOW, force=True) if one.partition == 0]
        publish(lake, ready(lake, plan, [], Fates(tombstones_removed=1)).identifier)
        assert lakes.offsets(lake) == [1]

    @pytest.mark.parametrize("topic", ["größe: 50%", "x=y&z#?/+ '"])
    @pytest.mark.usefixtures("table")
    def test_topics_whose_paths_are_escaped_lose_nothing(self, lake: Lake, topic: str) -> None:
        append_two(lake, row(0, topic=topic), row(1, topic=topic))
        publish(lake, ready(lake, only_plan(lake), [row(1, topic=topic)], Fates(superseded=1)).identifier)
        assert lakes.offsets(lake) == [1]


class TestTombstones:
    """C9: a tombstone goes only while nothing outside the inputs can hold an older record."""

    def removal(self, lake: Lake) -> Stage:
        """A stage that removes the tombstone at offset 50; the log ends at 60."""
        append(lake, [row(50, value=None, level=3), row(60, key=b"z", level=3)])
        return ready(lake, only_plan(lake), [row(60, key=b"z")], Fates(tombstones_removed=1))

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize("offset", [0, 59])
    def test_c9_an_older_segment_that_landed_since_refuses_it(self, lake: Lake, offset: int) -> None:
        stage = self.removal(lake)
        append(lake, [row(offset)])
        before = lake.table(TABLE).metadata_location
        with pytest.raises(ConflictError, match=r"removes 1 tombstone below offset 60, but segment orders-0 L0"):
            publish(lake, stage.identifier)
        assert lake.table(TABLE).metadata_location == before
        assert lakes.offsets(lake) == sorted([50, 60, offset])

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize("others", [{"offset": 61}, {"offset": 0, "partition": 1}, {"offset": 0, "topic": "other"}])
    def test_c9_newer_records_and_other_partitions_do_not(self, lake: Lake, others: dict[str, int | str]) -> None:
        stage = self.removal(lake)
        append(lake, [row(0) | others])
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == sorted([60, int(others["offset"])])

    @pytest.mark.usefixtures("table")
    def test_c9_a_segment_that_the_plan_knew_of_does_not(self, lake: Lake) -> None:
        """It is too young to be cleaned, and begins where tombstones stop being clean."""
        lake.set_properties(TABLE, {"firn.min.compaction.lag.ms": "1000"})
        append(lake, [row(50, value=None, level=3), row(60, key=b"z", level=3)])
        append(lake, [row(55, key=b"y", timestamp=from_ms(NOW))])
        plan = only_plan(lake)
        assert plan.clean_below == 55
        publish(lake, ready(lake, plan, [row(60, key=b"z")], Fates(tombstones_removed=1)).identifier)
        assert lakes.offsets(lake) == [55, 60]

    @pytest.mark.usefixtures("table")
    def test_c9_without_a_removal_late_records_do_not_matter(self, lake: Lake) -> None:
        append(lake, [row(50), row(60)])
        stage = ready(lake, only_plan(lake), [row(60)], Fates(superseded=1))
        append(lake, [row(0)])
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [0, 60]

    @pytest.mark.usefixtures("table")
    def test_c9_a_file_that_may_hold_older_records_refuses_it(self, lake: Lake) -> None:
        stage = self.removal(lake)
        path = written_under_no_spec(lake, [row(59), row(70, partition=3)])
        with pytest.raises(ConflictError, match=f"but segment {path} with lower offsets has landed since"):
            publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [50, 59, 60, 70]

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize("others", [{"offset": 61}, {"topic": "other"}, {"partition": 1}])
    def test_c9_a_file_that_can_not_hold_them_does_not(self, lake: Lake, others: dict[str, int | str]) -> None:
        stage = self.removal(lake)
        written_under_no_spec(lake, [row(0) | others, row(99, partition=3) | others])
        publish(lake, stage.identifier)
        assert 50 not in lakes.offsets(lake)

    @pytest.mark.usefixtures("table")
    def test_c20_a_segment_without_offsets_that_landed_since_refuses_it(self, lake: Lake) -> None:
        stage = self.removal(lake)
        append(lake, [row(61), row(62) | {"offset": None}])
        with pytest.raises(ConflictError, match=r"orders-0 L0 \[offsets unknown\]"):
            publish(lake, stage.identifier)


@pytest.mark.usefixtures("table")
class TestListedTwice:
    """A data file that the table lists twice is planned, read and taken out twice."""

    def test_c24_both_listings_go_and_the_counts_say_so(self, lake: Lake) -> None:
        append_again(lake, append_file(lake, [row(0), row(1)]))
        append(lake, [row(2)])
        plan = only_plan(lake)
        assert (len(plan.inputs), plan.records) == (2, 5)
        stage = ready(lake, plan, [row(2)], Fates(superseded=4))
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [2]
        snapshot = lake.table(TABLE).current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert (snapshot.summary["firn.records-in"], snapshot.summary["deleted-records"]) == ("5", "5")
        assert snapshot.summary["total-records"] == "1"

    def test_c22_one_more_listing_than_planned_means_plan_again(self, lake: Lake) -> None:
        path = append_file(lake, [row(0)])
        append(lake, [row(1)])
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1))
        append_again(lake, path)
        with pytest.raises(ConflictError, match=rf"the record count of {path} is 2 in .*, 1 in the plan; plan again"):
            publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [0, 0, 1]

    def test_c13_copies_are_never_taken_apart_by_a_group(self, lake: Lake) -> None:
        for offset in range(3):
            append(lake, [row(offset)])
        append_again(lake, append_file(lake, [row(3)]))
        with lake.table(TABLE).transaction() as transaction:
            transaction.set_properties({"firn.merge.segments": "4"})
        (plan,) = plan_table(lake, TABLE, Lane.MERGE, NOW)
        assert [one.records for one in plan.inputs] == [1, 1, 1, 2]
        publish(lake, ready(lake, plan, [row(0), row(1), row(2), row(3), row(3)]).identifier)
        assert lakes.offsets(lake) == [0, 1, 2, 3, 3]
