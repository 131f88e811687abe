"""Searches a data file, a delete file, or a file that nothing refers to, for the records of requested keys (C30).

Records that row-level deletes hide are still in their data file, so they are found as well. The search for a
certificate has only digests of keys, which can't be compared with bounds or Bloom filters. A user who verifies
an erasure gives the key itself, so files and row groups that can't hold the key are not read. DuckDB probes the Bloom
filters (Parquet format, "Parquet Bloom Filter") of a file that the table's FileIO has opened, so DuckDB needs no
credentials, and does not mistake a path for a pattern.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fsspec import AbstractFileSystem
from numpy.typing import NDArray
from pyiceberg.io import InputStream
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table

from firnlake.errors import FirnError, UnavailableError
from firnlake.iceberg import parquet
from firnlake.iceberg.data_files import DataFiles, OpenFile, Source
from firnlake.lanes.erasure.requests import Request, digests_of, key_bytes, named_values
from firnlake.table.columns import ColumnRoles
from firnlake.table.topic_partition import TopicPartition


@dataclass(frozen=True)
class MatchedRecords:
    """Matching records of a file: how many each request asks to erase, by request id, and the digests of keys that have
    newer records, which no request asks to erase."""

    records: Counter[int] = field(default_factory=Counter)
    newer: frozenset[bytes] = frozenset()

    def __add__(self, other: "MatchedRecords") -> "MatchedRecords":
        return MatchedRecords(self.records + other.records, self.newer | other.newer)


NOTHING: Final = MatchedRecords()


class KeyMatcher:
    """Finds records of the keys that ``requests`` ask to erase. Tasks contain it, so it must be picklable."""

    def __init__(self, secret: bytes, requests: Iterable[Request]) -> None:
        self._secret = secret
        self._rows: dict[bytes, list[tuple[TopicPartition, int, int]]] = {}
        self._places: set[TopicPartition] = set()
        for one in requests:
            place = one.topic_partition
            self._rows.setdefault(one.digest, []).append((place, one.below, one.id))
            self._places.add(place)

    @property
    def ids(self) -> frozenset[int]:
        """The ids of the requests."""
        return frozenset(number for rows in self._rows.values() for _, _, number in rows)

    def holds(self, place: TopicPartition) -> bool:
        """True when a request asks to erase records of topic partition ``place``."""
        return place in self._places

    def asked_by(self, digest: bytes | None) -> frozenset[int]:
        """The ids of the requests for the key with this ``digest``."""
        return frozenset(number for _, _, number in self._rows.get(digest or b"", ()))

    def digests_of(self, keys: pa.Array) -> list[bytes | None]:
        """The digests of ``keys`` (`key_bytes`)."""
        return digests_of(keys, self._secret)

    def find(
        self, keys: pa.Array, offsets: NDArray[np.int64] | None = None, places: Sequence[TopicPartition] | None = None
    ) -> MatchedRecords:
        """Look for requested keys among ``keys`` (`key_bytes`), one for each record.

        Without ``offsets``, every record of a requested key counts as one to erase. ``places`` has the topic partition
        of each record, or a single one for all records; without it, the requests of all topic partitions count.
        """
        encoded = pc.dictionary_encode(keys)
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(encoded.dictionary)), side="right")
        meant: Counter[int] = Counter()
        newer = set()
        start = int((codes < 0).sum())
        for digest, end in zip(self.digests_of(encoded.dictionary), ends.tolist(), strict=True):
            own, start = order[start:end], end
            for place, below, number in self._rows.get(digest or b"", ()):
                there = own if places is None else _at(own, places, place)
                old = len(there) if offsets is None else int((offsets[there] < below).sum())
                if old:
                    meant[number] += old
                if old < len(there) and digest:
                    newer.add(digest)
        return MatchedRecords(meant, frozenset(newer))


def _at(own: NDArray[np.intp], places: Sequence[TopicPartition], place: TopicPartition) -> NDArray[np.intp]:
    """The positions among ``own`` of records of topic partition ``place``."""
    if len(places) == 1:
        return own if places[0] == place else own[:0]
    return own[[places[position] == place for position in own.tolist()]]


_PROBE: Final = "SELECT row_group_id FROM parquet_bloom_probe('probed://file', ?, ?) WHERE bloom_filter_excludes"
_STORED: Final[dict[type, Callable[[pa.DataType], bool]]] = {
    bytes: lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    str: lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    int: lambda kind: pa.types.is_int64(kind),
}
"""For each Python type of a value, the column types whose Bloom filters DuckDB can probe without a cast."""


def excluding(file: OpenFile, column: str, value: Any, row_groups: Collection[int]) -> set[int]:
    """Those of the ``row_groups`` whose Bloom filter says that they don't have ``value`` in the table's ``column``.

    Empty if the file has no such filter, or none that DuckDB understands.
    """
    written = file.written(column)
    is_stored = _STORED.get(type(value))
    if written is None or is_stored is None or not is_stored(written.type):
        return set()
    if not any(file.has_bloom_filter(column, one) for one in row_groups):
        return set()
    if [name.lower() for name in file.file.schema_arrow.names].count(written.name.lower()) > 1:
        return set()  # DuckDB might probe the filter of the other column
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register_filesystem(_OneFile(partial(file.files.stream, file.source), file.source.bytes))
        try:
            excluded = {int(group) for (group,) in connection.execute(_PROBE, [written.name, value]).fetchall()}
        except duckdb.Error:
            return set()  # then the file itself is read, which shows what is wrong with it
    return excluded & set(row_groups)


class _OneFile(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system that opens the same file for every path."""

    protocol = "probed"
    cachable = False

    def __init__(self, opened: Callable[[], InputStream], size: int) -> None:
        super().__init__()
        self._opened = opened
        self._bytes = size

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": self._bytes, "type": "file"}

    def modified(self, path: str) -> datetime:  # noqa: ARG002
        return datetime.fromtimestamp(0, UTC)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> InputStream:  # noqa: ARG002
        return self._opened()


@dataclass(frozen=True)
class KnownKey:
    """A key: its bytes ``encoded`` as by `key_bytes`, and the ``values`` of its columns by their names in the table."""

    encoded: bytes
    values: Mapping[str, Any]

    @classmethod
    def named(cls, table: Table, columns: ColumnRoles, key: Sequence[bytes]) -> Self:
        """The key of ``table`` that a person names by its columns' values; raises RefusedError like `named_values`."""
        batch = named_values(table, columns, [key])
        return cls(key_bytes(batch, columns.key)[0].as_py(), batch.to_pylist()[0])

    def among(self, keys: pa.Array) -> pa.Array:
        """``keys`` (`key_bytes`), with NULL in place of each key that is not this one."""
        return pc.if_else(pc.equal(keys, pa.scalar(self.encoded, keys.type)), keys, None)

    def row_groups(self, file: OpenFile) -> list[int]:
        """The row groups of ``file`` that may hold the key, according to the file's footer and Bloom filters."""
        groups = set(range(file.file.metadata.num_row_groups))
        for column, value in self.values.items():
            groups = {one for one in groups if _is_within(file.bounds(column, one), value)}
        for column, value in self.values.items():
            groups -= excluding(file, column, value, groups)
        return sorted(groups)


def _is_within(bounds: tuple[Any, Any] | None, value: Any) -> bool:
    """False when ``value`` is outside the ``bounds``. Only bytes, text and whole numbers are compared, because a file
    may keep other types in another form."""
    if bounds is None or any(type(one) is not type(value) for one in bounds) or type(value) not in (bytes, str, int):
        return True
    low, high = bounds
    return bool(low <= value <= high)


_FIELD_ID: Final = b"PARQUET:field_id"
_ROW_OF_DELETE: Final = 2147483544
"""Field id of the deleted row in a position delete file (Iceberg spec, "Reserved Field IDs")."""


@dataclass(frozen=True)
class Task:
    """A file to search."""

    source: Source
    place: TopicPartition | None
    """The topic partition of all records in the file; None if there may be several, or if it is unknown."""
    by_offset: bool = True
    """False if all records of a requested key count, for example in a delete file, which holds keys without offsets."""
    is_listed: bool = True
    """False for a file that nothing refers to, so that only its footer says how many records it has."""


@dataclass(frozen=True)
class Answer:
    """What a search found in a file. ``problem`` says why it can't be searched; ``gone`` is true if it is missing."""

    found: MatchedRecords = NOTHING
    problem: str | None = None
    gone: bool = False


@dataclass(frozen=True)
class Reader:
    """Searches files of one table. Tasks contain it, so it must be picklable."""

    files: DataFiles
    columns: ColumnRoles
    wanted: KeyMatcher
    control: str | None = None
    """The column that is true for control records, which have no key (C10); None if the table has no such column."""
    key: KnownKey | None = None
    """The only key to search for, if the caller knows it; None if only digests are known."""

    def __call__(self, task: Task) -> Answer:
        """Search the file of ``task``; raises UnavailableError when the store does not answer."""
        try:
            return self._answer(task)
        except UnavailableError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return Answer(problem="the file is gone, so nobody can tell which records it held", gone=True)
            raise
        except FirnError as error:
            return Answer(problem=str(error))

    def _answer(self, task: Task) -> Answer:
        if task.source.format != FileFormat.PARQUET.value:
            return Answer(problem=f"the file has format {task.source.format}, which Firn can't read")
        if task.is_listed and task.by_offset:
            return Answer(self._records(task))
        held = self._footer(task)
        if isinstance(held, Answer):
            return held
        records, ids = held
        if _ROW_OF_DELETE in ids:
            return Answer(problem="the file is a position delete file that contains the deleted records")
        keys = {self.files.schema.find_field(name).field_id for name in self.columns.key}
        if keys.isdisjoint(ids):
            known = ids & {field.field_id for field in self.files.schema.fields}
            return Answer(problem="the file has columns of the table, but no key column") if known else Answer()
        if not keys <= ids:
            return Answer(problem="the file has only some of the key columns")
        has_offset = self.files.schema.find_field(self.columns.offset).field_id in ids
        source = Source(task.source.path, task.source.bytes, records, task.source.spec_id, task.source.partition)
        return Answer(self._records(Task(source, task.place, by_offset=has_offset and task.by_offset)))

    def _footer(self, task: Task) -> tuple[int, frozenset[int]] | Answer:
        """The number of records and the field ids of a Parquet file; an answer if the file can't be read as Parquet."""
        path = task.source.path
        try:
            with self.files.io(path).new_input(path).open() as stream:
                file = parquet.open_file(stream)
                ids = _ids(file.schema_arrow, self.files)
                return file.metadata.num_rows, ids
        except FileNotFoundError:
            return Answer(gone=True)
        except pa.ArrowException as error:
            return Answer(problem=f"the file is not readable as Parquet: {' '.join(str(error).split())}")

    def _records(self, task: Task) -> MatchedRecords:
        columns = self.columns
        apart = (columns.topic, columns.partition) if task.place is None else ()
        beside = (columns.offset, self.control, *apart) if task.by_offset else ()
        hits = NOTHING
        for batch in self._batches(task.source, list(dict.fromkeys([*columns.key, *filter(None, beside)]))):
            keys = key_bytes(batch, columns.key)
            if self.key:
                keys = self.key.among(keys)
            if not task.by_offset:
                hits += self.wanted.find(keys)
                continue
            if self.control:
                keys = pc.if_else(pc.fill_null(batch.column(self.control), fill_value=False), None, keys)
            offsets = batch.column(columns.offset).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            hits += self.wanted.find(keys, offsets, [task.place] if task.place else self._places(batch))
        return hits

    def _batches(self, source: Source, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The records of ``source``, without the row groups that can't hold the key."""
        with self.files.opened(source) as file:
            yield from file.batches(columns, self.key.row_groups(file) if self.key else None)

    def _places(self, batch: pa.RecordBatch) -> Sequence[TopicPartition] | None:
        """The topic partition of each record; None if the file does not name them, so that all are possible."""
        names = self.columns
        topics = batch.column(names.topic).to_pylist() if names.topic else [names.topic_name] * len(batch)
        partitions = batch.column(names.partition).to_pylist() if names.partition else [0] * len(batch)
        if None in topics or None in partitions or not topics:
            return None
        return [TopicPartition(*place) for place in zip(topics, partitions, strict=True)]


def _ids(schema: pa.Schema, files: DataFiles) -> frozenset[int]:
    """The field ids of a file's columns; if the file has no ids, those of the table's columns with the same names."""
    own = {int(field.metadata[_FIELD_ID]) for field in schema if field.metadata and _FIELD_ID in field.metadata}
    if own:
        return frozenset(own)
    known: dict[str, Any] = {field.name: field.field_id for field in files.schema.fields}
    return frozenset(known[name] for name in schema.names if name in known)
