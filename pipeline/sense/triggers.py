"""Triggers of lane ``full`` (C12): reasons as sentences, None where there is none."""

from collections.abc import Iterable
from math import inf
from typing import Any

from pipeline.segments import Segment
from pipeline.segments.segment import RUN
from pipeline.sense.state import PartitionState


def dirty_reason(state: PartitionState) -> str | None:
    """Why the cleanable head should not wait any longer; it must not be empty.

    Late records below a removed tombstone wait for no threshold: until then readers may see a deleted value (C9).
    """
    policy = state.policy
    if state.late:
        return f"{len(state.late)} segments reach below a removed tombstone"
    if state.dirty_ratio > policy.min_cleanable_dirty_ratio:
        return f"dirty ratio {state.dirty_ratio:.3f} > {policy.min_cleanable_dirty_ratio}"
    oldest = min(segment.oldest_ms for segment in state.cleanable)
    waited = state.now_ms - oldest
    if waited > policy.max_compaction_lag_ms:
        return f"oldest dirty record waited {waited} ms of {policy.max_compaction_lag_ms}"
    if policy.full_interval_ms < 0:
        return None
    # Before the first full clean the oldest dirty record tells how long none has been.
    since = last_full_ms(state) if state.tail else oldest
    if since is None:
        return f"no complete full clean in the table's history; allowed: one every {policy.full_interval_ms} ms"
    ago = state.now_ms - since
    if ago <= policy.full_interval_ms:
        return None
    told = (
        f"the last full clean is {ago} ms ago"
        if state.tail
        else f"no full clean yet, the oldest record is {ago} ms old"
    )
    return f"{told}, allowed: {policy.full_interval_ms}"


def left_to_full(series: Iterable[Segment], count: int, whole: int, state: PartitionState) -> bool:
    """True when lane ``full`` is so near that another lane should not write ``series`` before it (C13 to C15).

    ``count`` of ``whole`` segments (or runs) wait. What is left is bounded: when more wait than there can be until the
    head has grown to what ``full`` waits for, it does not come (a budget, a failure, a schedule of its own), and the
    lane goes on. All of the head counts, cleanable or not, so that time alone never makes less due.
    """
    size = sum(segment.bytes for segment in series)
    fraction = state.policy.leave_to_full_fraction
    return state.policy.compacts and near_full(count, size, whole, fraction, state.tail_bytes, state.bytes_until_full)


def near_full(count: Any, size: Any, whole: Any, fraction: Any, tail_bytes: Any, bytes_until_full: Any) -> Any:
    """``left_to_full`` in numbers, or in arrays of them. It stays true for fewer segments, and for larger ones."""
    few = count <= whole * (1 + 1 / fraction)
    return (tail_bytes > 0) & (fraction < inf) & few & (size >= fraction * bytes_until_full)


def tombstone_reason(state: PartitionState, left_out: Iterable[Segment]) -> str | None:
    """Why the tail should be cleaned although its head does not ask for it, if need be alone.

    ``left_out`` are the segments of the head that a full clean would not take.
    """
    records = sum(segment.records for segment in state.tail)
    expired = expired_tombstones(state, left_out)
    if not expired or expired <= state.policy.tombstone_fraction * records:
        return None
    return (
        f"{expired} of the tail's {records} records are tombstones past their delete horizon, more than "
        f"{state.policy.tombstone_fraction} of them"
    )


def masked_reason(state: PartitionState, taken: Iterable[Segment]) -> str | None:
    """Why a full clean of ``taken`` and the tail should remove what is hidden in one of its segments (C28).

    Landed and merged segments are not asked: their lanes take them by their number, and sooner.
    """
    most = state.policy.mask_max_fraction
    for segment in (*(one for one in taken if one.level == RUN), *state.tail_inputs):
        hidden = state.masking.hidden_in(segment)
        if hidden > most * segment.records:
            return f"{hidden} of {segment.records} records of {segment.path} are hidden, more than {most} of them"
    return None


def last_full_ms(state: PartitionState) -> int | None:
    """The clock of the last full clean, epoch milliseconds; None when the table has forgotten it.

    Every full clean writes the tail anew, so the commit that added the tail's newest segment was one. One that had no
    room for everything is not the last: the next takes what it left.
    """
    return _newest(segment for segment in state.tail if segment.whole)


def _newest(segments: Iterable[Segment]) -> int | None:
    return max((segment.committed_ms for segment in segments if segment.committed_ms is not None), default=None)


def expired_tombstones(state: PartitionState, left_out: Iterable[Segment]) -> int:
    """Number of the tail's tombstones that are known to have passed their horizon since the last look.

    Those that the last full clean saw past their horizon stayed for a reason (the log end, older data outside), and
    would stay again. What frees them is cleanable head, which has triggers of its own.
    """
    outside = [segment.base_offset for segment in (*left_out, *state.oversized_tail) if segment.records]
    outside += [stray.base_offset for stray in state.strays]
    lowest = min(outside, default=None)
    looked_at = _newest(segment for segment in state.tail if segment.by_firn)
    return sum(
        _expired(segment, state, looked_at if segment.by_firn else None)
        for segment in state.tail_inputs
        if lowest is None or segment.base_offset < lowest
    )


def _expired(segment: Segment, state: PartitionState, looked_at: int | None) -> int:
    def newly(horizon: int) -> bool:
        # A clean at the very horizon may have stamped it (delete.retention.ms = 0): then it is for the next clock.
        return looked_at is None or horizon > looked_at or horizon == looked_at < state.now_ms

    first, last = segment.first_horizon_ms, segment.last_horizon_ms
    if first is None or last is None or not segment.stamped:
        return 0
    if last <= state.now_ms:
        return _removable(segment, state) if newly(last) else 0
    return min(1, _removable(segment, state)) if first <= state.now_ms and newly(first) else 0


def _removable(segment: Segment, state: PartitionState) -> int:
    """Stamped tombstones, without the log end where it must be one of them (C4)."""
    # Records without a key keep whatever stamp they came with.
    stamped = segment.stamped if segment.tombstones is None else min(segment.stamped, segment.tombstones)
    holds_log_end = segment.last_offset >= state.kept_from
    return stamped - 1 if holds_log_end and stamped == segment.records else stamped
