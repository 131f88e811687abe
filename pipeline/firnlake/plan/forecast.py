"""Forecast when a lane will be due if nothing is written (C11, C12, C19), and since when a lane has been due."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from firnlake.job.lane import Lane
from firnlake.lanes.cleaning import last_full_ms
from firnlake.lanes.due import due
from firnlake.lanes.retention import aged_from_ms
from firnlake.table.partition import PartitionState
from firnlake.table.policy import LONG_MAX
from firnlake.table.segment import TAIL, Segment


def due_at(state: PartitionState, lanes: Collection[Lane] = tuple(Lane)) -> int | None:
    """The earliest time (epoch milliseconds), not before the state's own clock, at which one of ``lanes`` is due.

    None when only new data can make a lane due, or something blocks the topic partition.

    As time passes, more segments become cleanable or pass a limit, and never fewer, so a lane that is due stays due.
    Therefore a binary search finds the first such time among the few times at which anything changes.
    """
    return state.now_ms if _is_due(state, lanes) else due_later(state, lanes)


def due_later(state: PartitionState, lanes: Collection[Lane]) -> int | None:
    """Like ``due_at``, if none of ``lanes`` is due at the state's own clock."""
    if state.blockers:
        return None
    clocks = sorted({clock for clock in _turning_points(state) if state.now_ms < clock <= LONG_MAX})
    # False sorts before True, so the search finds the first time at which something is due.
    first = bisect_left(clocks, 1, key=lambda clock: _is_due(replace(state, now_ms=clock), lanes))
    return clocks[first] if first < len(clocks) else None


def _is_due(state: PartitionState, lanes: Collection[Lane]) -> bool:
    # Check `full` first: as time passes, `full` is due more often than the other lanes, which then need no check.
    return any(due(lane, state) for lane in sorted(lanes, key=lambda lane: lane is not Lane.FULL))


def _turning_points(state: PartitionState) -> Iterator[int]:
    """Every time at which something in ``state`` passes a time limit."""
    policy = state.policy
    newest = _extremes(max, (segment.newest_ms for segment in state.head))
    oldest = _extremes(min, (segment.oldest_ms for segment in state.head))
    # A segment that is too young holds back all segments after it, so only the extremes so far matter, in offset order.
    yield from (clock + policy.min_compaction_lag_ms for clock in newest)
    yield from (clock + policy.max_compaction_lag_ms + 1 for clock in oldest)
    if policy.full_interval_ms >= 0:
        last = last_full_ms(state)
        since = oldest if last is None else {last}
        yield from (clock + policy.full_interval_ms + 1 for clock in since)
    if state.requested and state.requested.due_ms is not None:
        yield state.requested.due_ms
    if policy.deletes and policy.retention_ms >= 0:
        times = (aged_from_ms(segment) for segment in state.segments)
        yield from (time + policy.retention_ms + 1 for time in times if time is not None)
    for segment in state.tail:
        for horizon in (segment.first_horizon_ms, segment.last_horizon_ms):
            if horizon is not None:
                yield from (horizon, horizon + 1)


def _extremes(choose: Callable[[int, int], int], clocks: Iterable[int]) -> set[int]:
    return set(accumulate(clocks, choose))


def due_since(lane: Lane, state: PartitionState, inputs: Sequence[Segment]) -> int:
    """The time (epoch milliseconds) since which ``lane`` has been due for ``inputs``, by the times of their commits.

    If ``inputs`` cross no threshold, because a budget left out other segments, the arrival of the last input counts.
    """
    clocks = [clock for clock in _DUE_SINCE[lane](state, inputs) if clock is not None]
    return min(clocks) if clocks else max(map(arrived_ms, inputs))


def arrived_ms(segment: Segment) -> int:
    """The arrival time of ``segment``: that of its commit, or its newest timestamp if the snapshot has expired."""
    return segment.newest_ms if segment.committed_ms is None else segment.committed_ms


def _crossed(
    inputs: Iterable[Segment], enough: Callable[[int], bool], size: Callable[[Segment], int] = lambda _: 1
) -> int | None:
    """The arrival of the first of ``inputs`` with which the total size so far is ``enough``; None if it never is."""
    total = 0
    for segment in sorted(inputs, key=arrived_ms):
        total += size(segment)
        if enough(total):
            return arrived_ms(segment)
    return None


def _bytes(segment: Segment) -> int:
    return segment.data_bytes


def _requested_since(state: PartitionState, inputs: Sequence[Segment]) -> Iterator[int | None]:
    # A segment that landed after the request is due since it landed.
    due_ms = state.requested.due_ms if state.requested else None
    yield None if due_ms is None else max(due_ms, min(map(arrived_ms, inputs)))


def _convert_since(_state: PartitionState, inputs: Sequence[Segment]) -> Iterator[int | None]:
    # A delete file landed after the segments to which it applies; the exact time is in its snapshot only.
    yield max(map(arrived_ms, inputs), default=None)


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
    policy = state.policy
    head = [segment for segment in inputs if segment.level != TAIL]
    yield _crossed(head, lambda size: size > policy.min_cleanable_dirty_ratio * (state.tail_bytes + size), _bytes)
    if head and policy.full_interval_ms >= 0:
        # The lane was not due before there was anything to clean.
        since = last_full_ms(state) if state.tail else min(segment.oldest_ms for segment in head)
        clock = max((since or 0) + policy.full_interval_ms, min(map(arrived_ms, head)))
        yield clock if clock <= state.now_ms else None
    if not head:
        yield min((one.first_horizon_ms for one in inputs if one.first_horizon_ms is not None), default=None)


_DUE_SINCE: Final[dict[Lane, Callable[[PartitionState, Sequence[Segment]], Iterator[int | None]]]] = {
    # Lane `retain` has no budget, so none of its plans wait.
    Lane.RETAIN: lambda _state, _inputs: iter(()),
    Lane.ERASE: _requested_since,
    Lane.CONVERT: _convert_since,
    Lane.MERGE: _merge_since,
    Lane.CLEAN: _clean_since,
    Lane.TIER: _tier_since,
    Lane.FULL: _full_since,
}
