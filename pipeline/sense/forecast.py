"""When a lane will be due if nothing is written: by the clock alone (C11, C12, C19)."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import accumulate

from pipeline.policy.policy import LONG_MAX
from pipeline.sense.comparing import landed_ms
from pipeline.sense.lanes import Lane, due
from pipeline.sense.retention import aged_from_ms
from pipeline.sense.state import PartitionState
from pipeline.sense.triggers import last_full_ms


def due_at(state: PartitionState, lanes: Collection[Lane] = tuple(Lane)) -> int | None:
    """The earliest clock, epoch milliseconds, from the state's own on at which one of ``lanes`` is due.

    None when only new data can make one due, or something is in the way.

    Time only ever adds to what is cleanable and past its limit, so that what is due stays due: among the few clocks at
    which anything changes a binary search finds the first.
    """
    return state.now_ms if _is_due(state, lanes) else due_later(state, lanes)


def due_later(state: PartitionState, lanes: Collection[Lane] = tuple(Lane)) -> int | None:
    """As ``due_at``, where none of ``lanes`` is due at the state's own clock."""
    if state.blockers:
        return None
    clocks = sorted({clock for clock in _turning_points(state) if state.now_ms < clock <= LONG_MAX})
    # False sorts before True: left of 1 lie the clocks at which nothing is due.
    first = bisect_left(clocks, 1, key=lambda clock: _is_due(replace(state, now_ms=clock), lanes))
    return clocks[first] if first < len(clocks) else None


def _is_due(state: PartitionState, lanes: Collection[Lane]) -> bool:
    # `full` first: it is what mostly becomes due by the clock alone, and the others need not be asked then.
    return any(due(lane, state) for lane in sorted(lanes, key=lambda lane: lane is not Lane.FULL))


def _turning_points(state: PartitionState) -> Iterator[int]:
    """Every clock at which a limit of time is passed."""
    policy = state.policy
    newest = _extremes(max, (segment.newest_ms for segment in state.head))
    oldest = _extremes(min, (segment.oldest_ms for segment in state.head))
    # A segment holds those past it as well, so only one that is younger than all before it changes anything.
    yield from (clock + policy.min_compaction_lag_ms for clock in newest)
    yield from (clock + policy.max_compaction_lag_ms + 1 for clock in oldest)
    if policy.full_interval_ms >= 0:
        last = last_full_ms(state)
        since = oldest if last is None else {last}
        yield from (clock + policy.full_interval_ms + 1 for clock in since)
    if state.erasing and state.erasing.due_ms is not None:
        yield state.erasing.due_ms
    if policy.masks:
        yield from (landed_ms(segment) + policy.mask_max_lag_ms for segment in state.segments)
    if policy.deletes and policy.retention_ms >= 0:
        times = (aged_from_ms(segment) for segment in state.segments)
        yield from (time + policy.retention_ms + 1 for time in times if time is not None)
    for segment in state.tail:
        for horizon in (segment.first_horizon_ms, segment.last_horizon_ms):
            if horizon is not None:
                yield from (horizon, horizon + 1)


def _extremes(choose: Callable[[int, int], int], clocks: Iterable[int]) -> set[int]:
    return set(accumulate(clocks, choose))
