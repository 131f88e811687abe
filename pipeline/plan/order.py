"""The order of work: ranks the plans of a run, by metadata and the clock alone.

1. Overdue plans, the longest overdue first: topic partitions past ``max.compaction.lag.ms``, those with records below
   a removed tombstone (readers may see a deleted value, C9), and those due for longer than ``run.max.wait.ms``. Time
   before the lane's last work on a topic partition does not count. So nothing starves: an overdue plan waits only for
   plans that were overdue earlier, and a topic partition that was worked on goes to the back.
2. The filthiest (C12).
3. The most bytes reclaimed per byte rewritten.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pipeline.plan.plan import Plan
from pipeline.segments import Segment
from pipeline.segments.segment import MERGED, RUN, TAIL
from pipeline.sense import Lane, PartitionState
from pipeline.sense.triggers import last_full_ms

WRITES: Final = {Lane.MERGE: (MERGED, RUN), Lane.CLEAN: (RUN,), Lane.FULL: (TAIL,)}
"""Levels whose segments date a lane's last work on a topic partition. A cleaned run may have absorbed the merged
segments since. Runs do not date `tier`, because `clean` makes them as well: it always waits for as many new ones."""


class Rank(NamedTuple):
    """Rank of a plan; the smallest goes first."""

    in_time: bool
    overdue_since_ms: int
    """Epoch milliseconds; 0 for a plan that is not overdue."""
    minus_dirty_ratio: float
    minus_gain: float
    topic: str
    partition: int


def rank(plan: Plan, state: PartitionState) -> Rank:
    """The rank of ``plan``, which was made from ``state``."""
    inputs = inputs_of(plan, state)
    limit = _limit_ms(plan.lane, state, inputs)
    overdue = limit < state.now_ms
    return Rank(not overdue, limit if overdue else 0, -state.dirty_ratio, -gain(inputs), plan.topic, plan.partition)


def inputs_of(plan: Plan, state: PartitionState) -> list[Segment]:
    """The segments that ``plan`` takes of ``state``."""
    taken = {one.path for one in plan.inputs}
    return [segment for segment in state.segments if segment.path in taken]


def gain(inputs: Sequence[Segment]) -> float:
    """An estimate of the bytes that a cleaning of ``inputs`` reclaims per byte that it writes.

    A group holds one record per key: the tail is one, and each run. A landed or merged segment whose distinct keys are
    unknown counts as one too. The estimate assumes the best case, that the largest group has all the keys:
    (all records - those of the largest) / those of the largest, records being of equal size.
    """
    groups: dict[tuple[int, int | str], int] = {}
    for segment in inputs:
        group: int | str = segment.sequence_number if segment.level == RUN else segment.path
        key = (TAIL, 0) if segment.level == TAIL else (segment.level, group)
        groups[key] = groups.get(key, 0) + (segment.records if segment.keys is None else segment.keys)
    largest = max(groups.values(), default=0)
    return sum(segment.records for segment in inputs) / largest - 1 if largest else 0.0


def due_since(lane: Lane, state: PartitionState, inputs: Sequence[Segment]) -> int:
    """Time since which ``lane`` has been due for ``inputs``, epoch milliseconds, by the commits that added them.

    Inputs that cross no threshold, because a budget left out the rest, count from the arrival of the last one.
    """
    clocks = [clock for clock in _DUE_SINCE[lane](state, inputs) if clock is not None]
    return min(clocks) if clocks else max(map(_arrived_ms, inputs))


def _limit_ms(lane: Lane, state: PartitionState, inputs: Sequence[Segment]) -> int:
    """Clock (epoch milliseconds) past which the plan is overdue."""
    policy = state.policy
    worked = [
        segment.committed_ms
        for segment in state.segments
        if segment.level in WRITES.get(lane, ()) and segment.by_firn and segment.committed_ms is not None
    ]
    last = max(worked, default=0)
    limits = [max(due_since(lane, state, inputs), last) + policy.run_max_wait_ms]
    if state.cleanable:
        oldest = min(segment.oldest_ms for segment in state.cleanable)
        limits.append(max(oldest + policy.max_compaction_lag_ms, last))
    if state.late:
        limits.append(max(min(map(_arrived_ms, state.late)), last))
    return min(limits)


def _arrived_ms(segment: Segment) -> int:
    """Arrival time of ``segment``: its commit's, or its newest timestamp where the snapshot has expired."""
    return segment.newest_ms if segment.committed_ms is None else segment.committed_ms


def _crossed(
    inputs: Iterable[Segment], enough: Callable[[int], bool], size: Callable[[Segment], int] = lambda _: 1
) -> int | None:
    """Time at which the sizes of ``inputs``, in order of arrival, reached ``enough``; None when they don't."""
    total = 0
    for segment in sorted(inputs, key=_arrived_ms):
        total += size(segment)
        if enough(total):
            return _arrived_ms(segment)
    return None


def _bytes(segment: Segment) -> int:
    return segment.bytes


def _merge_since(state: PartitionState, inputs: Sequence[Segment]) -> Iterator[int | None]:
    yield _crossed(inputs, lambda count: count >= state.policy.merge_segments)


def _clean_since(state: PartitionState, inputs: Sequence[Segment]) -> Iterator[int | None]:
    yield _crossed(inputs, lambda count: count >= state.policy.clean_segments)
    needed = state.policy.clean_tail_fraction * state.tail_bytes
    if needed:
        yield _crossed(inputs, lambda size: size >= needed, _bytes)


def _tier_since(state: PartitionState, inputs: Sequence[Segment]) -> Iterator[int | None]:
    runs = {segment.sequence_number: segment for segment in inputs}
    yield _crossed(runs.values(), lambda count: count >= state.policy.tier_runs)


def _full_since(state: PartitionState, inputs: Sequence[Segment]) -> Iterator[int | None]:
    policy, tail = state.policy, state.tail_bytes
    head = [segment for segment in inputs if segment.level != TAIL]
    yield _crossed(head, lambda size: size > policy.min_cleanable_dirty_ratio * (tail + size), _bytes)
    if head and policy.full_interval_ms >= 0:
        # Nothing was due before there was anything to clean.
        since = last_full_ms(state) if state.tail else min(segment.oldest_ms for segment in head)
        clock = max((since or 0) + policy.full_interval_ms, min(map(_arrived_ms, head)))
        yield clock if clock <= state.now_ms else None
    if not head:
        yield min((one.first_horizon_ms for one in inputs if one.first_horizon_ms is not None), default=None)


def _nothing(_state: PartitionState, _inputs: Sequence[Segment]) -> Iterator[int | None]:
    """Yield nothing: lane `retain` counts in no budget, so none of its plans wait."""
    yield None


_DUE_SINCE: Final[dict[Lane, Callable[[PartitionState, Sequence[Segment]], Iterator[int | None]]]] = {
    Lane.RETAIN: _nothing,
    Lane.MERGE: _merge_since,
    Lane.CLEAN: _clean_since,
    Lane.TIER: _tier_since,
    Lane.FULL: _full_since,
}
