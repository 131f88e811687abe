"""When a lane is due for a topic partition, for which segments, and why (C12 to C16, C19, C27)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, takewhile

from firnlake.job.lane import ANY_POLICY, LEVELING, UNBLOCKED, Lane
from firnlake.lanes.cleaning import FEWEST, dirty_reason, fitting_runs, similar_runs, tombstone_reason
from firnlake.lanes.erasure.look import due_segments
from firnlake.lanes.retention import retention
from firnlake.table.budget import Budget, can_be_cleaned_as_one, excess
from firnlake.table.partition import PartitionState
from firnlake.table.segment import LANDED, MERGED, Segment
from firnlake_expectations.wording import count


@dataclass(frozen=True)
class Due:
    """Work that is due for ``lane``, on the segments ``candidates``.

    The candidates of a cleaning are neighbours in offset order, and fit the budgets of a plan together (C17).
    """

    lane: Lane
    candidates: tuple[Segment, ...]
    reason: str
    waiting_segments: int = 0
    """For lane `full`: number of cleanable segments past the candidates, which exceed the budgets of a plan."""
    beside: tuple[Segment, ...] = ()
    """Segments of removed tombstones that the plan reads too, if the lane has chosen some."""
    requests: tuple[str, ...] = ()
    """Ids of the requests that the work serves."""


def due(lane: Lane, state: PartitionState, force: bool = False) -> Due | None:
    """The work that is due for ``lane`` in ``state``; None when nothing is due or something blocks the lane (C20).

    ``force`` ignores thresholds, but never the rules on which records may be removed, such as retention times.
    """
    if not state.policy.compacts and lane not in ANY_POLICY:
        return None
    if state.blockers and lane not in UNBLOCKED:
        return None
    if state.policy.problem and lane is not Lane.CONVERT:
        return None
    work = _CHECKS[lane](state, force)
    return None if work and waits_for_requests(work, state) else work


def waits_for_requests(work: Due, state: PartitionState) -> tuple[Segment, ...]:
    """The segment of ``work`` that only a new request makes known (``Requested.mixed``), if it has one (C30).

    Empty for lanes that do not write levels.
    """
    if work.lane not in LEVELING or state.requested is None:
        return ()
    tail = (*state.tail_inputs, *state.removed_tombstones) if work.lane is Lane.FULL else ()
    return tuple(segment for segment in (*work.candidates, *tail) if segment.path == state.requested.mixed)


def _retain(state: PartitionState, _: bool) -> Due | None:
    """C19: segments are past retention. Segments without a record are dropped too, as no other lane removes them."""
    past = retention(state)
    if not past or not past.dropped:
        return None
    empty = tuple(segment for segment in state.segments if not segment.records)
    return Due(Lane.RETAIN, empty + past.dropped, past.reason)


def _erase(state: PartitionState, force: bool) -> Due | None:
    """C30: segments must be read or rewritten for requests to erase keys."""
    segments, beside = due_segments(state, force)
    asked = state.requested
    if not segments or not asked:
        return None
    reason = f"{count(len(asked.requests), 'request')} to erase keys"
    if asked.holding:
        reason += f", {count(len(asked.holding), 'segment')} known to hold one"
    return Due(Lane.ERASE, segments, reason, beside=beside, requests=asked.requests)


def _convert(state: PartitionState, force: bool) -> Due | None:
    """C27: many equality delete files apply to a segment, or some such files hold up the other lanes."""
    reached = tuple(one for one in state.segments if one.equality_deletes)
    most = max((one.equality_deletes for one in reached), default=0)
    holds = any(one.holding_deletes for one in reached)
    needed = 1 if force or holds else state.policy.convert_equality_deletes
    if most < needed or any(excess(one, state.policy) for one in reached):
        return None
    return Due(Lane.CONVERT, reached, f"{most} of {count(needed, 'equality delete file')}")


def _merge(state: PartitionState, force: bool) -> Due | None:
    """C13: the number of neighbouring landed segments reaches the threshold.

    Compaction lags don't matter, because a merge keeps every record.
    """
    whole = state.policy.merge_segments
    threshold = 2 if force else whole

    def waits(segment: Segment) -> bool:
        return segment.path not in state.active and not excess(segment, state.policy) and state.bounds.hold(segment)

    for waiting in _neighbours(state, LANDED, waits):
        # If the oldest segments are too large together, the lane takes later ones.
        for start in range(len(waiting) - threshold + 1):
            candidates = _groups(waiting, start, state, force)
            if candidates:
                return Due(Lane.MERGE, candidates, f"{len(waiting)} of {count(whole, 'L0 segment')}")
    return None


def _groups(waiting: tuple[Segment, ...], start: int, state: PartitionState, force: bool) -> tuple[Segment, ...]:
    """The segments of those groups that fit a plan together; the first group starts at ``start`` in ``waiting``.

    A group has ``merge.segments`` segments. The segments of an incomplete group wait for later neighbours, unless
    ``force`` is set, so that every L1 segment is merged from the same number of L0 segments (C13).
    """
    whole = state.policy.merge_segments
    groups = (waiting[first : first + whole] for first in range(start, len(waiting), whole))
    possible = takewhile(
        lambda group: (force or len(group) == whole) and can_be_cleaned_as_one(group, state.policy), groups
    )
    taken = Budget.of_copies(state.policy).fitting(possible)
    return tuple(segment for group in taken for segment in group)


def _clean(state: PartitionState, force: bool) -> Due | None:
    """C14: neighbouring merged segments reach the threshold in number, or in bytes compared with the tail."""
    cleanable = {segment.path for segment in state.cleanable}
    needed = state.policy.clean_tail_fraction * state.tail_bytes

    def waits(segment: Segment) -> bool:
        return segment.path in cleanable and not state.too_large(segment) and state.bounds.hold(segment)

    for waiting in _neighbours(state, MERGED, waits):
        size = sum(segment.data_bytes for segment in waiting)
        whole = state.policy.clean_segments
        if force or len(waiting) >= whole:
            reason = f"{len(waiting)} of {count(whole, 'L1 segment')}"
            return Due(Lane.CLEAN, _fitting(waiting, state), reason)
        if state.tail_bytes and size >= needed:
            return Due(
                Lane.CLEAN,
                _fitting(waiting, state),
                f"{size} of {needed:.0f} L1 bytes ({state.policy.clean_tail_fraction} of the tail)",
            )
    return None


def _tier(state: PartitionState, force: bool) -> Due | None:
    """C15: neighbouring runs are similar in size, and there are enough of them."""
    wanted = state.policy.tier_runs
    for similar in similar_runs(state, FEWEST if force else wanted):
        candidates = fitting_runs(similar, Budget.of(state.policy))
        if candidates:
            return Due(Lane.TIER, candidates, f"{len(similar)} of {wanted} runs of similar size")
    return None


def _full(state: PartitionState, force: bool) -> Due | None:
    """C12, C16: cleans the cleanable head together with the tail, or the tail alone if no segment of the head fits.

    If a segment is too large for any plan, the segments past it wait (C17).
    """
    if state.tail_is_held:
        return None
    possible = _possible(state.cleanable, state)
    dirty = _fitting(possible, state, state.tail_inputs)
    waiting_segments = len(possible) - len(dirty)
    if force and (dirty or (state.tail_inputs and not state.cleanable)):
        return Due(Lane.FULL, dirty, f"forced, dirty ratio {state.dirty_ratio:.3f}", waiting_segments)
    outside = state.head[len(dirty) :]
    reason = (dirty_reason(state) if dirty else None) or tombstone_reason(state, outside)
    return Due(Lane.FULL, dirty, reason, waiting_segments) if reason else None


_CHECKS: dict[Lane, Callable[[PartitionState, bool], Due | None]] = {
    Lane.RETAIN: _retain,
    Lane.ERASE: _erase,
    Lane.CONVERT: _convert,
    Lane.MERGE: _merge,
    Lane.CLEAN: _clean,
    Lane.TIER: _tier,
    Lane.FULL: _full,
}


def _possible(candidates: tuple[Segment, ...], state: PartitionState) -> tuple[Segment, ...]:
    """The oldest candidates, up to the first that is too large for any cleaning."""
    return tuple(takewhile(lambda segment: not state.too_large(segment), candidates))


def _fitting(
    candidates: tuple[Segment, ...], state: PartitionState, tail: tuple[Segment, ...] = ()
) -> tuple[Segment, ...]:
    """The oldest candidates that fit the budgets of one cleaning together with the segments of ``tail``."""
    budget = Budget.of(state.policy, tail)
    return tuple(segment for (segment,) in budget.fitting([(segment,) for segment in candidates]))


def _neighbours(
    state: PartitionState, level: int, possible: Callable[[Segment], bool]
) -> Iterator[tuple[Segment, ...]]:
    """Series of ``possible`` segments of ``level`` with no other segment between them in offset order (C17).

    A segment that is too large for any plan ends a series; the segments past it form the next series.
    """
    held = [segment for segment in state.segments if segment.records]
    for fits, series in groupby(held, key=lambda segment: segment.level == level and possible(segment)):
        if fits:
            yield tuple(series)
