"""Row-level deletes of a snapshot: which of them reach a data file, which of its records they hide, and which no data
file needs any more (C27).

A delete file *reaches* a data file if it may apply to that data file, judged by partition, path and data sequence
number, which are all in the metadata (Iceberg spec, "Scan Planning"). A position delete file for one data file (equal
bounds of ``file_path``) reaches only that data file. A position delete file for several data files reaches every data
file of its partition, and only its rows tell to which data files it applies.

A commit removes the delete files that reached a data file before it and reach none afterwards. The lane `convert`
leaves data files in place and makes them *covered* up to a data sequence number, which means that they no longer need
equality deletes with that number or a lower one.

Readers of a snapshot do not see hidden records, so compaction ignores them. Delete files are read through the FileIO
and decoder of data files. The formats follow the Iceberg spec, "Position Delete Files" and "Equality Delete Files".
Deletion vectors would need another writer.
"""

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    POSITIONAL_DELETE_SCHEMA,
    DataFile,
    DataFileContent,
    ManifestEntry,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField, PrimitiveType, StringType

from firnlake.errors import RefusedError
from firnlake.iceberg.data_files import DataFiles, Source, partition_values
from firnlake.iceberg.keys import NO_KEY, Flags, Longs, codes_of, places_in, rows_of
from firnlake.iceberg.parquet import DICTIONARY_OF, ParquetFileWriter, WriteOptions

FILE_PATH: Final = 2147483546
"""Field id of ``file_path`` in a position delete file (Iceberg spec, "Reserved Field IDs")."""
PATH, POS = "file_path", "pos"
"""Columns of a position delete file."""
POSITION: Final = 2147483545
"""Field id of ``pos`` in a position delete file (Iceberg spec, "Reserved Field IDs")."""

_NAMES: Final = create_mapping_from_schema(POSITIONAL_DELETE_SCHEMA)
"""Name mapping for delete files without field ids, which some writers produce."""
_EVERYWHERE: Final = ""
"""Scope of the delete files that reach data files in every partition."""
_NEVER: Final = 2**63
"""A data sequence number that is higher than all others."""
_DIGITS: Final = (1 << 63) - 1


@dataclass(frozen=True)
class DeleteFile:
    """A file of row-level deletes, as a manifest lists it. ``equality_ids`` are the field ids of the columns that an
    equality delete file compares; None for a position delete file."""

    source: Source
    sequence_number: int
    """Data sequence number."""
    equality_ids: tuple[int, ...] | None = None
    only: str | None = None
    """The only data file that a position delete file names; None if it may name several."""
    everywhere: bool = False
    """True for an equality delete file of an unpartitioned spec, which reaches data files in every partition."""

    @classmethod
    def of(cls, file: DataFile, sequence_number: int, specs: Mapping[int, PartitionSpec]) -> Self:
        """The delete file that a manifest lists as ``file``, in a table with these partition ``specs``."""
        source = replace(Source.of(file), kind="delete file")
        if file.content != DataFileContent.EQUALITY_DELETES:
            lower, upper = ((bounds or {}).get(FILE_PATH) for bounds in (file.lower_bounds, file.upper_bounds))
            only = None
            # Equal bounds are a complete path, because a truncated upper bound is rounded up. Without a path that can
            # be read, the file may name any data file.
            with suppress(UnicodeDecodeError):
                only = lower.decode() if lower and lower == upper else None
            return cls(source, sequence_number, only=only)
        everywhere = all(isinstance(field.transform, VoidTransform) for field in specs[file.spec_id].fields)
        return cls(source, sequence_number, tuple(file.equality_ids or ()), everywhere=everywhere)

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def is_equality(self) -> bool:
        """True for an equality delete file, False for a position delete file."""
        return self.equality_ids is not None

    @property
    def scope(self) -> str:
        """The data files that the delete file reaches, but for sequence numbers: a path, a place, or all."""
        return _EVERYWHERE if self.everywhere else self.only or place(self.source.spec_id, self.source.partition)

    @property
    def reaches_to(self) -> int:
        """The highest data sequence number of a data file that the delete file reaches: position deletes also reach
        data files of their own commit, equality deletes reach only older data files."""
        return self.sequence_number - 1 if self.is_equality else self.sequence_number


@dataclass(frozen=True)
class FileDeletes:
    """The delete files that reach one data file, oldest first, and the data sequence number of that data file."""

    sequence_number: int
    files: tuple[DeleteFile, ...]

    @property
    def digest(self) -> int:
        """Digest of the delete files, equal for the same files; 0 if there are none."""
        return sum(_digest(delete.path) for delete in self.files) & _DIGITS


class Placed(NamedTuple):
    """What decides which delete files reach a data file."""

    place: str
    """Its partition spec and partition values, as ``place`` returns them."""
    path: str
    sequence_number: int
    """Data sequence number."""

    @classmethod
    def of(cls, file: DataFile, sequence_number: int) -> "Placed":
        """Place, path and data sequence number of ``file``."""
        return cls(place_of(file), file.file_path, sequence_number)

    @property
    def scopes(self) -> tuple[str, str, str]:
        """The scopes of the delete files that may reach it."""
        return _EVERYWHERE, self.place, self.path


class Deletes:
    """The row-level deletes that the manifest ``entries`` of a snapshot list, for a table with these ``specs``."""

    def __init__(self, entries: Iterable[ManifestEntry], specs: Mapping[int, PartitionSpec]) -> None:
        by_scope: dict[str, list[DeleteFile]] = defaultdict(list)
        for entry in entries:
            delete = DeleteFile.of(entry.data_file, entry.sequence_number or 0, specs)
            by_scope[delete.scope].append(delete)
        self._scopes = {scope: _Scope(deletes) for scope, deletes in by_scope.items()}

    @property
    def any(self) -> bool:
        """True when there are row-level deletes."""
        return bool(self._scopes)

    @property
    def equality(self) -> list[DeleteFile]:
        """The equality delete files."""
        return [delete for scope in self._scopes.values() for delete in scope.deletes if delete.is_equality]

    def reaching(self, file: Placed) -> FileDeletes | None:
        """The delete files that reach the data file ``file``; None if there are none."""
        found = (delete for scope, first in self._reaching(file) for delete in scope.deletes[first:])
        deletes = tuple(sorted(found, key=lambda one: (one.sequence_number, one.path)))
        return FileDeletes(file.sequence_number, deletes) if deletes else None

    def totals(self, file: Placed) -> Longs:
        """[4] Totals over the delete files that reach the data file ``file``, without a list of them: their number, how
        many are equality delete files, how many records the position deletes hide at most, and the digest."""
        totals = np.zeros(4, np.int64)
        for scope, first in self._reaching(file):
            totals += scope.totals[first]
        return totals & _DIGITS

    def needless(
        self,
        before: Iterable[Placed],
        left: Sequence[Placed],
        added: Iterable[Placed] = (),
        covered: Mapping[str, int] = MappingProxyType({}),
    ) -> frozenset[str]:
        """Paths of the delete files that reach a data file ``before`` a commit, and afterwards none, neither one that
        was ``left`` nor one that was ``added``.

        No position delete names a file that a commit adds. ``covered`` maps the path of a data file in ``left`` to a
        data sequence number: for equality deletes with this number or a lower one, the data file counts as removed.
        """
        oldest = self._oldest(before)
        by_position = self._oldest(left)
        uncovered = (one._replace(sequence_number=max(one.sequence_number, covered.get(one.path, 0))) for one in left)
        by_value = self._oldest((*uncovered, *added))
        return frozenset(
            delete.path
            for scope, own in self._scopes.items()
            for delete in own.deletes
            if oldest.get(scope, _NEVER)
            <= delete.reaches_to
            < (by_value if delete.is_equality else by_position).get(scope, _NEVER)
        )

    def relieved(self, files: Sequence[Placed], taken: Collection[str]) -> frozenset[str]:
        """Paths in ``taken`` of data files that an equality delete file reaches which reaches none of the other
        ``files``. A commit that covers all data files in ``taken`` also removes this equality delete file."""
        chosen = frozenset(taken)
        others = self._oldest(file for file in files if file.path not in chosen)
        free: dict[str, int] = {}
        for delete in self.equality:
            if delete.reaches_to < others.get(delete.scope, _NEVER):
                free[delete.scope] = max(delete.reaches_to, free.get(delete.scope, -1))
        return frozenset(
            file.path
            for file in files
            if file.path in chosen and any(file.sequence_number <= free.get(scope, -1) for scope in file.scopes)
        )

    def _reaching(self, file: Placed) -> Iterator[tuple["_Scope", int]]:
        """The scopes of ``file``, each with the number of its first delete file that reaches ``file``."""
        for name in file.scopes:
            if name in self._scopes:
                scope = self._scopes[name]
                yield scope, bisect_left(scope.numbers, file.sequence_number)

    def _oldest(self, files: Iterable[Placed]) -> dict[str, int]:
        """The lowest data sequence number among the data ``files`` of each scope."""
        oldest: dict[str, int] = {}
        for file in files:
            for scope in file.scopes:
                if scope in self._scopes and file.sequence_number < oldest.get(scope, _NEVER):
                    oldest[scope] = file.sequence_number
        return oldest


class _Scope:
    """Delete files of one scope, in the order of the data sequence numbers to which they reach."""

    def __init__(self, deletes: Iterable[DeleteFile]) -> None:
        self.deletes = sorted(deletes, key=lambda one: one.reaches_to)
        self.numbers = [one.reaches_to for one in self.deletes]
        figures = [
            (1, one.is_equality, 0 if one.is_equality else one.source.records, _digest(one.path))
            for one in reversed(self.deletes)
        ]
        self.totals: Longs = np.cumsum([(0, 0, 0, 0), *figures], axis=0, dtype=np.int64)[::-1]
        """[N + 1, 4] Totals from each delete file to the last one. Digests are exact modulo 2^63."""


def _digest(path: str) -> int:
    """A digest of a delete file's path, from 1 to 2^63 - 1; the digest of several paths is the sum modulo 2^63."""
    return max(1, int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") & _DIGITS)


def place_of(file: DataFile) -> str:
    """The place of ``file``: its partition spec and partition values, as text."""
    return place(file.spec_id, partition_values(file))


def place(spec_id: int, partition: tuple[Any, ...]) -> str:
    """Partition spec and partition values as text."""
    return f"{spec_id} {partition!r}"


def positions(files: DataFiles, delete: DeleteFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a position delete file: the PATH of a data file, and the position POS in this file, from 0 on.

    Raises RefusedError for a file that can't be understood, UnavailableError when the store does not answer.
    """
    reader = replace(files, schema=POSITIONAL_DELETE_SCHEMA, names=_NAMES)
    with reader.opened(delete.source) as opened:
        opened.require([PATH, POS])
        for batch in opened.batches([PATH, POS]):
            nulls = batch.column(PATH).null_count + batch.column(POS).null_count
            if nulls or (batch.num_rows and pc.min(batch.column(POS)).as_py() < 0):
                raise RefusedError(
                    f"{files.subject}: delete file {delete.path} has a row without {PATH}, or with a wrong {POS}; "
                    "allowed: a path and a position of 0 or more in every row"
                )
            yield batch


def positions_by_file(files: DataFiles, delete: DeleteFile) -> Iterator[tuple[str, Longs]]:
    """Yield the paths that a position delete file names, each with positions; a path may come several times.

    Raises as ``positions`` does.
    """
    for batch in positions(files, delete):
        encoded = batch.column(PATH).dictionary_encode()
        codes = encoded.indices.to_numpy()
        in_order = batch.column(POS).to_numpy()[np.argsort(codes, kind="stable")]
        ends = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary)))
        yield from zip(encoded.dictionary.to_pylist(), np.split(in_order, ends[:-1]), strict=False)


def values(files: DataFiles, delete: DeleteFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an equality delete file, with the columns that ``compared`` returns.

    Raises as ``positions`` does.
    """
    names = compared(files, delete)
    with files.opened(delete.source) as opened:
        opened.require(names)
        yield from opened.batches(names)


def compared(files: DataFiles, delete: DeleteFile) -> list[str]:
    """The current names of the columns that an equality delete file compares, in the order of their field ids.

    Raises RefusedError when a column can't be compared, or when the delete file names no columns.
    """
    names = []
    for field_id in sorted(delete.equality_ids or ()):
        field = next((field for field in files.schema.fields if field.field_id == field_id), None)
        kind = field.field_type if field else None
        if field is None or not isinstance(kind, PrimitiveType) or isinstance(kind, FloatType | DoubleType):
            what = f"column {field.name} of type {kind}" if field else f"field id {field_id}, which the table lacks"
            raise RefusedError(
                f"{files.subject}: delete file {delete.path} compares {what}; allowed: top-level columns of a "
                "primitive type other than float and double (apply the deletes with rewrite_data_files first)"
            )
        names.append(field.name)
    if not names:
        raise RefusedError(
            f"{files.subject}: delete file {delete.path} names no columns to compare; allowed: a manifest entry with "
            "equality_ids"
        )
    return names


class HiddenRecords:
    """Flags that mark hidden records, by data file. Every delete file is read once; threads may share one object."""

    def __init__(self, files: DataFiles, deletes: Mapping[str, FileDeletes]) -> None:
        """``deletes`` are the row-level deletes that may apply, by path of the data file."""
        self._files = files
        self._deletes = deletes
        self._lock = Lock()
        self._flags: dict[str, tuple[Flags, Flags]] = {}

    def of(self, source: Source) -> Flags | None:
        """A flag for each record of the data file, in file order, true for hidden records; None if no deletes apply.

        Raises RefusedError for a delete file that can't be understood, UnavailableError when the store does not answer.
        """
        return self._found(source)[0] if source.path in self._deletes else None

    def visible(self, source: Source, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The records of the data file that readers see, in file order. Raises as ``of`` does."""
        hidden, first = self.of(source), 0
        for batch in self._files.batches(source, columns):
            own = None if hidden is None else hidden[first : first + batch.num_rows]
            first += batch.num_rows
            seen = batch if own is None or not own.any() else batch.filter(pa.array(~own))
            if seen.num_rows:
                yield seen

    def by_values_only(self, source: Source) -> Flags:
        """A flag for each record of the data file, true if an equality delete hides it and no position delete does.
        Raises as ``of`` does."""
        if source.path not in self._deletes:
            return np.zeros(source.records, dtype=np.bool_)
        hidden, by_position = self._found(source)
        return hidden & ~by_position

    def _found(self, source: Source) -> tuple[Flags, Flags]:
        """Flags of the hidden records, and of those that position deletes hide."""
        with self._lock:
            if source.path not in self._flags:
                by_position = np.zeros(source.records, dtype=np.bool_)
                for places in self._positions.get(source.path, ()):
                    # Readers ignore positions past the end of a file.
                    by_position[places[places < source.records]] = True
                self._flags[source.path] = (self._with_values(source, by_position), by_position)
            return self._flags[source.path]

    @cached_property
    def _positions(self) -> Mapping[str, Sequence[Longs]]:
        """Deleted positions by path of the data file."""
        reached: dict[DeleteFile, set[str]] = defaultdict(set)
        for path, own in self._deletes.items():
            for delete in own.files:
                if not delete.is_equality:
                    reached[delete].add(path)
        by_path: dict[str, list[Longs]] = defaultdict(list)
        for delete, paths in reached.items():
            for path, places in positions_by_file(self._files, delete):
                if path in paths:
                    by_path[path].append(places)
        return by_path

    def _with_values(self, source: Source, by_position: Flags) -> Flags:
        """Flags of the records that are hidden ``by_position`` or by equality deletes newer than the data file."""
        deletes = self._deletes[source.path]
        groups = {_group(delete) for delete in deletes.files if delete.is_equality}
        flags = by_position.copy() if groups else by_position
        for group in groups:
            deleted, start = self._values[group], 0
            for batch in self._files.batches(source, deleted.names):
                newest = deleted.newest_of(rows_of(batch))
                flags[start : start + batch.num_rows] |= newest > deletes.sequence_number
                start += batch.num_rows
        return flags

    @cached_property
    def _values(self) -> Mapping[tuple[str, tuple[int, ...]], "_DeletedValues"]:
        """Deleted values by the scope of their delete files and the field ids of the columns that these compare."""
        groups: dict[tuple[str, tuple[int, ...]], list[DeleteFile]] = defaultdict(list)
        deletes = {delete for own in self._deletes.values() for delete in own.files if delete.is_equality}
        for delete in sorted(deletes, key=lambda one: (one.sequence_number, one.path)):
            groups[_group(delete)].append(delete)
        return {group: _DeletedValues.read(self._files, own) for group, own in groups.items()}


def _group(delete: DeleteFile) -> tuple[str, tuple[int, ...]]:
    return delete.scope, tuple(sorted(delete.equality_ids or ()))


@dataclass(frozen=True)
class _DeletedValues:
    """The distinct rows, in the columns ``names``, of several equality delete files.

    ``numbers`` holds, for each row, the data sequence number of the newest delete of that row.
    """

    names: Sequence[str]
    rows: pa.Array
    numbers: Longs

    @classmethod
    def read(cls, files: DataFiles, deletes: Sequence[DeleteFile]) -> "_DeletedValues":
        """Read ``deletes``, which all compare the same columns."""
        batches: list[pa.Array] = []
        numbers: list[Longs] = [np.empty(0, dtype=np.int64)]
        for delete in deletes:
            for batch in values(files, delete):
                batches.append(rows_of(batch))
                numbers.append(np.full(batch.num_rows, delete.sequence_number, dtype=np.int64))
        codes, rows = codes_of(pa.chunked_array(batches, pa.large_binary()))
        newest = np.zeros(len(rows), dtype=np.int64)
        np.maximum.at(newest, codes, np.concatenate(numbers))
        return cls(compared(files, deletes[0]), rows, newest)

    def newest_of(self, rows: pa.Array) -> Longs:
        """The data sequence number of the newest delete of each of ``rows``; -1 for a row without a delete."""
        places = places_in(rows, self.rows)
        return np.where(places == NO_KEY, np.int64(-1), np.append(self.numbers, -1)[places])


_ROWS: Final = 1 << 20
"""Maximum number of rows per batch: 8 MiB of positions in memory."""
_WRITTEN: Final = WriteOptions(
    Schema(
        NestedField(FILE_PATH, PATH, StringType(), required=True), NestedField(POSITION, POS, LongType(), required=True)
    ),
    # The bounds of the paths are whole, because readers plan scans by them.
    {"write.metadata.metrics.default": "full", f"{DICTIONARY_OF}{POS}": "false"},
    content=DataFileContent.POSITION_DELETES,
)


def write_positions(
    output: OutputFile, spec_id: int, partition: tuple[Any, ...], rows: Mapping[str, Longs]
) -> DataFile:
    """Write a position delete file for data files of one Iceberg partition. ``rows`` has the sorted positions of one or
    more data files, by path."""
    writer = ParquetFileWriter(output, _WRITTEN, spec_id, partition)
    for path in sorted(rows):
        for start in range(0, len(rows[path]), _ROWS):
            part = pa.array(rows[path][start : start + _ROWS], pa.int64())
            writer.write(pa.record_batch([pa.repeat(pa.scalar(path), len(part)), part], names=[PATH, POS]))
    return writer.close()
