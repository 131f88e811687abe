"""Retention of a topic partition: drops whole segments, a prefix in offset order, from metadata alone (C19)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pipeline.segments import Segment
from pipeline.sense.state import PartitionState


class Limit(StrEnum):
    """The config because of which a segment may go."""

    AGE = "retention.ms"
    SIZE = "retention.bytes"


@dataclass(frozen=True)
class Retention:
    """``dropped`` may go, oldest first, for ``reason``; ``kept`` says which is the next one and what keeps it.

    ``dropped`` and ``reason`` are empty when nothing may go, ``kept`` without a record.
    """

    dropped: tuple[Segment, ...]
    reason: str
    kept: str


def retention(state: PartitionState) -> Retention | None:
    """The decision of retention on ``state``; None under a policy that does not delete.

    A segment may go when its newest record (``aged_from_ms``) is more than retention.ms old, or when what remains
    without it is still at least retention.bytes (Kafka's ``deleteRetentionMsBreachedSegments``,
    ``deleteRetentionSizeBreachedSegments``). The first that may not go ends the prefix and keeps what overlaps it: a
    segment goes only if every one that stays starts past its last offset, else an older value could come to light.

    Row-level deletes on what goes are no obstacle, as they are to a cleaning: their rows go as well.
    """
    if not state.policy.deletes:
        return None
    held = [segment for segment in state.segments if segment.records]
    left = sum(segment.bytes for segment in held)
    causes: list[Limit] = []
    whole = 0
    reach = -1
    for segment in held:
        if segment.base_offset > reach:
            whole = len(causes)
        left -= segment.bytes
        obstacle = _obstacle(state, segment)
        cause = None if obstacle else _cause(state, segment, left)
        if not cause:
            return Retention(
                dropped=tuple(held[:whole]),
                reason=_reason(state, causes[:whole]),
                kept=_kept(held[whole], segment, obstacle or _waiting(state, segment, left)),
            )
        causes.append(cause)
        reach = max(reach, segment.last_offset)
    return Retention((), "", "")


def aged_from_ms(segment: Segment) -> int | None:
    """The clock, epoch milliseconds, from which the age of the newest record in ``segment`` counts; None: unknown.

    A record without a timestamp (-1; Kafka takes all before the epoch for that) counts from its landing: the later of
    the commit that added its file and the file's time of writing, as far as they are known. Kafka falls back to the
    time of its file (LogSegment.largestTimestamp). A rewrite is a later landing: nothing goes too early (C19).
    """
    if segment.oldest_ms >= 0:
        return segment.newest_ms
    landed = [time for time in (segment.committed_ms, segment.written_ms) if time is not None]
    return max(segment.newest_ms, *landed) if landed else None


def _obstacle(state: PartitionState, segment: Segment) -> str | None:
    """Why ``segment`` stays whatever its age and size; None when nothing holds it."""
    if segment.problem:
        # Without offsets it comes first, so nothing goes: it may hold records older than any other.
        return segment.problem
    for stray in state.strays:
        if segment.last_offset >= stray.base_offset:
            return f"segment {stray.path} may hold records from offset {stray.base_offset} on"
    if segment.last_offset >= state.kept_from:
        return "it may hold the log end" if segment.row_deletes else "it holds the log end"
    if segment.path in state.active:
        return f"it is among the newest landed segments (firn.active.segments={state.policy.active_segments})"
    return None


def _cause(state: PartitionState, segment: Segment, left: int) -> Limit | None:
    """By which config ``segment`` may go when ``left`` bytes remain without it."""
    since = aged_from_ms(segment)
    if since is not None and 0 <= state.policy.retention_ms < state.now_ms - since:
        return Limit.AGE
    return Limit.SIZE if 0 <= state.policy.retention_bytes <= left else None


def _reason(state: PartitionState, causes: Sequence[Limit]) -> str:
    """The limits that were crossed, and by how much."""
    policy = state.policy
    aged, oversize = causes.count(Limit.AGE), causes.count(Limit.SIZE)
    parts = [f"{aged} segments older than {Limit.AGE} {policy.retention_ms}"] if aged else []
    parts += [f"{oversize} segments beyond {Limit.SIZE} {policy.retention_bytes}"] if oversize else []
    return ", ".join(parts)


def _waiting(state: PartitionState, segment: Segment, left: int) -> str:
    """Distance of ``segment`` from its limits. A timestamp in the future keeps it: the text must show that."""
    since = aged_from_ms(segment)
    if since is None:
        moment = "has no timestamp, and neither a snapshot nor the store tells when it landed"
    else:
        age = state.now_ms - since
        moment = f"is {age} ms old" if age >= 0 else f"lies {-age} ms in the future"
    return (
        f"its newest record {moment} ({Limit.AGE} {state.policy.retention_ms}), {left} bytes would remain "
        f"({Limit.SIZE} {state.policy.retention_bytes})"
    )


def _kept(first: Segment, ending: Segment, why: str) -> str:
    """Name the oldest segment that stays, and the one that ends the prefix where that is another."""
    return f"{ending}: {why}" if first is ending else f"{first}: it reaches into {ending}, which stays: {why}"
