"""The segments of a topic partition that lane `hide` has to compare now, or the reasons why it can't compare (C28).

Segments that were compared with each other before are not compared again; the lane only looks up the keys of the other
segments in them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from firnlake.iceberg.files import job_of
from firnlake.table.budget import Budget
from firnlake.table.partition import PartitionState
from firnlake.table.segment import Segment


@dataclass(frozen=True)
class DueComparison:
    """The ``segments`` to compare, in offset order. Those at ``known`` paths were compared before."""

    segments: tuple[Segment, ...]
    known: frozenset[str]
    before: int | None
    """Segments of the head that begin at this offset or past it are left out; None if none is left out."""

    @property
    def uncompared(self) -> tuple[Segment, ...]:
        """The segments that were not compared yet, which make the comparison due."""
        return tuple(one for one in self.segments if one.path not in self.known)


def obstacles(state: PartitionState) -> tuple[str, ...]:
    """The reasons why lane `hide` leaves the topic partition of ``state`` alone, each with what is allowed.

    Empty when nothing keeps the lane from its work.
    """
    return tuple(_obstacles(state)) if state.policy.hides else ()


def _obstacles(state: PartitionState) -> Iterator[str]:
    policy = state.policy
    if state.tail_bytes > policy.max_input_bytes:
        yield (
            f"{state.topic_partition}: the tail of {state.tail_bytes} bytes is too large for lane hide; allowed: "
            f"{policy.max_input_bytes} (firn.max.input.bytes)"
        )
    for segment in state.oversized_tail:
        yield f"segment {segment} is too large to be compared by lane hide; allowed: {policy.max_input_bytes} bytes"
    for segment in state.segments:
        if segment.copies > 1:
            yield f"segment {segment} is listed {segment.copies} times; allowed for lane hide: once (clean it first)"
    for stray in state.strays:
        yield f"lane hide waits: {stray}"
    if state.tail_is_held:
        yield f"lane hide waits: the tail has records past the first undecided one: {state.undecided}"


def comparison(state: PartitionState) -> DueComparison | None:
    """The comparison that lane `hide` would make in ``state``, whether it is due or not.

    None when all segments are compared already, or when the lane leaves the topic partition alone.
    """
    if not state.policy.hides or obstacles(state):
        return None
    hide_memory = state.hide_memory
    head, before = _possible(state)
    unknown = [one for one in head if not hide_memory.knows(one)]
    fitting = Budget.of(state.policy).fitting([(one,) for one in unknown])
    if len(fitting) < len(unknown):
        # The segments that begin first are compared whatever their size, because otherwise none would be compared.
        first, end = unknown[0].base_offset, unknown[len(fitting)].base_offset
        before = min(
            (one.base_offset for one in unknown if one.base_offset > first and one.base_offset >= end), default=before
        )
        head = [one for one in head if before is None or one.base_offset < before]
    segments = sorted((*head, *(one for one in state.tail if one.records)), key=lambda one: one.order)
    known = frozenset(one.path for one in segments if hide_memory.knows(one))
    return DueComparison(tuple(segments), known, before) if len(known) < len(segments) else None


def _possible(state: PartitionState) -> tuple[Sequence[Segment], int | None]:
    """The head up to the first segment that must be left alone, and its base offset; None if there is no such segment.

    Other segments that begin at the same offset are left out as well, so that the offset alone says which segments were
    compared.
    """
    first = next((one for one in state.cleanable if state.too_large(one)), state.held.segment if state.held else None)
    if first is None:
        return state.head, None
    return [one for one in state.head if one.base_offset < first.base_offset], first.base_offset


def compared_through(state: PartitionState) -> int | None:
    """The offset up to which all segments of ``state`` were compared with each other; None if nothing was compared."""
    held = [one for one in state.segments if one.records]
    first = min((one.base_offset for one in held if not state.hide_memory.knows(one)), default=None)
    through = max((one.last_offset for one in held if first is None or one.last_offset < first), default=None)
    return None if state.hide_memory.compared is None else through


def landed_ms(segment: Segment) -> int:
    """The earliest time, in epoch milliseconds, at which a record of ``segment`` may have landed.

    The records of a segment that Firn wrote landed before Firn wrote it, but not before their oldest timestamp.
    """
    arrived = segment.newest_ms if segment.committed_ms is None else segment.committed_ms
    return arrived if job_of(segment.path) is None else min(arrived, segment.oldest_ms)


def due_from_ms(state: PartitionState, work: DueComparison) -> int:
    """The time, in epoch milliseconds, from which ``work`` is due in ``state``."""
    return min(map(landed_ms, work.uncompared)) + state.policy.hide_max_lag_ms
