"""The time since which a lane has been due, from the commits of the segments that crossed its threshold.

The thresholds are those of ``lanes`` and ``triggers``, put to segments in the order of their arrival.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from pipeline.segments import Segment
from pipeline.segments.segment import TAIL
from pipeline.sense.comparing import comparison, due_from_ms
from pipeline.sense.lanes import Lane
from pipeline.sense.searches import late
from pipeline.sense.state import PartitionState
from pipeline.sense.triggers import last_full_ms


def due_since(lane: Lane, state: PartitionState, inputs: Sequence[Segment]) -> int:
    """Time since which ``lane`` has been due for ``inputs``, epoch milliseconds, by the commits that added them.

    Inputs that cross no threshold, because a budget left out the rest, count from the arrival of the last one.
    """
    clocks = [clock for clock in _DUE_SINCE[lane](state, inputs) if clock is not None]
    return min(clocks) if clocks else max(map(arrived_ms, inputs))


def arrived_ms(segment: Segment) -> int:
    """Arrival time of ``segment``: its commit's, or its newest timestamp where the snapshot has expired."""
    return segment.newest_ms if segment.committed_ms is None else segment.committed_ms


def _crossed(
    inputs: Iterable[Segment], enough: Callable[[int], bool], size: Callable[[Segment], int] = lambda _: 1
) -> int | None:
    """Time at which the sizes of ``inputs``, in order of arrival, reached ``enough``; None when they don't."""
    total = 0
    for segment in sorted(inputs, key=arrived_ms):
        total += size(segment)
        if enough(total):
            return arrived_ms(segment)
    return None


def _bytes(segment: Segment) -> int:
    return segment.bytes


def _erase_since(state: PartitionState, _inputs: Sequence[Segment]) -> Iterator[int | None]:
    yield state.erasing.due_ms if state.erasing else None
    yield from map(arrived_ms, late(state))


def _mask_since(state: PartitionState, _inputs: Sequence[Segment]) -> Iterator[int | None]:
    due = comparison(state)
    yield due_from_ms(state, due) if due else None


def _lighten_since(_state: PartitionState, inputs: Sequence[Segment]) -> Iterator[int | None]:
    # Of a delete file only its snapshot tells when it landed: surely after the segments that it reaches.
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
    new = [segment for segment in head if not state.masking.knows(segment)]
    dirty = state.dirty_bytes - sum(map(_bytes, new))
    rest = state.tail_bytes + sum(map(_bytes, head)) - sum(map(_bytes, new))
    yield _crossed(new, lambda size: dirty + size > policy.min_cleanable_dirty_ratio * (rest + size), _bytes)
    if head and policy.full_interval_ms >= 0:
        # Nothing was due before there was anything to clean.
        since = last_full_ms(state) if state.tail else min(segment.oldest_ms for segment in head)
        clock = max((since or 0) + policy.full_interval_ms, min(map(arrived_ms, head)))
        yield clock if clock <= state.now_ms else None
    if not head:
        yield min((one.first_horizon_ms for one in inputs if one.first_horizon_ms is not None), default=None)


def _nothing(_state: PartitionState, _inputs: Sequence[Segment]) -> Iterator[int | None]:
    """Yield nothing: lane `retain` counts in no budget, so none of its plans wait."""
    yield None


_DUE_SINCE: Final[dict[Lane, Callable[[PartitionState, Sequence[Segment]], Iterator[int | None]]]] = {
    Lane.RETAIN: _nothing,
    Lane.ERASE: _erase_since,
    Lane.MASK: _mask_since,
    Lane.LIGHTEN: _lighten_since,
    Lane.MERGE: _merge_since,
    Lane.CLEAN: _clean_since,
    Lane.TIER: _tier_since,
    Lane.FULL: _full_since,
}
