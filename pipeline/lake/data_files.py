"""Reads the data files of one table as Arrow batches in the table's present columns and types.

Columns are found by field id, or by the table's name mapping in files without ids; a column that a file lacks is its
partition value or NULL (Iceberg spec, "Column Projection"). Cleaner and judge share this module and FileIO, and no
rule.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputFile, load_file_io
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField

from pipeline.errors import FirnError, RefusedError, UnavailableError
from pipeline.lake.arrow_types import fitted, stored_type

BATCH_BYTES: Final = 16 << 20
"""About so many uncompressed bytes make a batch; a single record may be larger."""
BATCH_RECORDS: Final = 1 << 17
"""At most so many records make a batch, however small they are."""
_FIELD_ID: Final = b"PARQUET:field_id"
_QUERY: Final = re.compile("[?#]")


@dataclass(frozen=True)
class Source:
    """A data file as a manifest lists it: sizes in bytes, its partition spec and partition values."""

    path: str
    bytes: int
    records: int
    spec_id: int
    partition: tuple[Any, ...]
    format: str = FileFormat.PARQUET.value

    @classmethod
    def of(cls, file: DataFile) -> Self:
        """The source that ``file`` describes."""
        values = tuple(file.partition[place] for place in range(len(file.partition)))
        return cls(
            file.file_path,
            file.file_size_in_bytes,
            file.record_count,
            file.spec_id,
            values,
            FileFormat(file.file_format).value,
        )


@dataclass(frozen=True)
class DataFiles:
    """How the data files of one table are opened and understood; pickled into tasks, credentials included.

    ``subject`` is what messages begin with: the table, and whose files are read.
    """

    subject: str
    schema: Schema
    specs: Mapping[int, PartitionSpec]
    names: NameMapping | None
    properties: Mapping[str, str] = field(repr=False)  # credentials among them

    @classmethod
    def of(cls, table: Table, subject: str | None = None) -> Self:
        """The data files of ``table`` in its present schema; messages name the table, or the ``subject`` given."""
        name = subject or f"table {'.'.join(table.name())}"
        return cls(name, table.schema(), table.specs(), table.name_mapping(), dict(table.io.properties))

    def io(self, path: str) -> FileIO:
        """The FileIO that reaches ``path`` with the table's credentials."""
        return _file_io(tuple(sorted(self.properties.items())), path.partition("://")[0])

    def arrow_schema(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """The Arrow types that batches have: the table's, with 64-bit lengths, and UUIDs as 16 bytes."""
        full = schema_to_pyarrow(self.schema, include_field_ids=False)
        names = full.names if columns is None else columns
        return pa.schema([pa.field(name, stored_type(full.field(name).type)) for name in names])

    def batches(
        self, source: Source, columns: Sequence[str] | None = None, *, row_groups: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The records of ``source`` in file order, all ``columns`` or those named, bounded by BATCH_BYTES.

        Raises RefusedError for a file that can't be understood, UnavailableError when the store does not answer.
        """
        with self.opened(source) as file:
            yield from file.batches(columns, row_groups)

    @contextmanager
    def opened(self, source: Source) -> Iterator["OpenFile"]:
        """``source``, open to be read more than once; errors of reading name the table and the file."""
        if source.format != FileFormat.PARQUET.value:
            raise RefusedError(
                f"{self.subject}: segment {source.path} is an {source.format} file; allowed: PARQUET (rewrite it, "
                "for example with rewrite_data_files under write.format.default=parquet)"
            )
        try:
            with _input(self.io(source.path), source.path).open() as stream:
                file = pq.ParquetFile(
                    stream,
                    binary_type=pa.large_binary(),
                    list_type=pa.LargeListType,
                    coerce_int96_timestamp_unit="us",
                    arrow_extensions_enabled=False,
                )
                yield OpenFile(self, source, file)
        except FirnError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise _failure(self.subject, source, error) from error

    def constants(self, source: Source) -> dict[int, Any]:
        """Values that all records of ``source`` have by its partition, by field id."""
        return {
            part.source_id: value
            for part, value in zip(self.specs[source.spec_id].fields, source.partition, strict=True)
            if isinstance(part.transform, IdentityTransform)
        }


@dataclass(frozen=True)
class OpenFile:
    """An open Parquet file with the columns of its table."""

    files: DataFiles
    source: Source
    file: pq.ParquetFile

    def batches(
        self, columns: Sequence[str] | None = None, row_groups: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """As ``DataFiles.batches``."""
        self._check_records()
        wanted = self.files.arrow_schema(columns)
        places = self._places(wanted.names)
        names = [name for name in places.values() if name is not None]
        metadata = self.file.metadata
        for group in range(metadata.num_row_groups) if row_groups is None else row_groups:
            rows = metadata.row_group(group).num_rows
            if not names:
                yield self._fitted(None, rows, wanted, places)
                continue
            size = _batch_records(metadata.row_group(group), set(names))
            for batch in self.file.iter_batches(size, row_groups=[group], columns=names, use_threads=False):
                yield self._fitted(batch, batch.num_rows, wanted, places)

    def bounds(self, column: str, row_group: int) -> tuple[Any, Any] | None:
        """Lowest and highest value of a flat ``column`` in a row group by the footer; None where it does not tell."""
        name = self._places([column])[column]
        group = self.file.metadata.row_group(row_group)
        for place in range(group.num_columns):
            chunk = group.column(place)
            if chunk.path_in_schema == name:
                said = chunk.statistics
                return (said.min, said.max) if said is not None and said.has_min_max else None
        return None

    def _check_records(self) -> None:
        found = self.file.metadata.num_rows
        if found != self.source.records:
            raise RefusedError(
                f"{self.files.subject}: segment {self.source.path} holds {found} records; allowed: "
                f"{self.source.records}, as the table's manifest tells"
            )

    def _places(self, columns: Sequence[str]) -> dict[str, str | None]:
        """What the file calls each column; None where it has none."""
        found = _names_by_id(self.file.schema_arrow, self.files.names)
        if not found and len(self.file.schema_arrow):
            raise RefusedError(
                f"{self.files.subject}: the columns of segment {self.source.path} have no field ids; allowed: "
                "field ids in the file, or the table property schema.name-mapping.default"
            )
        return {name: found.get(self.files.schema.find_field(name).field_id) for name in columns}

    def _fitted(
        self, batch: pa.RecordBatch | None, rows: int, wanted: pa.Schema, places: Mapping[str, str | None]
    ) -> pa.RecordBatch:
        constants = self.files.constants(self.source)
        arrays = []
        for column in wanted:
            iceberg = self.files.schema.find_field(column.name)
            name = places[column.name]
            if batch is None or name is None:
                arrays.append(_constant(constants.get(iceberg.field_id), iceberg, column.type, rows, self))
            else:
                arrays.append(fitted(batch.column(name), self.file.schema_arrow.field(name), iceberg, column.type))
        return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _constant(value: Any, column: NestedField, kind: pa.DataType, rows: int, file: OpenFile) -> pa.Array:
    if value is None and column.required:
        raise RefusedError(
            f"{file.files.subject}: segment {file.source.path} lacks the required column {column.name}; allowed: a "
            "file with all required columns"
        )
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


def _names_by_id(schema: pa.Schema, mapping: NameMapping | None) -> dict[int, str]:
    """Top-level columns of a file by field id; where the file has none, by the table's name mapping."""
    found = {
        int(column.metadata[_FIELD_ID]): column.name
        for column in schema
        if column.metadata and _FIELD_ID in column.metadata
    }
    if found or mapping is None:
        return found
    return {
        mapped.field_id: name
        for mapped in mapping.root
        if mapped.field_id is not None
        for name in mapped.names
        if name in schema.names
    }


def _batch_records(group: pq.RowGroupMetaData, names: set[str]) -> int:
    """How many records of a row group make a batch of these columns."""
    chunks = (group.column(place) for place in range(group.num_columns))
    size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.partition(".")[0] in names)
    per_record = size / max(1, group.num_rows) + 1
    return max(1, min(BATCH_RECORDS, int(BATCH_BYTES / per_record)))


def _input(io: FileIO, path: str) -> InputFile:
    """The file at ``path``, every character of which is part of its name; PyIceberg would end it at a `?` or a `#`."""
    plain = _QUERY.split(path, maxsplit=1)[0]
    if plain == path or not isinstance(io, PyArrowFileIO):
        return io.new_input(path)
    scheme, netloc, place = PyArrowFileIO.parse_location(plain, io.properties)
    return PyArrowFile(path, f"{place}{path[len(plain) :]}", io.fs_by_scheme(scheme, netloc))


@lru_cache(maxsize=64)
def _file_io(properties: tuple[tuple[str, str], ...], scheme: str) -> FileIO:
    return load_file_io(dict(properties), f"{scheme}://")


def _failure(subject: str, source: Source, error: Exception) -> FirnError:
    """The refusal of a damaged file, or the report of a store that failed."""
    reason = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, FileNotFoundError):
        return UnavailableError(
            f"{subject}: segment {source.path} is gone: {reason}; try again, as the table may have moved on"
        )
    # Arrow tells of damage and of a store's answer alike; errors of the machine have a number, those of S3 a name.
    if isinstance(error, OSError) and (error.errno is not None or "AWS Error" in reason):
        return UnavailableError(f"{subject}: segment {source.path} can't be read now: {reason}; try again later")
    return RefusedError(
        f"{subject}: segment {source.path} is not readable as Parquet: {reason}; allowed: a whole Parquet file of "
        f"{source.records} records"
    )
