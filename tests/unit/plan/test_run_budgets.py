"""Budgets of a run: what it takes, what waits, and what is said about it (C17, C26)."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.plan.make import due_plans, plan_table, plan_work
from firnlake.plan.order import RunBudget, admit
from firnlake.plan.read_states import Scope
from firnlake.table.policies import Policies
from firnlake.table.policy import Policy
from firnlake.table.segment import Segments
from firnlake.table.topic_partition import TopicPartition
from tests.support.lakes import NOW, TABLE, append, row
from tests.support.states import sense
from tests.unit.plan.test_job import plan
from tests.unit.plan.test_order import landed

budgets = st.builds(RunBudget, bytes=st.integers(1, 300), jobs=st.integers(1, 4))
queues = st.lists(
    st.builds(plan, st.integers(0, 99), size=st.integers(0, 120), transactional=st.booleans()),
    max_size=15,
    unique_by=lambda plan: plan.partition,
)


class TestBudgets:
    """The plans that one run of a lane takes (C17)."""

    @given(queues, budgets)
    def test_c17_budgets_are_kept_and_the_order_is_respected(self, queue: list[Plan], budget: RunBudget) -> None:
        found = admit(queue, budget)
        taken = {one.id for one in found.plans}
        assert [one.id for one in found.plans] == [one.id for one in queue if one.id in taken]
        assert {one.plan.id for one in found.postponed} == {one.id for one in queue} - taken
        assert sum(one.bytes for one in found.plans) <= budget.bytes
        assert len(found.jobs) <= budget.jobs
        assert Counter(one.id for job in found.jobs for one in job) == Counter(taken)
        for one in found.postponed:
            # Whoever waits does not fit beside those before it that were taken.
            beside = [plan for plan in queue[: queue.index(one.plan)] if plan.id in taken]
            again = admit([*beside, one.plan], budget)
            assert [waits.plan.id for waits in again.postponed] == [one.plan.id]
            assert one.too_large == bool(admit([one.plan], budget).postponed)

    @given(queues)
    def test_c17_without_a_budget_that_counts_everything_is_taken(self, queue: list[Plan]) -> None:
        assert admit(queue, RunBudget.of(Policy())).plans == queue

    def test_c17_one_that_has_no_room_waits_and_smaller_ones_go_on(self) -> None:
        queue = [plan(n, size) for n, size in enumerate((600, 500, 300))]
        found = admit(queue, RunBudget(bytes=1000, jobs=9))
        assert [one.partition for one in found.plans] == [0, 2]
        (waits,) = found.postponed
        needs = "its plan needs 500 bytes; available: 400 of 1000 (firn.run.max.bytes)"
        assert str(waits) == f"orders-1 full waits for the next run: {needs}"

    def test_c26_one_that_is_too_large_for_any_run_says_so(self) -> None:
        (waits,) = admit([plan(3)], RunBudget(99)).postponed
        problem = "needs 100 bytes; available: 99 of 99 (firn.run.max.bytes)"
        assert str(waits) == f"orders-3 full waits for a larger budget: its plan {problem}"

    def test_c17_small_plans_share_a_job_and_so_the_budget_in_jobs(self) -> None:
        """A second plan of a topic partition can't share the job of the first."""
        queue = [plan(n) for n in (0, 1, 1, 3, 4)]
        found = admit(queue, replace(RunBudget.of(Policy()), jobs=1))
        assert [one.partition for one in found.plans] == [0, 1, 3, 4]
        (waits,) = found.postponed
        assert waits.reason == "needs one more job; a run of a lane has at most 1"


class TestTables:
    """Budgets are properties of a table; whoever plans says what waits."""

    @pytest.fixture
    def waiting(self, lake: Lake, table: str) -> str:
        """Three topic partitions with a head, partition 2 the largest."""
        for partition in range(3):
            append(lake, [row(offset, b"%d" % offset, partition=partition) for offset in range(10 + partition)])
        return table

    def allow(self, lake: Lake, **properties: str) -> None:
        with lake.table(TABLE).transaction() as transaction:
            transaction.set_properties({f"firn.{name.replace('_', '.')}": value for name, value in properties.items()})

    def test_c17_what_has_no_room_waits_and_is_named_in_the_log(
        self, lake: Lake, waiting: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        small, larger, largest = [plan.bytes for plan in plan_table(lake, waiting, Lane.FULL, NOW, force=True)]
        self.allow(lake, run_max_bytes=str(small + larger + 1))
        (first, second) = plan_table(lake, waiting, Lane.FULL, NOW, force=True)
        assert (first.partition, second.partition) == (0, 1), "equally filthy"
        (message,) = caplog.messages
        needs = f"its plan needs {largest} bytes; available: 1 of {small + larger + 1} (firn.run.max.bytes)"
        assert message == f"lake.records: orders-2 full waits for the next run: {needs}"

    def test_c17_one_job_has_room_for_all_small_plans(self, lake: Lake, waiting: str) -> None:
        work = plan_work(lake, waiting, Lane.FULL, NOW, force=True)
        assert len(work.plans) == 3
        (job,) = work.jobs
        assert list(job) == work.plans

    def test_c17_a_head_is_cut_at_the_budget_of_a_run(self, lake: Lake, waiting: str) -> None:
        append(lake, [row(50 + offset, partition=1) for offset in range(10)])
        one = Scope(partitions=(TopicPartition("orders", 1),))
        (whole,) = plan_work(lake, waiting, Lane.FULL, NOW, force=True, scope=one).plans
        self.allow(lake, run_max_bytes=str(whole.bytes - 1))
        work = plan_work(lake, waiting, Lane.FULL, NOW, force=True, scope=one)
        assert [(plan.records, plan.waiting_segments) for plan in work.plans] == [(11, 1)]

    def test_c26_a_budget_smaller_than_any_segment_is_said_segment_by_segment(self, lake: Lake, waiting: str) -> None:
        self.allow(lake, run_max_bytes="5")
        work = plan_work(
            lake, waiting, Lane.FULL, NOW, force=True, scope=Scope(partitions=(TopicPartition("orders", 0),))
        )
        assert work.plans == []
        assert any("bytes; available: 5 (firn.run.max.bytes)" in text for text in work.oversized())

    def test_c26_a_tail_that_leaves_no_room_for_its_head_is_said(self) -> None:
        found = landed(0, 10, count=2)
        segments = Segments.of(TABLE, "uuid", 7, found)
        states = sense(segments, Policies.parse(TABLE, {"firn.run.max.bytes": "1050"}), NOW)
        assert due_plans(Lane.FULL, segments, states, force=True) == []
        (problem,) = states[0].oversized
        assert "0-0 together with the tail (segments: 1) needs 1100 bytes; available: 1050" in problem
