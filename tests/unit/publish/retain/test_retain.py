"""Lane retain on a real table: one commit that only takes files out, once (C19)."""

from pathlib import Path
from typing import NoReturn

import pytest

from firnlake.errors import ConflictError, OutcomeUnknownError
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.plan.make import plan_table
from firnlake.publish.attempts import Publication
from firnlake.publish.publish_jobs import retain_plans
from firnlake.run import run
from firnlake.table.segments import read
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.faults import Forgetful, through
from tests.support.foreign import append_empty_file
from tests.support.lakes import NOW, TABLE, append
from tests.support.publishing import retain
from tests.support.retained import HOUR, aged, change, land, plans


def summary(lake: Lake) -> dict[str, str]:
    snapshot = lake.table(TABLE).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value} | snapshot.summary.additional_properties


class TestDropping:
    """The effect of one commit."""

    def test_c19_segments_go_whole_and_the_others_stay_as_they_are(self, lake: Lake, plan: Plan) -> None:
        before = lakes.paths(lake.table(TABLE))
        done = retain(lake, plan)
        assert lakes.offsets(lake) == [4, 5, 6, 7]
        assert lakes.paths(lake.table(TABLE)) == before - {one.path for one in plan.inputs}
        assert (done.table, done.plan_id, done.attempts, done.repeated) == (TABLE, plan.id, 1, False)
        assert done.snapshot_id == lakes.snapshot(lake)
        assert plans(lake) == []

    def test_c22_readers_of_the_snapshot_before_are_not_disturbed(self, lake: Lake, plan: Plan) -> None:
        """The files stay on disk as long as a snapshot reaches them."""
        reader = lake.table(TABLE).scan()
        retain(lake, plan)
        assert sorted(reader.to_arrow()["offset"].to_pylist()) == list(range(8))
        assert all(on_disk(one.path).exists() for one in plan.inputs)

    @pytest.mark.usefixtures("table")
    def test_c19_by_size_the_oldest_go_until_the_rest_would_be_below_the_limit(self, lake: Lake) -> None:
        land(lake, 0, 0, 0, 0)
        sizes = [one.bytes for one in read(lake.table(TABLE), TABLE)]
        change(lake, retention_bytes=str(sum(sizes[2:])))
        retain(lake, *plans(lake))
        assert lakes.offsets(lake) == [4, 5, 6, 7]

    @pytest.mark.usefixtures("table")
    def test_c19_an_empty_file_goes_along(self, lake: Lake) -> None:
        append_empty_file(lake)
        land(lake, 2 * HOUR, 0)
        (made,) = plans(lake)
        retain(lake, made)
        assert (len(made.inputs), len(lakes.paths(lake.table(TABLE)))) == (2, 1)

    @pytest.mark.usefixtures("table")
    def test_c22_partitions_and_topics_that_are_not_in_the_plan_stay(self, lake: Lake) -> None:
        for partition in range(2):
            land(lake, 2 * HOUR, 0, partition=partition)
        for topic in ("order", "orders-0"):
            land(lake, 2 * HOUR, 0, topic=topic)
        (made,) = [one for one in plans(lake) if (one.topic, one.partition) == ("orders", 1)]
        retain(lake, made)
        left = {str(name): len(own) for name, own in read(lake.table(TABLE), TABLE).by_partition.items()}
        assert left == {"orders-0": 2, "orders-1": 1, "order-0": 2, "orders-0-0": 2}


class TestTogether:
    """Several plans of a table with one commit."""

    @pytest.fixture
    def three(self, lake: Lake, table: str) -> list[Plan]:
        """Each drops the first of two segments of its partition."""
        for partition in range(3):
            land(lake, 2 * HOUR, 0, partition=partition)
        return sorted(plan_table(lake, table, Lane.RETAIN, NOW), key=lambda made: made.partition)

    def test_c22_one_commit_and_the_sums_in_its_summary(self, lake: Lake, three: list[Plan]) -> None:
        before = len(lake.table(TABLE).metadata.snapshots)
        done = retain_plans(lake, three)
        assert [one.plan_id for one in done.publications] == [made.id for made in three]
        assert (len(lake.table(TABLE).metadata.snapshots), done.failures) == (before + 1, {})
        assert lakes.offsets(lake) == sorted([2, 3] * 3)
        found = summary(lake)
        assert (found["operation"], found["firn.plans"], found["firn.expired"]) == ("delete", "3", "6")

    def test_c20_one_that_conflicts_holds_up_no_other(self, lake: Lake, three: list[Plan]) -> None:
        append(lake, [aged(1, partition=1)])
        done = retain_plans(lake, three)
        assert [one.plan_id for one in done.publications] == [three[0].id, three[2].id]
        assert list(done.failures) == [three[1].id]
        assert "has to stay now" in str(done.failures[three[1].id])
        assert lakes.offsets(lake) == sorted([2, 3] * 3 + [0, 1, 1])

    def test_c25_again_changes_nothing(self, lake: Lake, three: list[Plan]) -> None:
        retain_plans(lake, three)
        before = lake.table(TABLE).metadata_location
        again = retain_plans(lake, three)
        assert [one.repeated for one in again.publications] == [True] * 3
        assert lake.table(TABLE).metadata_location == before

    def test_two_plans_of_a_topic_partition_are_two_commits(self, lake: Lake, plan: Plan) -> None:
        (later,) = plans(lake, NOW + 1)
        done = retain_plans(lake, [plan, later])
        assert ([one.plan_id for one in done.publications], list(done.failures)) == ([plan.id], [later.id])


class TestOnce:
    """C25: dropping twice, one after the other or at once, changes the table once."""

    def test_c25_again_changes_nothing(self, lake: Lake, plan: Plan) -> None:
        first = retain(lake, plan)
        before = lake.table(TABLE).metadata_location
        again = retain(lake, plan)
        assert (again.snapshot_id, again.repeated, again.attempts) == (first.snapshot_id, True, 0)
        assert lake.table(TABLE).metadata_location == before

    def test_c25_at_the_same_time_changes_the_table_once(self, lake: Lake, plan: Plan) -> None:
        found = lakes.together(*[lambda: retain(Lake.embedded(lake.home), plan)] * 3)
        assert all(isinstance(one, Publication) for one in found), found
        assert len({one.snapshot_id for one in found if isinstance(one, Publication)}) == 1
        assert sum(not one.repeated for one in found if isinstance(one, Publication)) == 1
        assert lakes.offsets(lake) == [4, 5, 6, 7]

    def test_c25_a_plan_that_the_history_forgot_is_not_carried_out_again(self, lake: Lake, plan: Plan) -> None:
        done = retain(lake, plan)
        land(lake, 0, start=8)
        lake.table(TABLE).maintenance.expire_snapshots().by_id(done.snapshot_id).commit()
        with pytest.raises(ConflictError, match=r"are no longer live in lake\.records: 2 of 2"):
            retain(lake, plan)
        assert lakes.offsets(lake) == list(range(4, 10))

    def test_c25_a_lost_answer_is_found_out(self, lake: Lake, plan: Plan) -> None:
        assert not retain(through(lake, Forgetful("no")), plan).repeated
        assert lakes.offsets(lake) == [4, 5, 6, 7]

    def test_c25_a_catalog_that_goes_down_leaves_everything(self, lake: Lake, plan: Plan) -> None:
        with pytest.raises(OutcomeUnknownError):
            retain(through(lake, Forgetful("yes")), plan)
        assert lakes.offsets(lake) == [4, 5, 6, 7]
        assert retain(lake, plan).repeated

    def test_c25_nothing_is_left_behind_by_a_plan_that_is_refused(self, lake: Lake, plan: Plan) -> None:
        lake.table(TABLE).delete("offset = 0")
        before = lakes.table_files(lake)
        with pytest.raises(ConflictError):
            retain(lake, plan)
        assert lakes.table_files(lake) == before


def no_engine(_: int) -> NoReturn:
    pytest.fail("an engine was asked for")


class TestRun:
    """Retention comes first in a run, and a run that needs nothing else starts no engine."""

    def test_a_run_drops_and_starts_no_engine(self, lake: Lake, plan: Plan) -> None:
        done = list(run(lake, TABLE, NOW, no_engine, until_idle=True))
        assert next(iter(Lane)) is Lane.RETAIN
        assert [(one.lane, len(one.publications)) for one in done if one.plans] == [(Lane.RETAIN, 1)]
        assert lakes.offsets(lake) == [4, 5, 6, 7]
        assert plan.id == done[0].plans[0].id

    def test_a_plan_survives_its_file(self, lake: Lake, plan: Plan, tmp_path: Path) -> None:
        retain(lake, Plan.read(plan.write(tmp_path)))
        assert lakes.offsets(lake) == [4, 5, 6, 7]
