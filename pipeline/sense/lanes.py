"""When a lane is due for a topic partition, for which segments, and why (C12 to C16, C19)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from pipeline.segments import Segment
from pipeline.segments.segment import LANDED, MERGED
from pipeline.sense.retention import retention
from pipeline.sense.state import PartitionState


class Lane(StrEnum):
    """One kind of work, in the order in which a run does them."""

    RETAIN = "retain"
    MERGE = "merge"
    CLEAN = "clean"
    FULL = "full"


ANY_POLICY = frozenset({Lane.RETAIN, Lane.MERGE})
"""The lanes that lose no record to a newer one: the others are for topics that are compacted (C19)."""


@dataclass(frozen=True)
class Due:
    """A lane has work: on ``candidates`` (neighbours in offset order, oldest first), because of ``reason``."""

    lane: Lane
    candidates: tuple[Segment, ...]
    reason: str


def due(lane: Lane, state: PartitionState, force: bool = False) -> Due | None:
    """What ``lane`` should take in ``state``, or None when nothing is due or something is in the way (C20).

    ``force`` ignores thresholds, never the rules on what may be cleaned; how long records are kept is such a rule.
    """
    if not state.policy.compacts and lane not in ANY_POLICY:
        return None
    if state.blockers and lane is not Lane.RETAIN:
        return None
    return _CHECKS[lane](state, force)


def _retain(state: PartitionState, _: bool) -> Due | None:
    """C19: segments are past retention. Those without a record go along: nothing else ever takes them."""
    found = retention(state)
    if not found or not found.dropped:
        return None
    empty = tuple(segment for segment in state.segments if not segment.records)
    return Due(Lane.RETAIN, empty + found.dropped, found.reason)


def _merge(state: PartitionState, force: bool) -> Due | None:
    """C13: landed segments next to each other reach the threshold. The lag does not matter: nothing is lost."""
    threshold = 2 if force else state.policy.merge_segments
    for series in _neighbours(state, LANDED):
        waiting = tuple(segment for segment in series if segment.path not in state.active)
        if len(waiting) >= threshold:
            return Due(Lane.MERGE, waiting, f"{len(waiting)} of {state.policy.merge_segments} L0 segments")
    return None


def _clean(state: PartitionState, force: bool) -> Due | None:
    """C14: merged segments next to each other reach the threshold in number, or in bytes beside the tail."""
    cleanable = {segment.path for segment in state.cleanable}
    needed = state.policy.clean_tail_fraction * state.tail_bytes
    for series in _neighbours(state, MERGED):
        waiting = tuple(segment for segment in series if segment.path in cleanable)
        size = sum(segment.bytes for segment in waiting)
        if waiting and (force or len(waiting) >= state.policy.clean_segments):
            return Due(Lane.CLEAN, waiting, f"{len(waiting)} of {state.policy.clean_segments} L1 segments")
        if waiting and state.tail_bytes and size >= needed:
            return Due(
                Lane.CLEAN,
                waiting,
                f"{size} L1 bytes of {needed:.0f} ({state.policy.clean_tail_fraction} of the tail)",
            )
    return None


def _full(state: PartitionState, force: bool) -> Due | None:
    """C12: the dirty ratio is exceeded, or the oldest dirty record has waited for max.compaction.lag.ms.

    Late records below a removed tombstone don't wait for either: until then readers may see a deleted value (C9).
    """
    if state.tail_is_held:
        return None
    dirty = state.cleanable
    if force and (dirty or state.tail):
        return Due(Lane.FULL, dirty, f"forced, dirty ratio {state.dirty_ratio:.3f}")
    if not dirty:
        return None
    if state.late:
        return Due(Lane.FULL, dirty, f"{len(state.late)} segments reach below a removed tombstone")
    policy = state.policy
    if state.dirty_ratio > policy.min_cleanable_dirty_ratio:
        return Due(Lane.FULL, dirty, f"dirty ratio {state.dirty_ratio:.3f} > {policy.min_cleanable_dirty_ratio}")
    waited = state.now_ms - min(segment.oldest_ms for segment in dirty)
    if waited > policy.max_compaction_lag_ms:
        return Due(Lane.FULL, dirty, f"oldest dirty record waited {waited} ms of {policy.max_compaction_lag_ms}")
    return None


_CHECKS: dict[Lane, Callable[[PartitionState, bool], Due | None]] = {
    Lane.RETAIN: _retain,
    Lane.MERGE: _merge,
    Lane.CLEAN: _clean,
    Lane.FULL: _full,
}


def _neighbours(state: PartitionState, level: int) -> Iterator[tuple[Segment, ...]]:
    """Series of segments of ``level`` with no other segment between them in offset order (C17).

    A segment too large for any plan ends a series, so that those past it go on.
    """
    held = [segment for segment in state.segments if segment.records]
    for fits, series in groupby(held, key=lambda segment: segment.level == level and not state.too_large(segment)):
        if fits:
            yield tuple(series)
