"""What lanes ``tier`` and ``full`` go by: runs of similar size (C15), triggers (C12), tail segments that may stay.

A run is what one cleaning left at level 2. It is known by its data sequence number, which Iceberg gives to every file
of a commit and keeps when manifests are rewritten: no state of Firn's own is needed.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from firnlake.lanes.hiding.memory import NOTHING_COMPARED, HideMemory
from firnlake.table.budget import Budget
from firnlake.table.partition import PartitionState
from firnlake.table.segment import RUN, TAIL, Segment

FEWEST = 2
"""Fewer runs can't become one."""


@dataclass(frozen=True)
class Run:
    """The level-2 segments of one topic partition that one commit added, in offset order."""

    segments: tuple[Segment, ...]
    places: tuple[int, ...]
    """Their positions among all segments of the topic partition that hold a record, in offset order."""

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


def runs(state: PartitionState) -> list[Run]:
    """The runs that can be cleaned whole, by their first segment. One that can't, even in part, is no input at all."""
    cleanable = {segment.path for segment in state.cleanable}
    by_run: dict[int, dict[int, Segment]] = defaultdict(dict)
    for place, segment in enumerate(segment for segment in state.segments if segment.records):
        if segment.level == RUN:
            by_run[segment.sequence_number][place] = segment
    return [
        Run(tuple(own.values()), tuple(own))
        for own in by_run.values()
        if all(
            segment.path in cleanable and not state.too_large(segment) and state.bounds.hold(segment)
            for segment in own.values()
        )
    ]


def similar_runs(state: PartitionState, fewest: int) -> Iterator[tuple[Run, ...]]:
    """Stretches of at least ``fewest`` neighbouring runs of similar size, each as long as it gets, the oldest first.

    Similar: largest ≤ ``tier.size.ratio`` × smallest. No other segment lies between them in offset order.
    """
    every = runs(state)
    for start in range(len(every) - fewest + 1):
        together = _neighbours(_similar(every[start:], state.policy.tier_size_ratio))
        if len(together) >= fewest:
            yield tuple(together)


def fitting_runs(similar: Sequence[Run], budget: Budget) -> tuple[Segment, ...]:
    """The segments of the oldest of ``similar`` that fit the budget, in offset order; empty when fewer than two do."""
    fitting = len(budget.fitting([run.segments for run in similar]))
    taken = _neighbours(similar[:fitting])
    if len(taken) < FEWEST:
        return ()
    return tuple(sorted((segment for run in taken for segment in run.segments), key=lambda segment: segment.order))


def _similar(candidates: Sequence[Run], ratio: float) -> Iterator[Run]:
    """The first of ``candidates``, for as long as the largest is not too large beside the smallest."""
    smallest = largest = candidates[0].bytes
    for run in candidates:
        smallest, largest = min(smallest, run.bytes), max(largest, run.bytes)
        if largest > ratio * smallest:
            return
        yield run


def _neighbours(series: Iterator[Run] | Sequence[Run]) -> list[Run]:
    """The longest start of ``series`` without a gap. Runs over late segments may lie across each other."""
    taken: list[Run] = []
    first, last, held, whole = sys.maxsize, 0, 0, 0
    for run in series:
        taken.append(run)
        first, last, held = min(first, *run.places), max(last, *run.places), held + len(run.places)
        if last - first + 1 == held:
            whole = len(taken)
    return taken[:whole]


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


def hidden_reason(state: PartitionState, taken: Iterable[Segment]) -> str | None:
    """Why a full clean of ``taken`` and the tail should remove what is hidden in one of its segments (C28).

    Landed and merged segments are not asked: their lanes take them by their number, and sooner.
    """
    most = state.policy.hide_max_fraction
    for segment in (*(one for one in taken if one.level == RUN), *state.tail_inputs):
        hidden = state.hide_memory.hidden_in(segment)
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


def may_stay(
    segments: Sequence[Segment], clean_below: int | None, now_ms: int, hide_memory: HideMemory = NOTHING_COMPARED
) -> frozenset[str]:
    """Paths of the ``segments``, inputs of a full clean, that only a newer record of a key could change.

    Metadata decides: no tombstone to be stamped or removed (C8, C9), no record without a key (C5), none that row-level
    deletes may hide (C27; ``hide_memory`` knows where those that may apply hide nothing), no file listed twice, no
    offset that another segment may have as well.
    """
    held = sorted((segment for segment in segments if segment.records), key=lambda segment: segment.order)
    stay = set()
    end = -1
    for place, segment in enumerate(held):
        alone = segment.base_offset > end and (
            place + 1 == len(held) or segment.last_offset < held[place + 1].base_offset
        )
        hides = hide_memory.counted(segment) != 0
        if segment.level == TAIL and alone and not hides and _keeps_all(segment, clean_below, now_ms):
            stay.add(segment.path)
        end = max(end, segment.last_offset)
    return frozenset(stay)


def _keeps_all(segment: Segment, clean_below: int | None, now_ms: int) -> bool:
    if segment.copies > 1 or segment.null_keys or segment.tombstones is None:
        return False
    is_clean = clean_below is None or segment.base_offset < clean_below
    if not segment.tombstones or not is_clean:
        return True
    # Unknown horizons count as none: then all tombstones are still to be stamped.
    first = segment.first_horizon_ms
    return segment.stamped >= segment.tombstones and first is not None and first > now_ms
