"""What must hold of the simulated table, whatever arrives."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.plan import Plan, plan_partition
from pipeline.policy import Policy
from pipeline.segments import Segments
from pipeline.segments.segment import RUN, TAIL
from pipeline.sense import Lane, PartitionState
from pipeline.simulate import Contender, Workload, simulate
from pipeline.simulate.arrivals import START_MS, Stream
from pipeline.simulate.table import TOPIC_PARTITION, ModelTable
from tests.support.simulated import policies, workloads

WORKLOADS = workloads(most_partitions=3)
POLICIES = policies(
    min_compaction_lag_ms=st.sampled_from((0, 120_000)),
    segment_bytes=st.sampled_from((20_000, 10**9)),
)


class TestInvariants:
    """Whatever arrives, under whatever policy."""

    @settings(max_examples=15)
    @given(WORKLOADS, POLICIES)
    def test_c24_the_books_balance(self, workload: Workload, policy: Policy) -> None:
        for result in simulate(workload, (Contender("any", policy, leaves_in_place=True),)):
            assert result.books.landed == sum(result.books.records.values())
            assert np.nanmin(result.space, initial=1) >= 1
            assert (result.segments >= 0).all()
            assert (result.lag_ms >= 0).all()

    @settings(max_examples=8)
    @given(WORKLOADS, POLICIES)
    def test_the_same_seed_gives_the_same_figures(self, workload: Workload, policy: Policy) -> None:
        side = Contender("any", policy, leaves_in_place=True)
        ((first,), (again,)) = (simulate(workload, (side,)) for _ in range(2))
        assert first.as_dict() == again.as_dict()

    @settings(max_examples=15)
    @given(WORKLOADS, POLICIES)
    def test_looks_that_are_skipped_would_have_found_nothing(self, workload: Workload, policy: Policy) -> None:
        workload = replace(workload, partitions=1)
        (result,) = simulate(workload, (Contender("any", policy, leaves_in_place=True),))
        stream = workload.stream(0)
        table = ModelTable(stream, leaves_in_place=True)
        written = 0
        for now_ms in result.books.ticks:
            table.land(int(np.searchsorted(stream.landed_ms, now_ms, side="right")))
            for plan in planned(table, policy, int(now_ms)):
                written += sum(segment.bytes for segment in table.apply(plan).added)
        assert result.books.written_bytes.sum() == written
        assert result.books.records["live"] == sum(segment.records for segment in table.segments)

    @settings(max_examples=40)
    @given(WORKLOADS, POLICIES, st.lists(st.tuples(st.sampled_from(Lane), st.integers(0, 40), st.integers(0, 10**6))))
    def test_c3_the_newest_record_of_every_key_is_there(
        self, workload: Workload, policy: Policy, steps: list[tuple[Lane, int, int]]
    ) -> None:
        """Every lane asked for in any order, at any clock: C2, C4, C13, C16 and C9 hold of the model."""
        stream = workload.stream(0)
        table = ModelTable(stream, leaves_in_place=True)
        removed: set[int] = set()
        now_ms = START_MS
        for lane, landing, waiting in steps:
            now_ms += waiting
            table.land(min(stream.segments, table.arrived + landing))
            before = held(table)
            for plan in planned(table, policy, now_ms, (lane,), force=True):
                table.apply(plan)
            removed |= {offset for offset in before - held(table) if is_newest(stream, table, offset)}
            check(stream, table, removed)


def planned(
    table: ModelTable, policy: Policy, now_ms: int, lanes: tuple[Lane, ...] = tuple(Lane), force: bool = False
) -> Iterator[Plan]:
    """The planner's demand on each lane, on what the lanes before have left."""
    for lane in lanes:
        state = PartitionState(TOPIC_PARTITION, table.segments, policy, now_ms)
        segments = Segments("t", "t", 1, {TOPIC_PARTITION: table.segments})
        if plan := plan_partition(lane, segments, state, force):
            yield plan


def held(table: ModelTable) -> set[int]:
    return {int(offset) for segment in table.segments for offset in table.offsets(segment)}


def is_newest(stream: Stream, table: ModelTable, offset: int) -> bool:
    landed = stream.keys[: table.arrived * stream.workload.records_per_segment]
    return bool(offset == np.flatnonzero(landed == landed[offset])[-1])


def check(stream: Stream, table: ModelTable, removed: set[int]) -> None:
    end = table.arrived * stream.workload.records_per_segment
    landed = stream.keys[:end]
    newest = dict(zip(landed.tolist(), range(end), strict=True))
    there = held(table)
    assert {offset for offset in newest.values() if offset not in there} <= removed
    assert all(stream.tombstones[offset] for offset in removed)
    assert not end or end - 1 in there
    for one in table.segments:
        offsets = table.offsets(one)
        assert (one.records, one.base_offset, one.last_offset) == (len(offsets), offsets[0], offsets[-1])
        assert one.tombstones == stream.tombstones[offsets].sum()
        if one.level >= RUN:
            assert len(set(stream.keys[offsets])) == one.records
    tail = [table.offsets(one) for one in table.segments if one.level == TAIL]
    of_tail = stream.keys[np.concatenate(tail)] if tail else stream.keys[:0]
    assert len(set(of_tail)) == len(of_tail)
    assert list(table.segments) == sorted(table.segments, key=lambda one: one.order)
