"""Requests to erase keys, and how far the table's files were searched for them (C30).

A request never holds a key, only an HMAC-SHA256 of it under the table's secret (`pipeline.erase.digests`).
`pipeline.erase.stored` says where all this is kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from pipeline.lake.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Request:
    """No file may hold a record with this key, in this topic partition, with an offset lower than ``below``.

    Times are epoch milliseconds.
    """

    id: int
    """Rising; the rows of one command share it."""
    topic: str
    partition: int
    below: int
    digest: bytes
    """The key's digest, 32 bytes (`pipeline.erase.digests`)."""
    requested_ms: int
    deadline_ms: int
    expire_history: bool
    """True when older snapshots expire for it, whatever `history.expire.*` says."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the files of one topic partition were searched, on main and on `firn_tombstones`.

    Every file with a sequence number up to ``sequence_number`` was searched for all requests with an id up to
    ``through``, and after the commit none of them holds a record below offset ``before`` that these ask to erase.
    """

    topic: str
    partition: int
    through: int
    before: int | None
    """None: all offsets."""
    sequence_number: int
    """That of the snapshot which the search was planned on."""
    snapshot_id: int
    """Main's snapshot that the commit made."""
    committed: int = 0
    """Lowest sequence number of the commit's snapshots; the commit itself fills it in."""
    log_end_kept: bool = False
    """True when the record at ``before`` is requested but stays, because it is the log end (C4)."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Destroyed:
    """A data file that held records of requested keys and left the table without them.

    ``through`` and ``snapshot_id`` are those of the progress that it belongs to.
    """

    topic: str
    partition: int
    through: int
    snapshot_id: int
    path: str
    bytes: int
    sha256: str
    """Of the file's content, hexadecimal."""
    records: int
    """Number of records that were erased."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The proof that no file of the table held a record that a request means, when it was issued (epoch milliseconds).

    A request may have several: the newest counts.
    """

    request: int
    issued_ms: int
    document: str
    """JSON (`pipeline.prove.certificate`)."""


@dataclass(frozen=True)
class Erasures:
    """Everything that a table knows about erasures."""

    secret: bytes = b""
    """Key of the digests, 32 bytes; empty before the first request."""
    requests: tuple[Request, ...] = ()
    progress: tuple[Progress, ...] = ()
    """The newest of each topic partition."""
    destroyed: tuple[Destroyed, ...] = ()
    certificates: tuple[Certificate, ...] = ()

    def of(self, topic_partition: TopicPartition) -> tuple[Request, ...]:
        """The requests of ``topic_partition``, in the order of their ids."""
        return self._by_partition.get(topic_partition, ())

    def progress_of(self, topic_partition: TopicPartition) -> Progress | None:
        """The progress in ``topic_partition``; None before the first."""
        return self._progress.get(topic_partition)

    def searched_below(self, topic_partition: TopicPartition) -> int:
        """No record at this offset or a higher one was meant by the last search of ``topic_partition``; 0 before it."""
        progress = self.progress_of(topic_partition)
        if progress is None:
            return 0
        end = max((one.below for one in self.of(topic_partition) if one.id <= progress.through), default=0)
        return end if progress.before is None else min(end, progress.before)

    def naming(self, topic_partition: TopicPartition, digest: bytes) -> tuple[Request, ...]:
        """The requests for the key with this ``digest`` in ``topic_partition``."""
        return self._by_key.get((topic_partition, digest), ())

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The topic partitions with requests, sorted."""
        return tuple(sorted(self._by_partition))

    @cached_property
    def _by_id(self) -> dict[int, tuple[Request, ...]]:
        grouped: dict[int, list[Request]] = {}
        for one in self.requests:
            grouped.setdefault(one.id, []).append(one)
        return {number: tuple(grouped[number]) for number in sorted(grouped)}

    @cached_property
    def _by_key(self) -> dict[tuple[TopicPartition, bytes], tuple[Request, ...]]:
        grouped: dict[tuple[TopicPartition, bytes], list[Request]] = {}
        for one in self.requests:
            grouped.setdefault((one.topic_partition, one.digest), []).append(one)
        return {key: tuple(own) for key, own in grouped.items()}

    @cached_property
    def _progress(self) -> dict[TopicPartition, Progress]:
        return {one.topic_partition: one for one in self.progress}

    @cached_property
    def _certificates(self) -> dict[int, Certificate]:
        return {one.request: one for one in sorted(self.certificates, key=lambda one: one.issued_ms)}

    @cached_property
    def _by_partition(self) -> dict[TopicPartition, tuple[Request, ...]]:
        grouped: dict[TopicPartition, list[Request]] = {}
        for one in sorted(self.requests, key=lambda one: one.id):
            grouped.setdefault(one.topic_partition, []).append(one)
        return {topic_partition: tuple(own) for topic_partition, own in grouped.items()}

    def is_done(self, request: Request) -> bool:
        """True when main and `firn_tombstones` were searched for all that ``request`` means, and hold it no more."""
        done = self.progress_of(request.topic_partition)
        return done is not None and done.through >= request.id and (done.before is None or done.before >= request.below)

    def certificate_of(self, request: int) -> Certificate | None:
        """The newest certificate of request ``request``; None without one."""
        return self._certificates.get(request)

    def rows_of(self, request: int) -> tuple[Request, ...]:
        """The rows of request ``request``."""
        return self._by_id.get(request, ())

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of all requests, sorted."""
        return tuple(self._by_id)

    def with_progress(self, progress: Iterable[Progress], destroyed: Iterable[Destroyed] = ()) -> "Erasures":
        """These erasures with new ``progress``, which takes the place of older one of its topic partitions."""
        new = {one.topic_partition: one for one in progress}
        kept = (one for one in self.progress if one.topic_partition not in new)
        return replace(
            self,
            progress=tuple(sorted((*kept, *new.values()), key=lambda one: one.topic_partition)),
            destroyed=(*self.destroyed, *destroyed),
        )
