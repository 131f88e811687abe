"""Lane `retain`: drops the oldest segments of a topic partition as a whole (C19).

The dropped segments are a prefix in offset order. No data file is read.
"""

from collections import Counter
from typing import Final

import numpy as np

from firnlake.clock import exact_span, show_span
from firnlake.lanes.answer import ALMOST, Figures, Traits, Waits, Work
from firnlake.table.segment import Bools, Segment
from firnlake.table.state import State
from firnlake_expectations.wording import count

AGE: Final = "retention.ms"
SIZE: Final = "retention.bytes"
"""The Kafka configs that allow Firn to drop a segment."""


def look(state: State, _force: bool) -> Work | Waits:
    """The segments past retention, and those without a record, which no other lane removes; or why the oldest stays.

    A segment may be dropped when its newest record (``aged_from_ms``) is more than retention.ms old, or when at least
    retention.bytes remain without the segment (Kafka's ``deleteRetentionMsBreachedSegments``,
    ``deleteRetentionSizeBreachedSegments``). The first segment that may not be dropped ends the prefix. It also keeps
    the older segments that it overlaps: every segment that stays must start past the last offset of all dropped
    segments, because otherwise readers could see an older value again.

    Row-level deletes on a dropped segment are no obstacle, because the records that they hide are dropped as well.
    """
    if not state.policy.deletes:
        return Waits("C19", "the topic has no retention (cleanup.policy = compact)")
    held = [segment for segment in state.segments if segment.records]
    left = sum(segment.bytes for segment in held)
    causes: list[str] = []
    whole = 0
    reach = -1
    for segment in held:
        if segment.base_offset > reach:
            whole = len(causes)
        left -= segment.bytes
        obstacle = _obstacle(state, segment)
        cause = None if obstacle else _cause(state, segment, left)
        if not cause and not whole:
            return Waits("C19", _kept(held[0], segment, obstacle or _waiting(state, segment, left)))
        if not cause:
            empty = tuple(segment for segment in state.segments if not segment.records)
            limits = Counter(causes[:whole]).items()
            reason = ", ".join(f"{count(number, 'segment')} {limit}" for limit, number in limits)
            return Work((*empty, *held[:whole]), reason)
        causes.append(cause)
        reach = max(reach, segment.last_offset)
    return Waits("C19", "the topic partition holds no record")


def aged_from_ms(segment: Segment) -> int | None:
    """The time, epoch milliseconds, from which the age of the newest record in ``segment`` counts; None if unknown.

    The age of a record without a timestamp (-1, or any negative number, as in Kafka) counts from its landing. This
    is the time of the commit that added its file, or the time when the file was written (if both are known, the later
    one). Kafka uses the modification time of its log file instead (LogSegment.largestTimestamp). A rewrite counts as a
    later landing, so no segment is dropped too early (C19).
    """
    if segment.oldest_ms >= 0:
        return segment.newest_ms
    landed = [time for time in (segment.committed_ms, segment.written_ms) if time is not None]
    return max(segment.newest_ms, *landed) if landed else None


def _obstacle(state: State, segment: Segment) -> str | None:
    """Why ``segment`` stays regardless of its age and size; None if only age and size decide."""
    if state.restart:
        return state.restart
    if segment.problem:
        # A segment without known offsets is the first in order, so nothing is dropped: its records may be the oldest.
        return segment.problem
    for stray in state.strays:
        if segment.last_offset >= stray.base_offset:
            return f"segment {stray.path} may hold records from offset {stray.base_offset} on"
    if segment.last_offset >= state.kept_from:
        return "it may hold the log end" if segment.row_deletes else "it holds the log end"
    if segment.path in state.active:
        return f"it is among the newest landed segments (firn.active.segments={state.policy.active_segments})"
    return None


def _cause(state: State, segment: Segment, left: int) -> str | None:
    """The limit past which ``segment`` is, so that it may be dropped and ``left`` bytes remain; None without one."""
    since, policy = aged_from_ms(segment), state.policy
    if since is not None and 0 <= policy.retention_ms < state.now_ms - since:
        return f"older than {AGE} = {exact_span(policy.retention_ms)}"
    return f"beyond {SIZE} = {policy.retention_bytes}" if 0 <= policy.retention_bytes <= left else None


def _waiting(state: State, segment: Segment, left: int) -> str:
    """How far ``segment`` is from its limits. Shows a timestamp in the future, which keeps the segment longer."""
    since = aged_from_ms(segment)
    if since is None:
        moment = "has no timestamp, and neither a snapshot nor the store says when it landed"
    else:
        age = state.now_ms - since
        moment = f"is {show_span(age)} old" if age >= 0 else f"has a timestamp {show_span(-age)} in the future"
    told = [f"its newest record {moment} ({AGE} = {exact_span(state.policy.retention_ms)})"]
    if state.policy.retention_bytes >= 0:
        size = f"{SIZE} = {state.policy.retention_bytes}"
        told.append(f"without this segment, {count(left, 'byte')} would remain ({size})")
    return ", and ".join(told)


def _kept(first: Segment, ending: Segment, why: str) -> str:
    """Message about ``first``, the oldest segment that stays; ``ending`` is the segment that keeps ``first``."""
    return f"{ending}: {why}" if first is ending else f"{first}: it overlaps {ending}, which stays because {why}"


def may_be_due(figures: Figures) -> Bools:
    """[P] True where a segment is old enough, or all together are large enough."""
    limit = figures.each(lambda policy: policy.retention_bytes if policy.retention_bytes >= 0 else np.inf)
    oldest = figures.least(figures.fact("newest_ms"), figures.filled)
    due: Bools = oldest < figures.before(lambda policy: policy.retention_ms)
    due |= figures.total("bytes", figures.filled) >= ALMOST * limit
    return due & (figures.each(lambda policy: policy.deletes) > 0)


TRAITS = Traits("C19", look, may_be_due, writes="nothing", removal="past the retention of its topic")
