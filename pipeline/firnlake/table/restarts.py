"""Offsets that restart: a topic was made again, or a mirror takes over, and its records begin at lower offsets (C33).

Such records would count as late and go as superseded, although they are newer. In a log, a record at a lower offset is
not newer than one at a higher offset. So a landed segment is suspected if it begins at or below the end of what landed
before it, and all of its records are more than an hour newer. Its topic then waits, until people say that these records
are late (``firn.offsets.restart``); a topic that was made again belongs in a new table, or under a new name.

Metadata can't tell a first segment with both repeated and new records, a topic that was made again within the hour, or
one whose former records have timestamps in the future and were rewritten since.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final

from firnlake.clock import show_ms
from firnlake.iceberg.files import job_of
from firnlake.table.segment import LANDED, Segment

_APART_MS: Final = 3_600_000
"""Time by which the records of an earlier offset may be newer, because producers' clocks differ."""


@dataclass(frozen=True)
class Restart:
    """A segment that a restart explains better than late data."""

    segment: Segment
    oldest_ms: int
    """Timestamp of its oldest record, epoch milliseconds."""
    end: int
    """The highest offset of what landed before it."""
    newest_ms: int
    """Timestamp of the newest record of what landed before it, epoch milliseconds."""

    def message(self, newest: int) -> str:
        """The message of the block. ``newest`` is the highest sequence number in the table."""
        topic = self.segment.topic_partition.topic
        return (
            f"topic {topic}: segment {self.segment} landed after offset {self.end}, but its oldest record "
            f"({show_ms(self.oldest_ms)}) is more than an hour newer than all that had landed "
            f"({show_ms(self.newest_ms)}), as if the topic was made again; allowed: "
            f"`firn config set TABLE offsets.restart=late:{newest} --topic {topic}` if the records are late; if the "
            "topic was made again, a new table, or a new name of the topic"
        )


def restarts(segments: Iterable[Segment], late_through: int) -> Iterator[Restart]:
    """The suspected ``segments`` of one topic partition, in the order in which they landed.

    None of them has a sequence number up to ``late_through``. Firn's own segments count as landed before all others.
    """
    known = [one for one in segments if one.records and one.base_offset >= 0]
    end = newest = -1
    # Segments of one commit are no evidence about each other.
    for _, batch in groupby(sorted(known, key=_landing), key=_landing):
        together = list(batch)
        for one in together:
            oldest = _at_landing(one.oldest_ms, one)
            is_younger = 0 <= newest < oldest - _APART_MS
            if is_younger and one.base_offset <= end and late_through < _landing(one):
                yield Restart(one, oldest, end, newest)
        end = max(end, *map(attrgetter("last_offset"), together))
        newest = max(newest, *map(_newest_ms, together))


def _is_rewritten(segment: Segment) -> bool:
    """True when Firn wrote ``segment``; lane `erase` keeps the level of what it rewrites."""
    return segment.level != LANDED or job_of(segment.path) is not None


def _landing(segment: Segment) -> int:
    return 0 if _is_rewritten(segment) else segment.sequence_number


def _newest_ms(segment: Segment) -> int:
    """The newest timestamp, or the time of landing if a record has no timestamp (−1); -1 if neither is known."""
    if segment.oldest_ms < 0:
        return max(segment.newest_ms, _landed_ms(segment) or -1)
    return _at_landing(segment.newest_ms, segment)


def _at_landing(time_ms: int, segment: Segment) -> int:
    """``time_ms``, but no later than ``segment`` landed: no record is from the future."""
    landed = _landed_ms(segment)
    return time_ms if landed is None else min(time_ms, landed)


def _landed_ms(segment: Segment) -> int | None:
    """When ``segment`` landed, epoch milliseconds; None if nobody knows.

    The commits of Firn's own segments tell the clock of a run, which may lie in the past, and others may forge one.
    """
    return None if segment.by_firn or _is_rewritten(segment) else segment.committed_ms
