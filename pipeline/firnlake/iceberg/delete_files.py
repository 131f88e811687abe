"""The rows of delete files, the records that they hide, and new position delete files.

Readers of a snapshot do not see hidden records (C27), so compaction ignores them. Delete files are read through the
FileIO and decoder of data files. The formats follow the Iceberg spec, "Position Delete Files" and "Equality Delete
Files". Deletion vectors would need another writer.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DEFAULT_READ_VERSION,
    POSITIONAL_DELETE_SCHEMA,
    DataFile,
    DataFileContent,
)
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField, PrimitiveType, StringType

from firnlake.errors import RefusedError
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.deletes import FILE_PATH, DeleteFile, FileDeletes
from firnlake.iceberg.keys import NO_KEY, Flags, Longs, codes_of, places_in, rows_of
from firnlake.iceberg.parquet import DICTIONARY_OF, ParquetFileWriter, WriteOptions

PATH, POS = "file_path", "pos"
"""Columns of a position delete file."""
POSITION: Final = 2147483545
"""Field id of ``pos`` in a position delete file (Iceberg spec, "Reserved Field IDs")."""

_CONTENT: Final = [field.name for field in DATA_FILE_TYPE[DEFAULT_READ_VERSION].fields].index("content")
"""Place of the kind of contents among the fields of a DataFile."""
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
    file = writer.close()
    file[_CONTENT] = DataFileContent.POSITION_DELETES
    return file
