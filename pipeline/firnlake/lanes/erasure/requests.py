"""Requests to erase keys, and how far the table's files were searched for them (C30).

A request never holds a key, only the HMAC-SHA256 of the key's bytes under the table's secret. Module ``memory`` says
where the requests are kept.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.keys import bytes_of, joined
from firnlake.table.columns import ColumnRoles
from firnlake.table.key_values import key_value
from firnlake.table.topic_partition import PartitionRow, TopicPartition
from firnlake_expectations.wording import count


@dataclass(frozen=True, slots=True)
class Request:
    """A request to remove, from every file, the records of one key in one topic partition at offsets below ``below``.

    Times are epoch milliseconds.
    """

    id: int
    """Higher than the ids of all earlier requests; all rows of one command have the same id."""
    topic: str
    partition: int
    below: int
    digest: bytes
    """The key's digest, 32 bytes (`digests_of`)."""
    requested_ms: int
    deadline_ms: int
    expire_history: bool
    """True when older snapshots expire for the request, whatever `history.expire.*` says."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic partition of the records to erase."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class SearchProgress(PartitionRow):
    """How far the files of one topic partition were searched, on main and on `firn_tombstones`.

    Every file with a sequence number up to ``sequence_number`` was searched for all requests with an id up to
    ``through``. After the commit, none of these files holds a record below offset ``before`` that these requests ask to
    erase.
    """

    through: int
    before: int | None
    """None if the search covered all offsets."""
    sequence_number: int
    """Sequence number of the snapshot on which the search was planned."""
    snapshot_id: int
    """Id of the snapshot that the commit made on main."""
    committed: int = 0
    """Lowest sequence number of the commit's snapshots; the commit itself fills it in."""
    log_end_kept: bool = False
    """True when the record at ``before`` is requested but stays, because it is the log end (C4)."""


@dataclass(frozen=True, slots=True)
class Destroyed(PartitionRow):
    """A data file that an erasure removed from the table, because it held records of requested keys.

    ``through`` and ``snapshot_id`` are those of the search that found the records (``SearchProgress``).
    """

    through: int
    snapshot_id: int
    path: str
    bytes: int
    sha256: str
    """SHA-256 of the file's content, in hexadecimal."""
    records: int
    """Number of records of the file that were erased."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The proof that, at ``issued_ms`` (epoch milliseconds), no file of the table held a record that a request asks to
    erase.

    A request may have several certificates, of which the newest counts.
    """

    request: int
    issued_ms: int
    document: str
    """The certificate as JSON (`firnlake.lanes.erasure.certificate`)."""


@dataclass(frozen=True)
class Erasures:
    """A table's requests to erase keys, with the searches for them, the removed files, and the certificates."""

    secret: bytes = b""
    """Key of the digests, 32 bytes; empty before the first request."""
    requests: tuple[Request, ...] = ()
    progress: tuple[SearchProgress, ...] = ()
    """The newest progress in each topic partition."""
    destroyed: tuple[Destroyed, ...] = ()
    certificates: tuple[Certificate, ...] = ()

    def of(self, topic_partition: TopicPartition) -> tuple[Request, ...]:
        """The requests of ``topic_partition``, in the order of their ids."""
        return self._by_partition.get(topic_partition, ())

    def progress_of(self, topic_partition: TopicPartition) -> SearchProgress | None:
        """The progress in ``topic_partition``; None before the first search."""
        return self._progress.get(topic_partition)

    def searched_below(self, topic_partition: TopicPartition) -> int:
        """The offset below which the last search has searched ``topic_partition``; 0 before the first search."""
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
    def _progress(self) -> dict[TopicPartition, SearchProgress]:
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
        """True when main and `firn_tombstones` were searched for all records of ``request``, and hold none any more."""
        done = self.progress_of(request.topic_partition)
        return done is not None and done.through >= request.id and (done.before is None or done.before >= request.below)

    def certificate_of(self, request: int) -> Certificate | None:
        """The newest certificate of the request with id ``request``; None without one."""
        return self._certificates.get(request)

    def rows_of(self, request: int) -> tuple[Request, ...]:
        """The rows of the request with id ``request``."""
        return self._by_id.get(request, ())

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of all requests, sorted."""
        return tuple(self._by_id)

    def with_progress(self, progress: Iterable[SearchProgress], destroyed: Iterable[Destroyed] = ()) -> "Erasures":
        """These erasures with new ``progress``, which replaces older progress in the same topic partitions."""
        new = {one.topic_partition: one for one in progress}
        kept = (one for one in self.progress if one.topic_partition not in new)
        return replace(
            self,
            progress=tuple(sorted((*kept, *new.values()), key=lambda one: one.topic_partition)),
            destroyed=(*self.destroyed, *destroyed),
        )


SECRET_BYTES: Final = 32
_BLOCK: Final = 64
"""Number of bytes in a block of SHA-256, to which HMAC pads its key (RFC 2104)."""


def key_bytes(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """The bytes of each record's key; NULL if the record has no key, or one of several key columns is NULL (C5).

    The bytes are those of the only key column; several columns are joined, each preceded by its length. An int has the
    bytes of a long, because Iceberg can promote an int column to long, and the keys must stay the same.
    """
    parts = [_promoted(batch.column(name)) for name in columns]
    return bytes_of(parts[0]) if len(parts) == 1 else joined(parts)


def digests_of(keys: pa.Array, secret: bytes) -> list[bytes | None]:
    """The digests, 32 bytes each, of ``keys`` as returned by `key_bytes`; None for NULL."""
    # `hmac.digest` would release the interpreter's lock for every key, so the threads would wait for each other.
    inner, outer = (bytes(byte ^ pad for byte in secret.ljust(_BLOCK, b"\0")) for pad in (0x36, 0x5C))
    sha256 = hashlib.sha256
    return [None if key is None else sha256(outer + sha256(inner + key).digest()).digest() for key in keys.to_pylist()]


class Matcher:
    """Finds the records of one topic partition that its ``requests`` ask to erase."""

    def __init__(self, secret: bytes, requests: Iterable[Request]) -> None:
        self._secret = secret
        self._below: dict[bytes, int] = {}
        for one in requests:
            self._below[one.digest] = max(one.below, self._below.get(one.digest, 0))
        self.below = max(self._below.values(), default=0)
        """No request asks to erase a record at this offset or above."""

    def matches(self, keys: pa.Array, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """True for each record to erase, by its key (`key_bytes`) and offset. Keys match exactly, by digest (C6)."""
        matching = np.zeros(len(keys), np.bool_)
        (places,) = np.nonzero(offsets < self.below)
        if not len(places):
            return matching
        encoded = pc.dictionary_encode(keys.take(pa.array(places)))
        digests = digests_of(encoded.dictionary, self._secret)
        below = np.array([self._below.get(one, 0) if one else 0 for one in digests] + [0], np.int64)
        codes = encoded.indices.fill_null(len(digests)).to_numpy(zero_copy_only=False)
        matching[places] = offsets[places] < below[codes]
        return matching


def _promoted(part: pa.Array) -> pa.Array:
    return part.cast(pa.int64()) if pa.types.is_int32(part.type) else part


def named_keys(table: Table, columns: ColumnRoles, keys: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The bytes (`key_bytes`) of ``keys``, which are given as for `named_values`."""
    named: list[bytes] = key_bytes(named_values(table, columns, keys), columns.key).to_pylist()
    return named


def named_values(table: Table, columns: ColumnRoles, keys: Sequence[Sequence[bytes]]) -> pa.RecordBatch:
    """The key columns of ``keys``, as a batch with one row for each key.

    A key is given by the values of its columns: the bytes of a binary value, or the UTF-8 text of any other value.
    Raises RefusedError for a key that no record of ``table`` can have.
    """
    names = columns.key
    for key in keys:
        if len(key) != len(names):
            raise RefusedError(
                f"the key has {count(len(key), 'part')}; allowed: {len(names)}, one for each of {', '.join(names)}"
            )
    schema = DataFiles.of(table).arrow_schema(names)
    fields = [table.schema().find_field(name) for name in names]
    parts = [
        pa.array([key_value(key[place], field).value for key in keys], schema.field(place).type)
        for place, field in enumerate(fields)
    ]
    return pa.RecordBatch.from_arrays(parts, schema=schema)
