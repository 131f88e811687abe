"""Lane `full`: cleans the cleanable head together with the tail, or the tail alone, into a new tail (C12, C16)."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

import numpy as np

from firnlake.clock import exact_span, show_span
from firnlake.lanes.answer import ALMOST, Figures, Traits, Waits, Work
from firnlake.lanes.dirty_ratio import dirty_ratio, is_dirty, may_be_dirty
from firnlake.table.policy import LONG_MAX
from firnlake.table.segment import TAIL, UNKNOWN, Bools, Segment
from firnlake.table.state import State
from firnlake_expectations.wording import count


def look(state: State, force: bool) -> Work | Waits:
    """The oldest cleanable segments that fit a plan beside the tail, or the tail alone.

    If a segment is too large for any plan, the segments past it wait (C17).
    """
    if state.tail_is_held:
        return _waits(state, ())
    possible = tuple(takewhile(lambda segment: not state.too_large(segment), state.cleanable))
    dirty = state.budget(state.tail).oldest(possible)
    if force and (dirty or (state.tail and not state.cleanable)):
        reason: str | None = f"forced, dirty ratio {dirty_ratio(state):.3f}"
    else:
        reason = (dirty_reason(state) if dirty else None) or tombstone_reason(state, dirty)
    if reason is None:
        return _waits(state, dirty)
    inputs = tuple(sorted((*dirty, *state.tail), key=lambda segment: segment.order))
    return Work(inputs, reason, beside=_may_come_back(state, dirty))


def _waits(state: State, dirty: Sequence[Segment]) -> Waits:
    if not state.cleanable:
        if state.held:
            return Waits(state.held.rule, f"nothing may be cleaned: segment {state.held.segment} is {state.held.why}")
        stamped = any(segment.first_horizon_ms is not None for segment in state.tail)
        kept = ", and tombstones of the tail are kept until their delete horizon" if stamped else ""
        return Waits("C12", f"the head is empty{kept}")
    if state.tail_is_held:
        return Waits("C10", f"the tail waits: {state.undecided}")
    if not dirty:
        first = state.cleanable[0]
        return Waits("C17", state.too_large(first) or state.excess(first, tail=state.tail))
    ratio, needed = f"dirty ratio {dirty_ratio(state):.3f}", state.policy.min_cleanable_dirty_ratio
    if dirty_ratio(state) > needed:
        few = f"only {count(state.cleanable_bytes, 'dirty byte')}; needed: {state.policy.min_dirty_bytes}"
        return Waits("C12", f"{ratio} > {needed}, but {few} (firn.min.dirty.bytes)")
    return Waits("C12", f"{ratio}, needed: more than {needed}")


def dirty_reason(state: State) -> str | None:
    """Why the cleanable head, which must not be empty, should be cleaned now; None if it can wait.

    Late records below a removed tombstone make the lane due without any threshold, because readers may see a deleted
    value again until these records are cleaned (C9).
    """
    policy = state.policy
    if state.late:
        return f"{count(len(state.late), 'segment')} with offsets below a removed tombstone"
    if is_dirty(state):
        return f"dirty ratio {dirty_ratio(state):.3f} > {policy.min_cleanable_dirty_ratio}"
    oldest = min(segment.oldest_ms for segment in state.cleanable)
    waited = state.now_ms - oldest
    if waited > policy.max_compaction_lag_ms:
        lag = f"max.compaction.lag.ms = {exact_span(policy.max_compaction_lag_ms)}"
        return f"the oldest dirty record has waited {show_span(waited)}, more than {lag}"
    # Before the first full clean, the interval counts from the oldest landing.
    since = last_full_ms(state) if state.tail else min(segment.arrived_ms for segment in state.cleanable)
    if policy.full_interval_ms < 0 or (since is not None and state.now_ms - since <= policy.full_interval_ms):
        return None
    interval = f"full.interval.ms = {exact_span(policy.full_interval_ms)}"
    if since is None:
        return f"no full clean of this tail is known, and {interval} asks for one"
    what = "the last full clean was" if state.tail else "no full clean yet, and the oldest segment landed"
    return f"{what} {show_span(state.now_ms - since)} ago, more than {interval}"


def last_full_ms(state: State) -> int | None:
    """The time of the last full clean, epoch milliseconds; None if the table's history no longer has it.

    Every full clean writes the tail anew, so the commit that added the tail's newest segment was a full clean.
    """
    cleans = (segment.committed_ms for segment in state.tail if segment.by_firn)
    return max((at_ms for at_ms in cleans if at_ms is not None), default=None)


def tombstone_reason(state: State, dirty: Iterable[Segment]) -> str | None:
    """Why expired tombstones make a full clean due, perhaps of the tail alone; None if they do not.

    ``dirty`` are the segments of the head that a full clean would take.
    """
    records = sum(segment.records for segment in state.tail)
    expired = expired_tombstones(state, dirty)
    if not expired or expired <= state.policy.tombstone_fraction * records:
        return None
    return (
        f"{count(expired, 'tombstone')} past the delete horizon among {count(records, 'record')} of the tail, more "
        f"than the allowed fraction of {state.policy.tombstone_fraction}"
    )


def expired_tombstones(state: State, dirty: Iterable[Segment]) -> int:
    """Number of tombstones in the tail that are known to have passed their delete horizon since the last full clean.

    A tombstone that the last full clean found past its horizon stayed for a reason (it is the log end, or older records
    are outside the inputs), and would stay again. Only a new cleanable head lets the next full clean remove the
    tombstone, and other triggers apply to the cleanable head.
    """
    lowest = state.lowest_beside({segment.path for segment in (*dirty, *state.tail)})
    looked_at = last_full_ms(state)
    return sum(
        _expired(segment, state, looked_at if segment.by_firn else None)
        for segment in state.tail
        if lowest is None or segment.base_offset < lowest
    )


def _expired(segment: Segment, state: State, looked_at: int | None) -> int:
    first, last = segment.first_horizon_ms, segment.last_horizon_ms
    if first is None or last is None or not segment.stamped:
        return 0
    horizon = last if last <= state.now_ms else first
    # A clean at the horizon may have stamped the tombstone (delete.retention.ms = 0), so a later clean removes it.
    is_new = looked_at is None or horizon > looked_at or horizon == looked_at < state.now_ms
    if horizon > state.now_ms or not is_new:
        return 0
    # Records without a key may carry a stamp as well, if they landed with it.
    removable = segment.stamped if segment.tombstones is None else min(segment.stamped, segment.tombstones)
    if segment.last_offset >= state.kept_from and removable == segment.records:
        removable -= 1  # one of them must be the log end (C4)
    return removable if horizon == last else min(1, removable)


def _may_come_back(state: State, dirty: Sequence[Segment]) -> tuple[Segment, ...]:
    """The removed tombstones that may be newer than a record of ``dirty``, and would come back then.

    The tail needs no check, because it holds no record that is older than a removed tombstone of its key.
    """
    lowest = min((segment.base_offset for segment in dirty), default=LONG_MAX)
    return tuple(segment for segment in state.removed_tombstones if segment.last_offset > lowest)


def may_stay(segments: Sequence[Segment], clean_below: int | None, now_ms: int) -> frozenset[str]:
    """Paths of those inputs of a full clean, ``segments``, that stay unless one of their keys has a newer record.

    The tail must be older than the other inputs (``Plan.older``), so that no other segment holds an offset of
    it. Metadata alone decides. Such a segment is in the tail, and holds no tombstone that must be stamped or removed
    (C8, C9), no record without a key (C5), and no record that row-level deletes may hide (C27).
    """
    tail = (segment for segment in segments if segment.level == TAIL and segment.records and not segment.row_deletes)
    return frozenset(segment.path for segment in tail if _keeps_all(segment, clean_below, now_ms))


def _keeps_all(segment: Segment, clean_below: int | None, now_ms: int) -> bool:
    if segment.null_keys or segment.tombstones is None:
        return False
    is_clean = clean_below is None or segment.base_offset < clean_below
    if not segment.tombstones or not is_clean:
        return True
    # A segment with unknown horizons counts as a segment whose tombstones have yet to be stamped.
    first = segment.first_horizon_ms
    return segment.stamped >= segment.tombstones and first is not None and first > now_ms


def may_be_due(figures: Figures) -> Bools:
    """[P] True where the head is dirty, old or late enough, or where enough tombstones have passed their horizons."""
    each, fact, head, tail = figures.each, figures.fact, figures.head(), figures.tail
    due = may_be_dirty(figures)
    due |= figures.least(fact("oldest_ms"), head) < figures.before(lambda policy: policy.max_compaction_lag_ms)
    # The last full clean, or the oldest landing where there is no tail; UNKNOWN is long ago.
    last = figures.most(fact("committed_ms"), tail & fact("by_firn"), UNKNOWN)
    arrived = np.where(fact("committed_ms") == UNKNOWN, fact("newest_ms"), fact("committed_ms"))
    since = np.where(figures.number(tail) > 0, last, figures.least(arrived, head))
    due |= since < figures.before(lambda policy: policy.full_interval_ms)
    removed = figures.removed_tombstones.items()
    ends = {owner: max((one.last_offset for one in own), default=-1) for owner, own in removed}
    due |= figures.least(fact("base_offset"), head) < np.array([ends.get(owner, -1) for owner in figures.segments])
    due &= figures.number(head) > 0
    # Damaged metadata may have the last horizon before the first one.
    horizon = np.minimum(fact("first_horizon_ms"), fact("last_horizon_ms"))
    expired = tail & (horizon != UNKNOWN) & figures.have_passed(horizon)
    allowed = each(lambda policy: policy.tombstone_fraction) * figures.total("records", tail)
    due |= figures.total("stamped", expired) > ALMOST * allowed
    return due


TRAITS = Traits("C12", look, may_be_due, level_out=TAIL, cleans=True)
