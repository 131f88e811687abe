"""The search that lane `erase` has to make in a topic partition now, and the obstacles in its way (C30).

A search works in offset order: it erases the requested records below the offset of the first obstacle, and leaves the
others for a later search. Otherwise readers could see an older record of a key again, once a newer one is erased.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from firnlake.lanes.erasure.memory import ErasureMemory
from firnlake.table.budget import excess
from firnlake.table.partition import PartitionState
from firnlake.table.segment import Segment


@dataclass(frozen=True)
class Obstacle:
    """The reason ``why`` no record at ``offset`` or a higher offset can be erased now."""

    offset: int
    rule: str
    """The rule of the contract that forbids the erasure, such as C4."""
    why: str
    until_ms: int | None = None
    """Epoch milliseconds at which the obstacle ends; None if time alone does not end it."""


@dataclass(frozen=True)
class DueSearch:
    """The segments to search, in offset order: ``segments`` on main, and ``beside``, which are removed tombstones."""

    segments: tuple[Segment, ...]
    beside: tuple[Segment, ...]
    before: int | None
    """Only records below this offset may be erased; None if all requested records may."""


def obstacles(state: PartitionState) -> tuple[Obstacle, ...]:
    """The obstacles that keep lane `erase` from requested records, the lowest offset first."""
    own = state.erasing
    if own is None:
        return ()
    relevant = (one for one in _obstacles(state, own) if one.offset < own.below)
    return tuple(sorted(relevant, key=lambda one: one.offset))


def search(state: PartitionState, force: bool = False) -> DueSearch | None:
    """The search that is due in ``state``; None when no search is due, or obstacles block the whole search.

    Requests wait for further requests (``ErasureMemory.due_ms``), unless ``force`` is set or segments landed late.
    """
    own = state.erasing
    if own is None or not (force or own.due_ms is None or state.now_ms >= own.due_ms or late(state)):
        return None
    before = min((one.offset for one in obstacles(state)), default=None)
    main, beside = (_unsearched(some, own, before) for some in (state.segments, state.removed_tombstones))
    if not main and (beside or own.waiting):
        # A plan needs an input, and progress must be recorded even if there is nothing left to search on main.
        main = _any(state, None if beside else before)
    return DueSearch(main, beside, before) if main else None


def late(state: PartitionState) -> tuple[Segment, ...]:
    """Segments that landed after the last search, although they have offsets below its end.

    No other lane may take them before they are searched, because otherwise nobody could tell whether the output of that
    lane was searched.
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
        yield Obstacle(state.undecided.offset, "C10", f"a transaction is not decided: {state.undecided}")
    for segment in state.segments:
        for problem in excess(segment, state.policy):
            yield Obstacle(segment.base_offset, "C18", problem)
    for stray in state.strays:
        yield Obstacle(stray.base_offset, "C20", str(stray))
    if state.kept_from != state.log_end_offset:
        why = (
            f"row-level deletes may hide the log end, offset {state.log_end_offset}, so the highest visible record "
            "must stay"
        )
        yield Obstacle(max(state.kept_from, 0), "C4", why)
    progress = own.progress
    if progress and progress.log_end_kept and progress.before == state.log_end_offset:
        why = (
            f"the requested record at offset {state.log_end_offset} is the log end, and can be erased only after a "
            "newer record has landed"
        )
        yield Obstacle(state.log_end_offset, "C4", why)


def _unsearched(segments: Iterable[Segment], own: ErasureMemory, before: int | None) -> tuple[Segment, ...]:
    end = own.below if before is None else min(own.below, before)
    held = (one for one in segments if one.records and one.base_offset < end)
    return tuple(one for one in held if not _is_searched(one, own, before))


def _is_searched(segment: Segment, own: ErasureMemory, before: int | None) -> bool:
    """True when a search up to offset ``before`` would find nothing in ``segment`` that the last search has left."""
    progress = own.progress
    if progress is None or own.waiting or not own.was_there(segment):
        return False
    if progress.before is None or segment.last_offset < progress.before:
        return True
    return before is not None and before <= progress.before


def _any(state: PartitionState, before: int | None) -> tuple[Segment, ...]:
    """The smallest segment with offsets below ``before``; empty if the whole topic partition is blocked."""
    fit = [one for one in state.segments if not one.row_deletes and (before is None or one.base_offset < before)]
    return (min(fit, key=lambda one: (one.bytes, one.order)),) if fit else ()
