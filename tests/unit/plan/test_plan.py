"""Plans: which segments go in."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake.clock import from_ms
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.job.plan import Input, Plan
from firnlake.lanes.cleaning import SIMILAR
from firnlake.plan.make import first_due, plan_lanes, plan_table, plan_work
from firnlake.plan.read_states import Scope
from firnlake.table.partition import PartitionState
from firnlake.table.policies import Policies
from firnlake.table.policy import Policy
from firnlake.table.segment import LANDED, MERGED, RUN, TAIL, Segment, Segments
from firnlake.table.topic_partition import TopicPartition
from tests.support import lakes
from tests.support.drawn import all_plans, example, partitions, policies
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, append, row
from tests.support.states import sense

LEVEL_IN = {Lane.MERGE: LANDED, Lane.CLEAN: MERGED, Lane.TIER: RUN}


@settings(max_examples=150)
@given(partitions(), policies)
def test_c17_plans_take_whole_neighbouring_segments_within_their_budgets(
    segments: tuple[Segment, ...], policy: Policy
) -> None:
    for plan, force in all_plans(segments, policy):
        check(plan, segments, policy, force)


@settings(max_examples=40)
@given(st.lists(partitions(), max_size=4), policies)
def test_c12_the_filthiest_partition_comes_first(found: list[tuple[Segment, ...]], policy: Policy) -> None:
    moved = [
        replace(one, topic_partition=TopicPartition("orders", number), path=f"{number}-{one.path}")
        for number, segments in enumerate(found)
        for one in segments
    ]
    states = sense(Segments.of(TABLE, "uuid", 7, moved), Policies(policy, {}), NOW)
    assert [state.topic_partition.partition for state in states] == sorted(
        {one.topic_partition.partition for one in moved}, key=lambda number: (-ratio(moved, number, policy), number)
    )


def ratio(segments: list[Segment], number: int, policy: Policy) -> float:
    """C12 from the words of the contract: cleanable head bytes / (tail bytes + cleanable head bytes)."""
    own = sorted((one for one in segments if one.topic_partition.partition == number), key=lambda one: one.order)
    head = [one for one in own if one.level != TAIL and one.records]
    active = [one for one in head if one.level == LANDED][-policy.active_segments or len(head) :]
    lag = policy.min_compaction_lag_ms
    held = [one for one in head if one in active or (lag and NOW - one.newest_ms < lag)]
    clean = sum(one.data_bytes for one in head if not held or one.order < held[0].order)
    total = clean + sum(one.data_bytes for one in own if one.level == TAIL)
    return clean / total if total else 0.0


@settings(max_examples=60)
@given(partitions(), policies, st.randoms())
def test_the_same_metadata_policy_and_clock_give_the_same_plan(
    segments: tuple[Segment, ...], policy: Policy, random: Random
) -> None:
    shuffled = list(segments)
    random.shuffle(shuffled)
    (again,) = Segments.of(TABLE, "uuid", 7, shuffled).by_partition.values() if segments else ((),)
    assert all_plans(again, policy) == all_plans(segments, policy)


def check(plan: Plan, segments: tuple[Segment, ...], policy: Policy, force: bool) -> None:
    """Everything that holds for any plan, whatever it was made from."""
    lane = plan.lane
    by_path = {one.path: one for one in segments}
    state = PartitionState(TOPIC_PARTITION, segments, policy, NOW)
    taken = [by_path[one.path] for one in plan.inputs]
    head = [one for one in taken if one.level != TAIL]
    # Whole segments, each once, in offset order.
    assert [Input.of(one) for one in taken] == [one.model_copy(update={"may_stay": False}) for one in plan.inputs]
    assert lane is Lane.FULL or not any(one.may_stay for one in plan.inputs), "only a full clean leaves a tail in place"
    assert len(set(taken)) == len(taken)
    assert taken == sorted(taken, key=lambda one: one.order)
    # Budgets count what a plan takes of the head; a segment too large is never taken (C18).
    assert sum(one.bytes for one in head) <= policy.plan_max_bytes
    assert sum(one.records for one in head) <= policy.plan_max_records
    assert all(one.bytes <= policy.max_input_bytes for one in taken)
    if head and lane is not Lane.RETAIN:
        # A run's budget counts the tail as well.
        assert plan.bytes <= policy.run_max_bytes
    if lane is not Lane.MERGE:
        keys = sum(one.records if one.keys is None else one.keys for one in head)
        assert keys <= policy.keys_per_plan
    # Neighbours: nothing of the head with a record lies between two inputs of the head.
    with_records = [one for one in state.segments if one.records and (one.level != TAIL or lane is not Lane.FULL)]
    if head:
        first, last = with_records.index(head[0]), with_records.index(head[-1])
        assert with_records[first : last + 1] == head
    if lane in LEVEL_IN:
        assert {one.level for one in taken} == {LEVEL_IN[lane]}
    if lane is Lane.MERGE:
        assert len(taken) >= 2
        assert not {one.path for one in taken} & state.active
        assert force or len(taken) % policy.merge_segments == 0, "C13: whole groups"
        assert plan.inputs_per_segment == policy.merge_segments
    else:
        assert plan.inputs_per_segment is None
        assert set(head) <= set(state.cleanable), "C11: nothing at or past the uncleanable part"
        if policy.min_compaction_lag_ms:
            assert all(NOW - one.newest_ms >= policy.min_compaction_lag_ms for one in head), "C11: nothing young"
        assert not {one.path for one in head} & state.active, "C11: nothing active"
    if lane is Lane.TIER:
        check_tier(taken, segments, policy, force)
    if lane is Lane.FULL:
        whole = {one.path for one in state.tail if one.bytes <= policy.max_input_bytes}
        assert {one.path for one in taken if one.level == TAIL} == whole, "C16, C18: the tail but for what is too large"
        if head:
            assert head[0] == state.cleanable[0], "oldest first"
    # C7: a tombstone is clean below the lowest offset that anything outside may hold.
    outside = [one.base_offset for one in segments if one.records and one not in taken]
    assert plan.clean_below == (min(outside) if outside else None)
    # C4
    assert plan.log_end_offset == max(one.last_offset for one in segments)


def check_tier(taken: list[Segment], segments: tuple[Segment, ...], policy: Policy, force: bool) -> None:
    """C15: whole runs, similar in size, and enough of them waiting."""
    numbers = {one.sequence_number for one in taken}
    runs = [
        [one for one in segments if one.records and one.level == RUN and one.sequence_number == number]
        for number in numbers
    ]
    assert sorted(one.path for run in runs for one in run) == sorted(one.path for one in taken)
    sizes = [sum(one.data_bytes for one in run) for run in runs]
    assert len(sizes) >= 2
    assert max(sizes) <= SIMILAR * min(sizes)
    waiting = {one.sequence_number for one in segments if one.records and one.level == RUN}
    assert force or len(waiting) >= policy.tier_runs


@pytest.mark.parametrize(("lane", "level"), [(Lane.MERGE, 1), (Lane.CLEAN, 2), (Lane.TIER, 2), (Lane.FULL, 3)])
def test_a_lane_makes_one_level(lane: Lane, level: int) -> None:
    assert example(lane=lane).level_out == level


@pytest.mark.parametrize(
    ("lane", "size", "expected"),
    [(Lane.FULL, 10_000, 10_000), (Lane.CONVERT, 10_000, 320), (Lane.CONVERT, 200, 200)],
)
def test_lane_convert_reads_a_few_columns(lane: Lane, size: int, expected: int) -> None:
    (one,) = example().inputs
    inputs = (one.model_copy(update={"records": 10, "bytes": size}),)
    assert example(lane=lane, inputs=inputs).read_bytes == expected


class TestPlanTable:
    """Plans of a real table."""

    def test_planning_changes_nothing(self, lake: Lake, table: str) -> None:
        append(lake, [row(0)])
        before = (lake.table(table).metadata_location, lake.tables("lake"))
        first = plan_table(lake, table, Lane.FULL, NOW)
        assert first == plan_table(lake, table, "full", NOW) == plan_table(lake, table, Lane.FULL, from_ms(NOW))
        assert (lake.table(table).metadata_location, lake.tables("lake")) == before
        (plan,) = first
        assert plan.snapshot_id == lakes.snapshot(lake)
        assert plan.table_uuid == str(lake.table(table).metadata.table_uuid)

    def test_an_empty_table_has_no_plans(self, lake: Lake, table: str) -> None:
        assert plan_table(lake, table, Lane.FULL, NOW, force=True) == []

    def test_one_plan_per_topic_partition_the_filthiest_first(self, lake: Lake, table: str) -> None:
        append(lake, [row(0, level=3), row(0, partition=1, level=3), row(1), row(1, partition=1), row(0, partition=2)])
        append(lake, [row(2, partition=1, value=b"a large one" * 500)])
        plans = plan_table(lake, table, Lane.FULL, NOW, force=True)
        assert [plan.partition for plan in plans] == [2, 1, 0]

    def test_only_asked_for_partitions_are_planned(self, lake: Lake, table: str) -> None:
        append(lake, [row(0), row(0, partition=1)])
        (plan,) = plan_table(lake, table, Lane.FULL, NOW, scope=Scope(partitions=(TopicPartition("orders", 1),)))
        assert plan.partition == 1

    def test_c21_each_topic_has_its_own_policy(self, lake: Lake, table: str) -> None:
        with lake.table(table).transaction() as transaction:
            transaction.set_properties({"firn.topic.a.b.merge.segments": "2"})
        for offset in range(2):
            append(lake, [row(offset), row(offset, topic="a.b")])
        (plan,) = plan_table(lake, table, Lane.MERGE, NOW)
        assert plan.topic == "a.b"

    def test_c26_a_wrong_property_refuses_the_table(self, lake: Lake, table: str) -> None:
        with lake.table(table).transaction() as transaction:
            transaction.set_properties({"firn.merge.segments": "1"})
        with pytest.raises(RefusedError, match=r"lake\.records: property firn\.merge\.segments is '1'"):
            plan_table(lake, table, Lane.MERGE, NOW)

    def test_lanes_that_are_planned_together_are_as_planned_in_a_run_of_all(self, lake: Lake, table: str) -> None:
        lake.set_properties(
            table, {"firn.merge.segments": "2", "firn.cleanup.policy": "compact,delete", "firn.retention.ms": "30000"}
        )
        for offset in range(5):
            append(lake, [row(offset), row(offset, partition=1)])
        together = plan_lanes(lake, table, NOW)
        assert list(together) == list(Lane)
        assert {lane for lane, work in together.items() if work.plans} == {Lane.RETAIN, Lane.FULL}
        for lane, work in together.items():
            assert work.plans == plan_work(lake, table, lane, NOW, lanes=tuple(Lane)).plans

    def test_the_first_lane_that_is_due(self, lake: Lake, table: str) -> None:
        lake.set_properties(table, {"firn.merge.segments": "2"})
        assert first_due(lake, table, tuple(Lane), NOW) is None
        for offset in range(2):
            append(lake, [row(offset)])
        assert first_due(lake, table, tuple(Lane), NOW) is Lane.FULL
        assert first_due(lake, table, [Lane.RETAIN, Lane.MERGE], NOW) is Lane.MERGE
        assert first_due(lake, table, [Lane.RETAIN, Lane.CLEAN, Lane.TIER], NOW) is None
        with pytest.raises(RefusedError, match=r"lake\.other does not exist"):
            first_due(lake, "lake.other", tuple(Lane), NOW)

    @pytest.mark.usefixtures("table")
    def test_c26_an_unknown_table_is_refused_with_its_neighbours(self, lake: Lake) -> None:
        with pytest.raises(RefusedError, match=r"lake\.other does not exist in catalog lake .*; found: lake\.records"):
            plan_table(lake, "lake.other", Lane.MERGE, NOW)
