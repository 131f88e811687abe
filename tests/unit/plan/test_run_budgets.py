"""Budgets of a run: what it takes, what waits, and what is said about it (C17, C26)."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.plan.make import candidates, plan_table, plan_work
from firnlake.plan.order import Candidate, RunBudget, admit
from firnlake.plan.read_states import Scope
from firnlake.table.partition import sense
from firnlake.table.policies import Policies
from firnlake.table.policy import LONG_MAX, Policy
from firnlake.table.segment import Segments
from firnlake.table.topic_partition import TopicPartition
from tests.support.lakes import NOW, TABLE, append, row
from tests.unit.plan.test_job import plan
from tests.unit.plan.test_order import landed

budgets = st.builds(
    RunBudget, bytes=st.integers(1, 300), records=st.integers(1, 300), keys=st.integers(1, 100), jobs=st.integers(1, 4)
)
queues = st.lists(
    st.builds(
        Candidate,
        st.builds(
            plan, st.integers(0, 99), size=st.integers(0, 120), records=st.integers(1, 120), transactional=st.booleans()
        ),
        keys=st.integers(0, 60),
    ),
    max_size=15,
    unique_by=lambda candidate: candidate.plan.partition,
)


class TestBudgets:
    """The plans that one run of a lane takes (C17)."""

    @given(queues, budgets)
    def test_c17_budgets_are_kept_and_the_order_is_respected(self, queue: list[Candidate], budget: RunBudget) -> None:
        keys = {candidate.plan.id: candidate.keys for candidate in queue}
        found = admit(queue, budget)
        taken = {one.id for one in found.plans}
        assert [one.id for one in found.plans] == [one.plan.id for one in queue if one.plan.id in taken]
        assert {one.plan.id for one in found.postponed} == keys.keys() - taken
        assert sum(one.bytes for one in found.plans) <= budget.bytes
        assert sum(one.records for one in found.plans) <= budget.records
        assert sum(keys[one.id] for one in found.plans) <= budget.keys
        assert len(found.jobs) <= budget.jobs
        assert Counter(one.id for job in found.jobs for one in job) == Counter(taken)
        for one in found.postponed:
            # Whoever waits does not fit beside those before it that were taken.
            before = queue[: [candidate.plan.id for candidate in queue].index(one.plan.id)]
            beside = [candidate for candidate in before if candidate.plan.id in taken]
            again = admit([*beside, next(candidate for candidate in queue if candidate.plan is one.plan)], budget)
            assert [waits.plan.id for waits in again.postponed] == [one.plan.id]
            assert one.too_large == bool(admit([Candidate(one.plan, keys[one.plan.id])], budget).postponed)

    @given(queues)
    def test_c17_without_a_budget_that_counts_everything_is_taken(self, queue: list[Candidate]) -> None:
        assert admit(queue, RunBudget.of(Policy())).plans == [candidate.plan for candidate in queue]

    def test_c17_one_that_has_no_room_waits_and_smaller_ones_go_on(self) -> None:
        queue = [Candidate(plan(n, size), 0) for n, size in enumerate((600, 500, 300))]
        found = admit(queue, RunBudget(bytes=1000, records=LONG_MAX, keys=LONG_MAX, jobs=9))
        assert [one.partition for one in found.plans] == [0, 2]
        (waits,) = found.postponed
        needs = "its plan needs 500 bytes; available: 400 of 1000 (firn.run.max.bytes)"
        assert str(waits) == f"orders-1 full waits for the next run: {needs}"

    @pytest.mark.parametrize(
        ("limit", "problem"),
        [
            ({"bytes": 99}, "needs 100 bytes; available: 99 of 99 (firn.run.max.bytes)"),
            ({"records": 9}, "needs 10 records; available: 9 of 9 (firn.run.max.records)"),
            ({"keys": 7}, "needs 8 keys; available: 7 of 7 (firn.run.max.keys)"),
        ],
    )
    def test_c26_one_that_is_too_large_for_any_run_says_so(self, limit: dict[str, int], problem: str) -> None:
        budget = replace(RunBudget(LONG_MAX, LONG_MAX, LONG_MAX, 1), **limit)
        (waits,) = admit([Candidate(plan(3), keys=8)], budget).postponed
        assert str(waits) == f"orders-3 full waits for a larger budget: its plan {problem}"

    def test_c17_small_plans_share_a_job_and_so_the_budget_in_jobs(self) -> None:
        """A second plan of a topic partition can't share the job of the first."""
        queue = [Candidate(plan(n), 0) for n in (0, 1, 1, 3, 4)]
        found = admit(queue, replace(RunBudget.of(Policy()), jobs=1))
        assert [one.partition for one in found.plans] == [0, 1, 3, 4]
        (waits,) = found.postponed
        assert waits.reason == "needs 1 more job; available: 0 of 1 (firn.run.max.jobs)"


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
        self.allow(lake, run_max_records="22")
        (first, second) = plan_table(lake, waiting, Lane.FULL, NOW, force=True)
        assert (first.partition, second.partition) == (0, 1), "equally filthy"
        (message,) = caplog.messages
        assert message.startswith("lake.records: orders-2 full waits for the next run: its plan needs 12 records; ")
        assert message.endswith("available: 1 of 22 (firn.run.max.records)")

    def test_c17_one_job_has_room_for_all_small_plans(self, lake: Lake, waiting: str) -> None:
        self.allow(lake, run_max_jobs="1")
        work = plan_work(lake, waiting, Lane.FULL, NOW, force=True)
        assert len(work.plans) == 3
        (job,) = work.jobs
        assert list(job) == work.plans

    def test_c17_a_head_is_cut_at_the_budget_of_a_run(self, lake: Lake, waiting: str) -> None:
        append(lake, [row(50 + offset, partition=1) for offset in range(10)])
        self.allow(lake, run_max_records="15")
        work = plan_work(
            lake, waiting, Lane.FULL, NOW, force=True, scope=Scope(partitions=(TopicPartition("orders", 1),))
        )
        assert [(plan.records, plan.waiting_segments) for plan in work.plans] == [(11, 1)]

    @pytest.mark.parametrize(
        ("name", "problem"),
        [("bytes", "bytes; available: 5"), ("records", "records; available: 5"), ("keys", "keys; available: 5")],
    )
    def test_c26_a_budget_smaller_than_any_segment_is_said_segment_by_segment(
        self, lake: Lake, waiting: str, name: str, problem: str
    ) -> None:
        self.allow(lake, **{f"run_max_{name}": "5"})
        work = plan_work(
            lake, waiting, Lane.FULL, NOW, force=True, scope=Scope(partitions=(TopicPartition("orders", 0),))
        )
        assert work.plans == []
        assert any(f"{problem} (firn.run.max.{name})" in text for text in work.oversized())

    def test_c26_a_tail_that_leaves_no_room_for_its_head_is_said(self) -> None:
        found = landed(0, 10, count=2)
        segments = Segments.of(TABLE, "uuid", 7, found)
        states = sense(segments, Policies.parse(TABLE, {"firn.run.max.records": "105"}), NOW)
        assert candidates(Lane.FULL, segments, states, force=True) == []
        (problem,) = states[0].oversized
        assert "0-0 together with the tail (segments: 1) needs 110 records; available: 105" in problem
