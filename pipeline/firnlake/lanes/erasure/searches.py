"""What lane `erase` has to search in a topic partition now, and what is in its way (C30).

Everything here goes by offset: a search erases what is requested below the first offset that something blocks, and
leaves the rest for a later one. So no older record of a key shows up again because a newer one was erased before it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from firnlake.lanes.erasure.memory import ErasureMemory
from firnlake.table.budget import excess
from firnlake.table.partition import PartitionState
from firnlake.table.segment import Segment


@dataclass(frozen=True)
class Obstacle:
    """Nothing at ``offset`` or past it can be erased now: by which rule, why, and until when (epoch milliseconds)
    where only the clock decides."""

    offset: int
    rule: str
    why: str
    until_ms: int | None = None


@dataclass(frozen=True)
class DueSearch:
    """The segments to search, in offset order, on main and ``beside`` it (removed tombstones)."""

    segments: tuple[Segment, ...]
    beside: tuple[Segment, ...]
    before: int | None
    """Only records below this offset may be erased; None: all that are requested."""


def obstacles(state: PartitionState) -> tuple[Obstacle, ...]:
    """What keeps lane `erase` from records that a request names, the lowest offset first."""
    own = state.erasing
    if own is None:
        return ()
    relevant = (one for one in _obstacles(state, own) if one.offset < own.below)
    return tuple(sorted(relevant, key=lambda one: one.offset))


def search(state: PartitionState, force: bool = False) -> DueSearch | None:
    """The segments of ``state`` to search; None when nothing is due, or all of it is blocked.

    Requests wait for others for a while (``Erasing.due_ms``), unless ``force``; what landed late waits for nothing.
    """
    own = state.erasing
    if own is None or not (force or own.due_ms is None or state.now_ms >= own.due_ms or late(state)):
        return None
    before = min((one.offset for one in obstacles(state)), default=None)
    main, beside = (_unsearched(some, own, before) for some in (state.segments, state.removed_tombstones))
    if not main and (beside or own.waiting):
        # A plan has an input, and a search that finds nothing is told as well.
        main = _any(state, None if beside else before)
    return DueSearch(main, beside, before) if main else None


def late(state: PartitionState) -> tuple[Segment, ...]:
    """Segments that landed after a search and reach below it: no other lane may take them before they are searched.

    Otherwise nobody could tell whether what that lane writes was searched.
    """
    own = state.erasing
    if own is None:
        return ()
    end = own.searched_below
    return tuple(one for one in state.segments if one.records and one.base_offset < end and not own.was_there(one))


def _obstacles(state: PartitionState, own: ErasureMemory) -> Iterator[Obstacle]:
    if state.held:
        held = state.held
        yield Obstacle(held.segment.base_offset, held.rule, f"segment {held.segment} is {held.why}", held.until_ms)
    if state.undecided:
        yield Obstacle(state.undecided.offset, "C10", f"not decided: {state.undecided}")
    for segment in state.segments:
        for problem in excess(segment, state.policy):
            yield Obstacle(segment.base_offset, "C18", problem)
    for stray in state.strays:
        yield Obstacle(stray.base_offset, "C20", str(stray))
    if state.kept_from != state.log_end_offset:
        why = f"row-level deletes may hide the log end, offset {state.log_end_offset}, and what is next to it stays"
        yield Obstacle(max(state.kept_from, 0), "C4", why)
    progress = own.progress
    if progress and progress.log_end_kept and progress.before == state.log_end_offset:
        why = f"a requested record at offset {state.log_end_offset} is the log end: it goes when a newer one has landed"
        yield Obstacle(state.log_end_offset, "C4", why)


def _unsearched(segments: Iterable[Segment], own: ErasureMemory, before: int | None) -> tuple[Segment, ...]:
    end = own.below if before is None else min(own.below, before)
    held = (one for one in segments if one.records and one.base_offset < end)
    return tuple(one for one in held if not _is_searched(one, own, before))


def _is_searched(segment: Segment, own: ErasureMemory, before: int | None) -> bool:
    """True when a search up to ``before`` would find nothing in ``segment`` that the last one left."""
    progress = own.progress
    if progress is None or own.waiting or not own.was_there(segment):
        return False
    if progress.before is None or segment.last_offset < progress.before:
        return True
    return before is not None and before <= progress.before


def _any(state: PartitionState, before: int | None) -> tuple[Segment, ...]:
    """One segment that reaches below ``before``, the smallest; none where all of the topic partition is blocked."""
    fit = [one for one in state.segments if not one.row_deletes and (before is None or one.base_offset < before)]
    return (min(fit, key=lambda one: (one.bytes, one.order)),) if fit else ()
