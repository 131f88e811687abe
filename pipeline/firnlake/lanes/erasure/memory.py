"""The memory of a table's erasures: requests, searches and certificates (C30).

It is a Puffin file, the statistics file of a snapshot of branch `firn_erasures`. Each kind of row has a blob: the
certificates are JSON, the other rows are Arrow streams. A commit changes this branch together with main.

The requests are what people asked for, so the branch's newest snapshot tells them. How far they were served depends on
main's history: after a rollback, an erased key may be visible again. Therefore the progress is that of the snapshot
which belongs to main's history.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

import pyarrow as pa
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.branch_snapshot import BranchChange, BranchSnapshot
from firnlake.iceberg.branches import (
    ERASURES,
    named_on,
    newest_of,
    number_of_main,
)
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.files import job_of
from firnlake.iceberg.side_branches import (
    Blob,
    BranchFile,
    file_of,
    read_puffin,
    rows_as_bytes,
    rows_of,
)
from firnlake.lanes.erasure.requests import Certificate, Destroyed, Erasures, Request, SearchProgress
from firnlake.table.segment import Segment
from firnlake.table.topic_partition import TopicPartition

REQUESTS: Final = "firn-erasure-requests-v1"
PROGRESS: Final = "firn-erasure-progress-v1"
DESTROYED: Final = "firn-erasure-destroyed-v1"
CERTIFICATES: Final = "firn-certificates-v1"
_KEY_OF_DIGESTS: Final = "secret"
"""Name of a property of the blob of requests, whose value is the secret in hexadecimal."""
_LOST: Final = (
    "the requests to erase keys are unknown; allowed: the file that Firn attached (without it, drop the branch and "
    "request the erasures again)"
)


def blobs_of(erasures: Erasures) -> list[Blob]:
    """The blobs that hold ``erasures``."""
    return [
        Blob(REQUESTS, rows_as_bytes(Request, erasures.requests), {_KEY_OF_DIGESTS: erasures.secret.hex()}),
        Blob(PROGRESS, rows_as_bytes(SearchProgress, erasures.progress)),
        Blob(DESTROYED, rows_as_bytes(Destroyed, erasures.destroyed)),
        Blob(CERTIFICATES, json.dumps([asdict(one) for one in erasures.certificates]).encode()),
    ]


def read_erasures(table: Table) -> Erasures:
    """The erasures of ``table``; empty when none was ever requested.

    Raises RefusedError when a file of theirs is gone or unreadable, because then no record may count as erased, and
    UnavailableError when the store does not answer.
    """
    newest, named = _versions(table)
    if newest is None:
        return Erasures()
    erasures = read_erasures_at(table, newest)
    if named == newest:
        return erasures
    served = Erasures() if named is None else read_erasures_at(table, named)
    # Ids begin anew when somebody has dropped the branch; then the secret is another one.
    return replace(erasures, progress=served.progress if served.secret == erasures.secret else ())


def _versions(table: Table) -> tuple[int | None, int | None]:
    """Ids of the snapshots of branch `firn_erasures` that tell the requests and their progress; None if there is none.

    Raises RefusedError as ``newest_of`` does.
    """
    newest = newest_of(table, ERASURES)
    named = named_on(table, ERASURES) if newest else None
    return newest.snapshot_id if newest else None, named.snapshot_id if named else None


def read_erasures_at(table: Table, snapshot_id: int) -> Erasures:
    """The erasures in snapshot ``snapshot_id`` of branch `firn_erasures`; raises the errors of ``read_erasures``."""
    location = file_of(table, snapshot_id)
    if location is None:
        raise RefusedError(
            f"table {'.'.join(table.name())}: snapshot {snapshot_id} of branch {ERASURES} has no statistics file any "
            f"more, so {_LOST}"
        )
    return _read_file(table, location)


def _read_file(table: Table, location: str) -> Erasures:
    subject = f"table {'.'.join(table.name())}: its requests to erase keys"
    blobs = {one.type: one for one in read_puffin(table, location, subject)}
    try:
        return Erasures(
            bytes.fromhex(blobs[REQUESTS].properties[_KEY_OF_DIGESTS]),
            rows_of(Request, blobs[REQUESTS]),
            rows_of(SearchProgress, blobs[PROGRESS]),
            rows_of(Destroyed, blobs[DESTROYED]),
            tuple(Certificate(**one) for one in json.loads(blobs[CERTIFICATES].content)),
        )
    except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise RefusedError(f"{subject} in {location} are not readable: {reason}") from error


class ReadOnce:
    """Reads each version of a table's erasures only once, so that a commit changes the erasures that it checked."""

    def __init__(self) -> None:
        self._held: tuple[tuple[int | None, int | None], Erasures] | None = None

    def of(self, table: Table) -> Erasures:
        """The erasures of ``table``; raises the errors of ``read_erasures``."""
        versions = _versions(table)
        if self._held is None or self._held[0] != versions:
            self._held = versions, read_erasures(table)
        return self._held[1]


Edit = Callable[[Erasures], Erasures]


@dataclass(frozen=True)
class ErasuresChange:
    """A change of branch `firn_erasures`, as part of a commit.

    Every try of the commit calls ``edit`` to make the new erasures from the current ones, so that requests which others
    add meanwhile stay. ``edit`` may raise ConflictError. Progress without ``committed`` gets the sequence number of the
    commit.
    """

    edit: Edit
    known: ReadOnce = field(default_factory=ReadOnce)

    def on(self, branch: str, snapshot_id: int) -> BranchSnapshot:
        """The part of a commit that makes this change on ``branch``, as snapshot ``snapshot_id``."""
        return BranchFile(branch, snapshot_id, "erasures", self._blobs)

    def _blobs(self, target: Table, committed: int) -> list[Blob]:
        new = self.edit(self.known.of(target))
        progress = tuple(one if one.committed else replace(one, committed=committed) for one in new.progress)
        return blobs_of(replace(new, progress=progress))


def change_erasures(lake: Lake, identifier: str, edit: Edit) -> None:
    """Change the erasures of table ``identifier`` in a separate commit, which gives main an empty snapshot.

    There is no commit if ``edit`` changes nothing. ``edit`` may be called several times. Raises the errors of
    ``commit_changes``.
    """
    change = ErasuresChange(edit)

    def changes(current: Table) -> Mapping[str, BranchChange]:
        known = change.known.of(current)
        return {ERASURES: change} if edit(known) != known else {}

    commit_changes(lake, identifier, changes)


LONGEST_WAIT_MS: Final = 3_600_000
"""Longest time, in milliseconds, that a request waits for other requests, so that one search serves all of them."""
SHARE_OF_DEADLINE: Final = 4
"""A request waits no longer than the time between the request and its deadline, divided by this number."""


@dataclass(frozen=True)
class ErasureMemory:
    """The requests of one topic partition, and how far they were served. Times are epoch milliseconds."""

    newest: int
    """Id of the newest request."""
    below: int
    """No request asks to erase a record at this offset or above."""
    searched_below: int
    """The offset below which the last search (``progress``) has searched; 0 before the first search."""
    waiting: int
    """Number of requests (one for each key) that ``progress`` does not cover."""
    due_ms: int | None
    """Clock from which the waiting requests are due; None if none is waiting."""
    progress: SearchProgress | None
    """How far the last search has searched; None before the first search."""
    sequence_number: int
    """Sequence number of main's snapshot."""

    @classmethod
    def of(cls, known: Erasures, place: TopicPartition, sequence_number: int) -> "ErasureMemory":
        """The requests of ``place``, of which there must be at least one, and how far they were served.

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
        """True when the last search covered ``segment``, or covered the segments from which Firn wrote ``segment``.

        The latter holds for all segments that Firn wrote since the search was published, because other lanes take no
        segment that landed after the search (``searches.late``). It does not hold for segments that Firn wrote while
        the search was under way, because they may hold records that had landed meanwhile.
        """
        if self.progress is None:
            return False
        if segment.sequence_number <= self.progress.sequence_number:
            return True
        return job_of(segment.path) is not None and segment.sequence_number >= self.progress.committed


def erasing_of(table: Table) -> Mapping[TopicPartition, ErasureMemory]:
    """The requests of ``table`` by topic partition. Raises RefusedError when the requests can't be read."""
    erasures, number = read_erasures(table), number_of_main(table)
    return {place: ErasureMemory.of(erasures, place, number) for place in erasures.topic_partitions}


def _due_ms(request: Request) -> int:
    allowed = max(0, request.deadline_ms - request.requested_ms)
    return request.requested_ms + min(LONGEST_WAIT_MS, allowed // SHARE_OF_DEADLINE)
