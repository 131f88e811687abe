"""The requests to erase keys of one topic partition, and how far its files were searched for them (C30)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.table import Table

from pipeline.erase.requests import Erasures, Progress, Request
from pipeline.erase.stored import read_erasures
from pipeline.lake.folders import job_of
from pipeline.lake.topic_partition import TopicPartition
from pipeline.segments import Segment

LONGEST_WAIT_MS: Final = 3_600_000
"""Longest wait, in milliseconds, for more requests to be served together."""
SHARE_OF_DEADLINE: Final = 4
"""A request waits no longer than this fraction (one over it) of the time that it allows."""


@dataclass(frozen=True)
class Erasing:
    """What the requests of a topic partition ask of its files. Times are epoch milliseconds."""

    newest: int
    """Id of the newest request."""
    below: int
    """No record at this offset or a higher one is meant by any request."""
    searched_below: int
    """Likewise, by the last search (``progress``); 0 before it."""
    waiting: int
    """Number of requests that ``progress`` does not cover."""
    due_ms: int | None
    """Clock from which these are due; None without one."""
    progress: Progress | None
    sequence_number: int
    """That of the snapshot of main which is looked at."""

    @classmethod
    def of(cls, known: Erasures, place: TopicPartition, sequence_number: int) -> "Erasing":
        """The requests for ``place``, one at least, and their progress.

        ``sequence_number`` is that of main's snapshot.
        """
        own, progress = known.of(place), known.progress_of(place)
        through = progress.through if progress else 0
        waiting = [one for one in own if one.id > through]
        return cls(
            newest=max(one.id for one in own),
            below=max(one.below for one in own),
            searched_below=known.searched_below(place),
            waiting=len(waiting),
            due_ms=min(map(_due_ms, waiting), default=None),
            progress=progress,
            sequence_number=sequence_number,
        )

    def was_there(self, segment: Segment) -> bool:
        """True when ``segment`` was searched as far as the search went, or holds only what Firn wrote of such segments.

        Since the search was published, all other lanes leave alone what landed after it (``searches.late``). What they
        wrote while it was under way may hold something that had landed meanwhile.
        """
        if self.progress is None:
            return False
        if segment.sequence_number <= self.progress.sequence_number:
            return True
        return job_of(segment.path) is not None and segment.sequence_number >= self.progress.committed


def erasing_of(table: Table) -> Mapping[TopicPartition, Erasing]:
    """The topic partitions of ``table`` with requests. Raises RefusedError when the requests can't be read."""
    erasures, snapshot = read_erasures(table), table.current_snapshot()
    number = (snapshot.sequence_number or 0) if snapshot else 0
    return {place: Erasing.of(erasures, place, number) for place in erasures.topic_partitions}


def _due_ms(request: Request) -> int:
    allowed = max(0, request.deadline_ms - request.requested_ms)
    return request.requested_ms + min(LONGEST_WAIT_MS, allowed // SHARE_OF_DEADLINE)
