"""The order of work: which plans of a run come first, from metadata and the clock alone.

1. What is overdue, the longest first: topic partitions past ``max.compaction.lag.ms``, those with records below a
   removed tombstone (readers may see a deleted value, C9), and those that have been due for longer than
   ``run.max.wait.ms``. The time before the lane worked on a topic partition last does not count. So nothing starves:
   what is overdue is preceded only by what was overdue earlier, and what was worked on goes to the back.
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
"""The levels that tell when a lane worked on a topic partition last. A run may have taken the merged segments in since.
Runs don't tell it of `tier`, because `clean` makes them as well: it always waits for as many new ones."""


class Rank(NamedTuple):
    """Where a plan stands: the smallest goes first."""

    in_time: bool
    overdue_since_ms: int
    """0 for what is in time."""
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

    What holds one record per key is one group: the tail, and each run. A landed or merged segment is one as well, where
    metadata does not tell its distinct keys. The estimate is the best case, that the largest group has all the keys:
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
    """Since when ``lane`` has been due for ``inputs``, epoch milliseconds, as the commits that brought them tell.

    Inputs that cross no threshold, because a budget left out what would, count from when they were all there.
    """
    clocks = [clock for clock in _DUE_SINCE[lane](state, inputs) if clock is not None]
    return min(clocks) if clocks else max(map(_arrived_ms, inputs))


def _limit_ms(lane: Lane, state: PartitionState, inputs: Sequence[Segment]) -> int:
    """The clock past which the plan is overdue."""
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
    """When ``segment`` came in; by its newest timestamp where the table has forgotten the commit."""
    return segment.newest_ms if segment.committed_ms is None else segment.committed_ms


def _crossed(
    inputs: Iterable[Segment], enough: Callable[[int], bool], size: Callable[[Segment], int] = lambda _: 1
) -> int | None:
    """When the sizes of ``inputs``, which came one after the other, made ``enough``; None when they don't."""
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
        # It was not due before there was anything to clean.
        since = last_full_ms(state) if state.tail else min(segment.oldest_ms for segment in head)
        clock = max((since or 0) + policy.full_interval_ms, min(map(_arrived_ms, head)))
        yield clock if clock <= state.now_ms else None
    if not head:
        yield min((one.first_horizon_ms for one in inputs if one.first_horizon_ms is not None), default=None)


def _nothing(_state: PartitionState, _inputs: Sequence[Segment]) -> Iterator[int | None]:
    """Lane `retain` is not counted in budgets: nothing waits for its turn."""
    yield None


_DUE_SINCE: Final[dict[Lane, Callable[[PartitionState, Sequence[Segment]], Iterator[int | None]]]] = {
    Lane.RETAIN: _nothing,
    Lane.MERGE: _merge_since,
    Lane.CLEAN: _clean_since,
    Lane.TIER: _tier_since,
    Lane.FULL: _full_since,
}
