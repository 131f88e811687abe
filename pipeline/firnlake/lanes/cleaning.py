"""The rules of lanes `tier` and `full`: runs of similar size (C15), triggers (C12), and tail segments that may stay.

A run consists of the segments that one cleaning wrote at level 2. Their common data sequence number identifies the run:
Iceberg gives that number to every file of a commit, and keeps it when manifests are rewritten, so Firn need not store
which segments form a run.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from firnlake.clock import exact_span, show_span
from firnlake.table.budget import Budget
from firnlake.table.partition import PartitionState
from firnlake.table.segment import RUN, TAIL, Segment
from firnlake_expectations.wording import count

FEWEST = 2
"""The smallest number of runs that can be combined into one."""
SIMILAR: Final = 2.0
"""Runs are of similar size when the largest has at most this many times the bytes of the smallest (WarpStream tiers
files "of similar size"; the figure is Firn's)."""


@dataclass(frozen=True)
class Run:
    """The level-2 segments of one topic partition that one commit added, in offset order."""

    segments: tuple[Segment, ...]
    places: tuple[int, ...]
    """The positions of ``segments`` among all segments of the topic partition that hold a record, in offset order."""

    @property
    def bytes(self) -> int:
        """Bytes of all segments of the run (``Segment.data_bytes``)."""
        return sum(segment.data_bytes for segment in self.segments)


def runs(state: PartitionState) -> list[Run]:
    """The runs of which every segment can be cleaned, in the order of their first segments.

    A run with a segment that can't be cleaned is left out as a whole.
    """
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
    """Series of at least ``fewest`` neighbouring runs of similar size, each as long as possible, the oldest first.

    Runs are similar when the largest has at most ``SIMILAR`` times the bytes of the smallest. They are
    neighbours when no other segment lies between them in offset order.
    """
    every = runs(state)
    for start in range(len(every) - fewest + 1):
        together = _neighbours(_similar(every[start:], SIMILAR))
        if len(together) >= fewest:
            yield tuple(together)


def fitting_runs(similar: Sequence[Run], budget: Budget) -> tuple[Segment, ...]:
    """The segments, in offset order, of the oldest runs in ``similar`` that fit the budget together.

    Empty when fewer than two runs fit.
    """
    fitting = len(budget.fitting([run.segments for run in similar]))
    taken = _neighbours(similar[:fitting])
    if len(taken) < FEWEST:
        return ()
    return tuple(sorted((segment for run in taken for segment in run.segments), key=lambda segment: segment.order))


def _similar(candidates: Sequence[Run], ratio: float) -> Iterator[Run]:
    """The first ``candidates``, as long as the largest has at most ``ratio`` times the bytes of the smallest."""
    smallest = largest = candidates[0].bytes
    for run in candidates:
        smallest, largest = min(smallest, run.bytes), max(largest, run.bytes)
        if largest > ratio * smallest:
            return
        yield run


def _neighbours(series: Iterator[Run] | Sequence[Run]) -> list[Run]:
    """The longest beginning of ``series`` whose runs have no other segment between them.

    The offset ranges of runs may overlap, because late segments become runs as well.
    """
    taken: list[Run] = []
    first, last, held, whole = sys.maxsize, 0, 0, 0
    for run in series:
        taken.append(run)
        first, last, held = min(first, *run.places), max(last, *run.places), held + len(run.places)
        if last - first + 1 == held:
            whole = len(taken)
    return taken[:whole]


def dirty_reason(state: PartitionState) -> str | None:
    """Why lane ``full`` should clean the cleanable head now; None if it can wait. The cleanable head must not be empty.

    Late records below a removed tombstone make the lane due without any threshold, because readers may see a deleted
    value again until these records are cleaned (C9).
    """
    policy = state.policy
    if state.late:
        return f"{count(len(state.late), 'segment')} with offsets below a removed tombstone"
    if state.dirty_ratio > policy.min_cleanable_dirty_ratio:
        return f"dirty ratio {state.dirty_ratio:.3f} > {policy.min_cleanable_dirty_ratio}"
    oldest = min(segment.oldest_ms for segment in state.cleanable)
    waited = state.now_ms - oldest
    if waited > policy.max_compaction_lag_ms:
        lag = f"max.compaction.lag.ms = {exact_span(policy.max_compaction_lag_ms)}"
        return f"the oldest dirty record has waited {show_span(waited)}, more than {lag}"
    if policy.full_interval_ms < 0:
        return None
    # Before the first full clean, the interval counts from the oldest dirty record.
    since = last_full_ms(state) if state.tail else oldest
    if since is not None and state.now_ms - since <= policy.full_interval_ms:
        return None
    interval = f"full.interval.ms = {exact_span(policy.full_interval_ms)}"
    if since is None:
        return f"no complete full clean in the table's history, and {interval} asks for one"
    ago = show_span(state.now_ms - since)
    told = (
        f"the last full clean was {ago} ago" if state.tail else f"no full clean yet, and the oldest record is {ago} old"
    )
    return f"{told}, more than {interval}"


def tombstone_reason(state: PartitionState, left_out: Iterable[Segment]) -> str | None:
    """Why expired tombstones make a full clean due, perhaps of the tail alone; None if they do not.

    ``left_out`` are the segments of the head that a full clean would not take.
    """
    records = sum(segment.records for segment in state.tail)
    expired = expired_tombstones(state, left_out)
    if not expired or expired <= state.policy.tombstone_fraction * records:
        return None
    return (
        f"{count(expired, 'tombstone')} past the delete horizon among {count(records, 'record')} of the tail, more "
        f"than the allowed fraction of {state.policy.tombstone_fraction}"
    )


def last_full_ms(state: PartitionState) -> int | None:
    """The time of the last complete full clean, epoch milliseconds; None if the table's history no longer has it.

    Every full clean writes the tail anew, so the commit that added the tail's newest segment was a full clean. A full
    clean whose budgets had no room for all cleanable segments is not complete; the next full clean takes the rest.
    """
    return _newest(segment for segment in state.tail if segment.whole)


def _newest(segments: Iterable[Segment]) -> int | None:
    return max((segment.committed_ms for segment in segments if segment.committed_ms is not None), default=None)


def expired_tombstones(state: PartitionState, left_out: Iterable[Segment]) -> int:
    """Number of tombstones in the tail that are known to have passed their delete horizon since the last full clean.

    A tombstone that the last full clean found past its horizon stayed for a reason (it is the log end, or older records
    are outside the inputs), and would stay again. Only a new cleanable head lets the next full clean remove the
    tombstone, and other triggers apply to the cleanable head.
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
        # A clean at the horizon may have stamped the tombstone (delete.retention.ms = 0), so a later clean removes it.
        return looked_at is None or horizon > looked_at or horizon == looked_at < state.now_ms

    first, last = segment.first_horizon_ms, segment.last_horizon_ms
    if first is None or last is None or not segment.stamped:
        return 0
    if last <= state.now_ms:
        return _removable(segment, state) if newly(last) else 0
    return min(1, _removable(segment, state)) if first <= state.now_ms and newly(first) else 0


def _removable(segment: Segment, state: PartitionState) -> int:
    """Number of stamped tombstones in ``segment``, minus 1 if one of them must be the log end (C4)."""
    # Records without a key may carry a stamp as well, if they landed with it.
    stamped = segment.stamped if segment.tombstones is None else min(segment.stamped, segment.tombstones)
    holds_log_end = segment.last_offset >= state.kept_from
    return stamped - 1 if holds_log_end and stamped == segment.records else stamped


def may_stay(segments: Sequence[Segment], clean_below: int | None, now_ms: int) -> frozenset[str]:
    """Paths of those inputs of a full clean, ``segments``, that stay unless one of their keys has a newer record.

    Metadata alone decides. Such a segment is in the tail and is listed once. It holds no tombstone that must be stamped
    or removed (C8, C9), no record without a key (C5), no record that row-level deletes may hide (C27), and no offset
    that another segment may hold as well.
    """
    held = sorted((segment for segment in segments if segment.records), key=lambda segment: segment.order)
    stay = set()
    end = -1
    for place, segment in enumerate(held):
        alone = segment.base_offset > end and (
            place + 1 == len(held) or segment.last_offset < held[place + 1].base_offset
        )
        if segment.level == TAIL and alone and not segment.row_deletes and _keeps_all(segment, clean_below, now_ms):
            stay.add(segment.path)
        end = max(end, segment.last_offset)
    return frozenset(stay)


def _keeps_all(segment: Segment, clean_below: int | None, now_ms: int) -> bool:
    if segment.copies > 1 or segment.null_keys or segment.tombstones is None:
        return False
    is_clean = clean_below is None or segment.base_offset < clean_below
    if not segment.tombstones or not is_clean:
        return True
    # A segment with unknown horizons counts as a segment whose tombstones have yet to be stamped.
    first = segment.first_horizon_ms
    return segment.stamped >= segment.tombstones and first is not None and first > now_ms
