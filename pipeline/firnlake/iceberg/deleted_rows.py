"""Records that row-level deletes hide (C27): readers of the snapshot do not see them, so compaction ignores them.

The rows of delete files are read through the same FileIO and Parquet decoder as data files.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import POSITIONAL_DELETE_SCHEMA
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import DoubleType, FloatType, PrimitiveType

from firnlake.errors import RefusedError
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.keys import NO_KEY, Flags, Longs, bytes_of, codes_of, joined, places_in
from firnlake.iceberg.row_deletes import DeleteFile, FileDeletes, is_global

PATH, POS = "file_path", "pos"
"""Columns of a position delete file (Iceberg spec, "Position Delete Files")."""

_NAMES: Final = create_mapping_from_schema(POSITIONAL_DELETE_SCHEMA)
"""Name mapping for delete files without field ids, which some writers produce."""


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


@dataclass(frozen=True)
class DeletedFrom:
    """A data file, and the row-level deletes that may apply to it."""

    source: Source
    deletes: FileDeletes


class HiddenRecords:
    """Flags that mark hidden records, by data file. Every delete file is read once; threads may share one object."""

    def __init__(self, files: DataFiles, sources: Iterable[DeletedFrom]) -> None:
        self._files = files
        self._from = {one.source.path: one for one in sources}
        self._lock = Lock()
        self._kinds: tuple[_Positions, _Values] | None = None
        self._flags: dict[str, Flags] = {}

    def of(self, source: Source) -> Flags | None:
        """A flag for each record of the data file, in file order, true for hidden records; None if no deletes apply.

        Raises RefusedError for a delete file that can't be understood, UnavailableError when the store does not answer.
        """
        own = self._from.get(source.path)
        if own is None:
            return None
        with self._lock:
            if source.path not in self._flags:
                flags = np.zeros(source.records, dtype=np.bool_)
                for kind in self._known():
                    kind.hide(own, flags)
                self._flags[source.path] = flags
            return self._flags[source.path]

    def by_positions(self, source: Source) -> Flags:
        """A flag for each record of the data file, true if a position delete hides it. Raises as ``of`` does."""
        flags = np.zeros(source.records, dtype=np.bool_)
        own = self._from.get(source.path)
        if own is not None:
            with self._lock:
                by_position, _ = self._known()
            by_position.hide(own, flags)
        return flags

    def _known(self) -> "tuple[_Positions, _Values]":
        if self._kinds is None:
            every = tuple(self._from.values())
            self._kinds = (_Positions.read(self._files, every), _Values.read(self._files, every))
        return self._kinds


@dataclass(frozen=True)
class _Positions:
    """Positions of hidden records, by path of the data file."""

    found: Mapping[str, Sequence[Longs]]

    @classmethod
    def read(cls, files: DataFiles, every: Sequence[DeletedFrom]) -> "_Positions":
        """Read the position deletes that may apply to the data files ``every``."""
        naming: dict[DeleteFile, list[str]] = defaultdict(list)
        for file in every:
            for delete in file.deletes.files:
                if not delete.is_equality:
                    naming[delete].append(file.source.path)
        by_path: dict[str, list[Longs]] = defaultdict(list)
        for delete, paths in naming.items():
            for path, places in _named(files, delete, paths):
                by_path[path].append(places)
        return cls(by_path)

    def hide(self, file: DeletedFrom, flags: Flags) -> None:
        """Set the ``flags`` of the records of ``file`` that these deletes hide."""
        for places in self.found.get(file.source.path, ()):
            # Readers ignore positions past the end of a file.
            flags[places[places < len(flags)]] = True


def _named(files: DataFiles, delete: DeleteFile, paths: Sequence[str]) -> Iterator[tuple[str, Longs]]:
    """Yield those of ``paths`` that ``delete`` names, each with deleted positions; a path may come several times."""
    wanted = pa.array(paths, pa.large_string())
    for batch in positions(files, delete):
        own = batch.filter(pc.is_in(batch.column(PATH), value_set=wanted))
        encoded = pc.dictionary_encode(own.column(PATH))
        codes, places = encoded.indices.to_numpy(), own.column(POS).to_numpy()
        for code, path in enumerate(encoded.dictionary.to_pylist()):
            yield path, places[codes == code]


@dataclass(frozen=True)
class _Values:
    """Equality deletes, which hide records with certain values in data files older than the delete (Iceberg spec)."""

    files: DataFiles
    known: Mapping[tuple[str, tuple[int, ...]], "_Newest"]
    """Deleted rows by partition (empty text for deletes that apply to all partitions) and field ids."""

    @classmethod
    def read(cls, files: DataFiles, every: Sequence[DeletedFrom]) -> "_Values":
        """Read the equality deletes that may apply to the data files ``every``."""
        deletes = {delete for file in every for delete in file.deletes.files if delete.is_equality}
        groups: dict[tuple[str, tuple[int, ...]], list[DeleteFile]] = defaultdict(list)
        for delete in sorted(deletes, key=lambda one: (one.sequence_number, one.path)):
            groups[_group(files, delete)].append(delete)
        return cls(files, {group: _Newest.read(files, own) for group, own in groups.items()})

    def hide(self, file: DeletedFrom, flags: Flags) -> None:
        """Set the ``flags`` of the records of ``file`` that these deletes hide."""
        for group in {_group(self.files, delete) for delete in file.deletes.files if delete.is_equality}:
            newest, start = self.known[group], 0
            for batch in self.files.batches(file.source, newest.names):
                numbers = newest.of(_rows(batch))
                flags[start : start + batch.num_rows] |= numbers > file.deletes.sequence_number
                start += batch.num_rows


@dataclass(frozen=True)
class _Newest:
    """The distinct rows, in the columns ``names``, of several equality delete files.

    ``numbers`` holds, for each row, the data sequence number of the newest delete of that row.
    """

    names: Sequence[str]
    rows: pa.Array
    numbers: Longs

    @classmethod
    def read(cls, files: DataFiles, deletes: Sequence[DeleteFile]) -> "_Newest":
        """Read ``deletes``, which all compare the same columns."""
        names = compared(files, deletes[0])
        batches: list[pa.Array] = []
        numbers: list[Longs] = [np.empty(0, dtype=np.int64)]
        for delete in deletes:
            for batch in values(files, delete):
                batches.append(_rows(batch))
                numbers.append(np.full(batch.num_rows, delete.sequence_number, dtype=np.int64))
        codes, rows = codes_of(pa.chunked_array(batches, pa.large_binary()))
        newest = np.zeros(len(rows), dtype=np.int64)
        np.maximum.at(newest, codes, np.concatenate(numbers))
        return cls(names, rows, newest)

    def of(self, rows: pa.Array) -> Longs:
        """The data sequence number of the newest delete of each of ``rows``; -1 for a row without a delete."""
        places = places_in(rows, self.rows)
        return np.where(places == NO_KEY, np.int64(-1), np.append(self.numbers, -1)[places])


def _group(files: DataFiles, delete: DeleteFile) -> tuple[str, tuple[int, ...]]:
    ids = tuple(sorted(delete.equality_ids or ()))
    return "" if is_global(files.specs, delete) else delete.place, ids


def _rows(batch: pa.RecordBatch) -> pa.Array:
    """The bytes of each row. NULL equals NULL, as in an equality delete, and differs from every value."""
    valid = [column.is_valid().cast(pa.int8()) for column in batch.columns]
    return joined([*valid, *(_filled(column) for column in batch.columns)])


def _filled(column: pa.Array) -> pa.Array:
    held = bytes_of(column)
    return held.fill_null(pa.scalar(b"", pa.large_binary())) if held.null_count else held
