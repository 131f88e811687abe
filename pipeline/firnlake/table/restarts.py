"""Offsets that restart: a topic was made again, or a mirror takes over, and its records begin at lower offsets (C33).

Such records would count as late and go as superseded, although they are newer. In a log, a record at a lower offset is
not newer than one at a higher offset. So a landed segment is suspected if it begins at or below the end of what landed
before it, and all of its records are more than an hour newer. Its topic then waits, until people say that these records
are late (``firn.offsets.restart``); a topic that was made again belongs in a new table, or under a new name.

Metadata can't tell a first segment with both repeated and new records, a topic that was made again within the hour, or
one whose former records have timestamps in the future and were rewritten since.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final

import numpy as np

from firnlake.clock import show_ms
from firnlake.iceberg.files import job_of
from firnlake.table.policy import LONG_MAX, Policies
from firnlake.table.segment import LANDED, Segment, Segments

_APART_MS: Final = 3_600_000
"""Time by which the records of an earlier offset may be newer, because producers' clocks differ."""


def restarted(segments: Segments, policies: Policies) -> Mapping[str, str]:
    """Why topics of ``segments`` seem to have restarted, in one of their partitions or more, and what is allowed, by
    topic."""
    owner = np.repeat(np.arange(len(segments)), np.diff(segments.starts))
    landed = np.where(segments.fact("level") == LANDED, segments.fact("sequence_number"), 0)
    # Few topic partitions have landed out of offset order, or with overlaps.
    disorder = (landed[1:] < landed[:-1]) | (segments.fact("base_offset")[1:] <= segments.fact("last_offset")[:-1])
    first: dict[str, str] = {}
    for place in np.unique(owner[1:][disorder & (owner[1:] == owner[:-1])]).tolist():
        topic = segments.owners[place].topic
        late_through = policies.of(topic).late_through
        if topic not in first and late_through < LONG_MAX:
            newest = int(segments.fact("sequence_number").max())
            if restart := _restart_in(segments.at(place), late_through, newest):
                first[topic] = restart
    return first


def _restart_in(segments: Iterable[Segment], late_through: int, newest: int) -> str | None:
    """Why the topic of ``segments``, which are of one topic partition, seems to have restarted; None if it doesn't.

    Segments with a sequence number up to ``late_through`` hold late data; ``newest`` is the highest sequence number in
    the table. Firn's own segments count as landed before all others.
    """
    filled = [one for one in segments if one.records and one.base_offset >= 0]
    end = newest_ms = -1
    # Segments of one commit are no evidence about each other.
    for landed, batch in groupby(sorted(filled, key=_landing), key=_landing):
        together = list(batch)
        for one in together if landed > late_through else ():
            oldest_ms = _at_landing(one.oldest_ms, one)
            if one.base_offset <= end and 0 <= newest_ms < oldest_ms - _APART_MS:
                topic = one.topic_partition.topic
                return (
                    f"topic {topic}: segment {one} landed after offset {end}, but its oldest record "
                    f"({show_ms(oldest_ms)}) is more than an hour newer than all that had landed "
                    f"({show_ms(newest_ms)}), as if the topic was made again; allowed: `firn config set TABLE "
                    f"offsets.restart=late:{newest} --topic {topic}` if the records are late; if the topic was made "
                    "again, a new table, or a new name of the topic"
                )
        end = max(end, *(one.last_offset for one in together))
        newest_ms = max(newest_ms, *map(_newest_ms, together))
    return None


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
