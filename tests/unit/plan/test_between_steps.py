"""Events between two steps: the clock goes back, manifests are rewritten. And a segment without a record."""

import pytest

from firnlake.clock import from_ms
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.gather import status_of
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.plan.make import plan_partition, plan_table
from firnlake.plan.read_states import sense_table
from firnlake.table.segment import TAIL
from firnlake.table.segments import read
from tests.support import lakes
from tests.support.foreign import append_empty_file, rewrite_manifests
from tests.support.lakes import NOW, Fates, append, only_plan, ready, row
from tests.support.publishing import publish, retain

DAY_MS = 86_400_000
TWO_OF_ONE_KEY = [row(0), row(1)]


def clean(lake: Lake, now_ms: int) -> Plan:
    """Publish a full clean of one record at ``now_ms``."""
    plan = only_plan(lake, now_ms=now_ms)
    publish(lake, ready(lake, plan, [row(one.base_offset) for one in plan.inputs]).identifier)
    return plan


class TestClock:
    """A plan's clock may be earlier than that of one before: by when a run was due, or by another machine."""

    @pytest.mark.parametrize("behind_ms", [0, 1, 600_000, 400 * DAY_MS])
    @pytest.mark.usefixtures("table")
    def test_c8_horizons_count_from_the_latest_clock_that_was_published(self, lake: Lake, behind_ms: int) -> None:
        append(lake, [row(0)])
        assert clean(lake, NOW).delete_retention_ms == DAY_MS
        append(lake, [row(1)])
        plan = only_plan(lake, now_ms=NOW - behind_ms)
        assert plan.now_ms == NOW - behind_ms
        assert plan.now_ms + plan.clock_behind_ms + plan.delete_retention_ms == NOW + DAY_MS

    @pytest.mark.usefixtures("table")
    def test_c8_by_a_later_clock_horizons_count_from_it(self, lake: Lake) -> None:
        append(lake, [row(0)])
        clean(lake, NOW)
        append(lake, [row(1)])
        assert only_plan(lake, now_ms=NOW + 5).delete_retention_ms == DAY_MS

    def test_c26_a_clock_that_went_back_is_said(self, lake: Lake, table: str, caplog: pytest.LogCaptureFixture) -> None:
        append(lake, [row(0)])
        clean(lake, NOW)
        plan_table(lake, table, Lane.FULL, NOW - 7)
        (message,) = caplog.messages
        assert "lake.records: the clock 2023-11-14T22:13:19Z is 7 ms behind the newest commit of Firn" in message

    def test_c9_what_is_past_its_horizon_by_a_later_clock_waits_for_it(self, lake: Lake, table: str) -> None:
        """The horizon is compared with the plan's own clock, which is earlier: nothing goes too soon."""
        horizon = from_ms(NOW - 10)
        append(lake, [row(offset, b"%d" % offset, None, level=TAIL, delete_horizon=horizon) for offset in range(3)])
        assert len(plan_table(lake, table, Lane.FULL, NOW)) == 1
        assert plan_table(lake, table, Lane.FULL, NOW - 11) == []

    def test_c12_no_lane_is_due_by_an_earlier_clock_that_is_not_by_the_later(self, lake: Lake, table: str) -> None:
        append(lake, [row(0, timestamp=from_ms(NOW - DAY_MS - 10))])
        clean(lake, NOW)
        append(lake, [row(5, b"x" * 10)])
        for lane in Lane:
            later = {plan.topic_partition for plan in plan_table(lake, table, lane, NOW + 1)}
            assert {plan.topic_partition for plan in plan_table(lake, table, lane, NOW - 5000)} <= later

    def test_c19_an_earlier_clock_drops_less(self, lake: Lake, table: str) -> None:
        with lake.table(table).transaction() as transaction:
            transaction.set_properties({"firn.cleanup.policy": "delete", "firn.retention.ms": "1000"})
        for offset in range(3):
            append(lake, [row(offset, timestamp=from_ms(NOW + 1000 * offset))])
        (early,) = plan_table(lake, table, Lane.RETAIN, NOW + 1500)
        assert [one.base_offset for one in early.inputs] == [0]
        retain(lake, early)
        assert plan_table(lake, table, Lane.RETAIN, NOW + 1400) == []
        assert lakes.offsets(lake) == [1, 2]


class TestManifests:
    """Other engines rewrite manifests at any time: the same files, listed elsewhere."""

    def test_c22_between_sense_and_plan(self, lake: Lake, table: str) -> None:
        append(lake, TWO_OF_ONE_KEY)
        append(lake, [row(2)])
        segments, (state,) = sense_table(lake, table, NOW)
        rewrite_manifests(lake)
        plan = plan_partition(Lane.FULL, segments, state, force=True)
        assert plan is not None
        again = only_plan(lake)
        assert again.snapshot_id != plan.snapshot_id
        assert again.inputs == plan.inputs
        publish(lake, ready(lake, plan, [row(2)], Fates(superseded=2)).identifier)
        assert lakes.offsets(lake) == [2]

    @pytest.mark.usefixtures("table")
    def test_c22_between_plan_and_publish(self, lake: Lake) -> None:
        append(lake, TWO_OF_ONE_KEY)
        plan = only_plan(lake)
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        append(lake, [row(2, partition=1)])
        rewrite_manifests(lake)
        assert publish(lake, stage.identifier).attempts == 1
        assert lakes.offsets(lake) == [1, 2]

    def test_c15_runs_and_clocks_are_told_as_before(self, lake: Lake, table: str) -> None:
        """Sequence numbers, which tell runs, and the commit that added a file stay when manifests are rewritten."""
        append(lake, [row(0)])
        clean(lake, NOW)
        append(lake, [row(2)])
        before = list(read(lake.table(table), table))
        rewrite_manifests(lake)
        assert list(read(lake.table(table), table)) == before

    def test_c19_between_plan_and_dropping(self, lake: Lake, table: str) -> None:
        with lake.table(table).transaction() as transaction:
            transaction.set_properties({"firn.cleanup.policy": "delete", "firn.retention.ms": "1000"})
        for offset in range(2):
            append(lake, [row(offset)])
        (plan,) = plan_table(lake, table, Lane.RETAIN, NOW)
        rewrite_manifests(lake)
        retain(lake, plan)
        assert lakes.offsets(lake) == [1]


class TestEmptySegment:
    """A data file without a row: some writers leave them."""

    @pytest.mark.parametrize("lane", Lane)
    @pytest.mark.parametrize("force", [False, True])
    def test_alone_it_is_nothing_to_work_on(self, lake: Lake, table: str, lane: Lane, force: bool) -> None:
        append_empty_file(lake)
        assert plan_table(lake, table, lane, NOW, force) == []

    def test_c20_status_shows_it_and_nothing_is_in_the_way(self, lake: Lake, table: str) -> None:
        append_empty_file(lake)
        status = status_of(lake, table, NOW)
        (part,) = status.partitions
        (level,) = part.levels
        assert (level.segments, level.records, level.base_offset, level.last_offset) == (1, 0, None, None)
        assert (part.dirty_ratio, part.due, part.blockers, part.cleaned_through) == (0.0, {}, (), None)

    @pytest.mark.usefixtures("table")
    def test_beside_others_it_changes_no_plan(self, lake: Lake) -> None:
        append(lake, TWO_OF_ONE_KEY)
        before = only_plan(lake)
        append_empty_file(lake)
        after = only_plan(lake)
        assert after.inputs == before.inputs
        assert (after.clean_below, after.log_end_offset) == (None, 1)
        publish(lake, ready(lake, after, [row(1)], Fates(superseded=1)).identifier)
        assert lakes.offsets(lake) == [1]
