"""Reads the data files of one table as Arrow batches with the table's current columns and types.

Columns are resolved by field id or, in files without ids, by the table's name mapping. If a file lacks a column, the
value is the file's partition value, or NULL (Iceberg spec, "Column Projection"). The cleaner and the judge share this
module and FileIO, but none of the compaction rules.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputFile, load_file_io
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, MapType, NestedField, StructType

from firnlake.errors import FirnError, LostError, RefusedError, UnavailableError, contained
from firnlake.iceberg import parquet
from firnlake.iceberg.files import located

BATCH_BYTES: Final = 16 << 20
"""Approximate uncompressed bytes per batch; a single record may be larger."""
BATCH_RECORDS: Final = 1 << 17
"""Maximum number of records per batch, however small the records are."""
_NAME_MAPPING: Final = "schema.name-mapping.default"


@dataclass(frozen=True)
class Source:
    """A data file as a manifest lists it: size in bytes, record count, partition spec and partition values."""

    path: str
    bytes: int
    records: int
    spec_id: int
    partition: tuple[Any, ...]
    format: str = FileFormat.PARQUET.value
    kind: str = "segment"
    """The noun for the file in messages."""

    @classmethod
    def of(cls, file: DataFile) -> Self:
        """The source that ``file`` describes."""
        values, kind = partition_values(file), FileFormat(file.file_format).value
        return cls(file.file_path, file.file_size_in_bytes, file.record_count, file.spec_id, values, kind)


def partition_values(file: DataFile) -> tuple[Any, ...]:
    """Partition values in the order of the spec's fields."""
    return tuple(file.partition[position] for position in range(len(file.partition)))


def name_mapping(table: Table) -> NameMapping | None:
    """The name mapping of ``table``; raises RefusedError if it can't be read."""
    try:
        return table.name_mapping()
    except ValueError as error:
        raise RefusedError(
            f"table {'.'.join(table.name())}: property {_NAME_MAPPING} is "
            f"{table.properties[_NAME_MAPPING][:200]!r}; allowed: a name mapping in JSON (Iceberg spec)"
        ) from error


@dataclass(frozen=True)
class DataFiles:
    """Opens and interprets the data files of one table. Tasks receive a pickled copy, which contains credentials.

    Messages begin with ``subject``, which names the table and, if known, the topic partition.
    """

    table: str
    subject: str
    schema: Schema
    specs: Mapping[int, PartitionSpec]
    names: NameMapping | None
    properties: Mapping[str, str] = field(repr=False)  # contains credentials

    @classmethod
    def of(cls, table: Table, subject: str | None = None) -> Self:
        """The data files of ``table`` in its current schema; messages name the table, or ``subject`` if given."""
        name = ".".join(table.name())
        return cls(
            name,
            subject or f"table {name}",
            table.schema(),
            table.specs(),
            name_mapping(table),
            dict(table.io.properties),
        )

    def io(self, path: str) -> FileIO:
        """The FileIO for ``path``, with the table's credentials."""
        return _file_io(tuple(sorted(self.properties.items())), path.partition("://")[0])

    def arrow_schema(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """The Arrow schema of batches of all columns, or of ``columns`` only, with 64-bit lengths and 16-byte UUIDs."""
        return self._arrow if columns is None else pa.schema([self._arrow.field(name) for name in columns])

    @cached_property
    def _arrow(self) -> pa.Schema:
        """The full Arrow schema, built once because a table may have many small files."""
        full = schema_to_pyarrow(self.schema, include_field_ids=False)
        return pa.schema([pa.field(column.name, _stored_type(column.type)) for column in full])

    def batches(self, source: Source, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the records of ``source`` in file order, in batches of about BATCH_BYTES.

        ``columns`` selects columns by name; None selects all.

        Raises RefusedError for a file that can't be understood, UnavailableError when the store does not answer.
        """
        with self.opened(source) as file:
            yield from file.batches(columns)

    def file(self, path: str) -> InputFile:
        """The file at ``path``, taken literally, to be opened with the table's credentials."""
        io = self.io(path)
        if not isinstance(io, PyArrowFileIO) or {"?", "#"}.isdisjoint(path):
            return io.new_input(path)
        # PyIceberg would cut the path at a `?` or a `#`.
        access, place = located(io, path)
        return PyArrowFile(path, place, access)

    @contextmanager
    def opened(self, source: Source) -> Iterator["OpenFile"]:
        """Open ``source`` for repeated reads; read errors name the table and the file."""
        if source.format != FileFormat.PARQUET.value:
            raise RefusedError(
                f"{self.subject}: {source.kind} {source.path} is an {source.format} file; allowed: PARQUET (rewrite "
                "it, for example with rewrite_data_files under write.format.default=parquet)"
            )
        try:
            with self.file(source.path).open() as stream:
                file = parquet.open_file(
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
            raise _failure(self, source, error) from error
        except Exception as error:
            raise contained(error, f"{self.subject}: {source.kind} {source.path}") from error


@dataclass(frozen=True)
class OpenFile:
    """An open Parquet file, read as the columns of its table."""

    files: DataFiles
    source: Source
    file: pq.ParquetFile

    def batches(
        self, columns: Sequence[str] | None = None, row_groups: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield record batches, as ``DataFiles.batches`` does; ``row_groups`` are numbers, None selects all."""
        self._check_records()
        wanted = self.files.arrow_schema(columns)
        fields = [self.files.schema.find_field(column.name) for column in wanted]
        named = [self._names.get(field.field_id) for field in fields]
        names = [name for name in named if name is not None]
        metadata = self.file.metadata
        for group in range(metadata.num_row_groups) if row_groups is None else row_groups:
            size = _batch_records(metadata.row_group(group), set(names))
            for batch in self.file.iter_batches(size, row_groups=[group], columns=names, use_threads=False):
                arrays = [
                    self._constant(field, column.type, batch.num_rows)
                    if name is None
                    else self._column(batch.column(name), self._schema.field(name), field, column.type)
                    for field, column, name in zip(fields, wanted, named, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=wanted)

    def require(self, columns: Sequence[str]) -> None:
        """Raise RefusedError unless each of ``columns`` is in the file or among the file's partition values."""
        wanted = {name: self.files.schema.find_field(name).field_id for name in columns}
        missing = [name for name, one in wanted.items() if one not in self._names and one not in self._constants]
        if missing:
            raise RefusedError(
                f"{self.files.subject}: {self.source.kind} {self.source.path} lacks the column {missing[0]}; allowed: "
                f"a file with the columns {', '.join(columns)}"
            )

    def _check_records(self) -> None:
        records = self.file.metadata.num_rows
        if records != self.source.records:
            raise RefusedError(
                f"{self.files.subject}: {self.source.kind} {self.source.path} has a record count of {records}; "
                f"allowed: {self.source.records}, as in the table's manifest"
            )

    @cached_property
    def _schema(self) -> pa.Schema:
        return self.file.schema_arrow  # pyarrow builds it on every access

    @cached_property
    def _names(self) -> Mapping[int, str]:
        """The file's column names, by field id."""
        names = names_by_id(self._schema, self.files.names)
        if not names and len(self._schema):
            raise RefusedError(
                f"{self.files.subject}: the columns of {self.source.kind} {self.source.path} have no field ids; "
                "allowed: field ids in the file, or the table property schema.name-mapping.default"
            )
        return names

    @cached_property
    def _constants(self) -> Mapping[int, Any]:
        """Values of identity partition fields, which all records of the file have, by field id of the column."""
        fields = self.files.specs[self.source.spec_id].fields
        return {
            part.source_id: value
            for part, value in zip(fields, self.source.partition, strict=True)
            if isinstance(part.transform, IdentityTransform)
        }

    def _constant(self, column: NestedField, kind: pa.DataType, rows: int) -> pa.Array:
        value = self._constants.get(column.field_id)
        if value is None and column.required:
            raise RefusedError(
                f"{self.files.subject}: {self.source.kind} {self.source.path} lacks the required column {column.name}; "
                "allowed: a file with all required columns"
            )
        return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)

    def _column(self, values: pa.Array, found: pa.Field, column: NestedField, kind: pa.DataType) -> pa.Array:
        """``values`` of the file's field ``found`` as those of the table's ``column``, with NULL only where it may."""
        subject = f"{self.files.subject}: {self.source.kind} {self.source.path}"
        try:
            own = _converted(values, found, column, kind)
        except (pa.ArrowException, ValueError) as error:
            problem = f"has values in column {column.name} that are no {column.field_type}"
            raise RefusedError(f"{subject} {problem}: {' '.join(str(error).split())}; allowed: this type") from error
        wanted = pa.field(column.name, kind, nullable=not column.required)
        if (missing := next(_required_nulls(own, wanted), None)) is not None:
            raise RefusedError(
                f"{subject} has NULL in the required column {missing}; allowed: a value in every record (or ALTER "
                f"COLUMN {missing} DROP NOT NULL)"
            )
        return own


def _batch_records(group: pq.RowGroupMetaData, names: set[str]) -> int:
    """Number of records per batch when the columns ``names`` of a row group are read."""
    chunks = (group.column(place) for place in range(group.num_columns))
    within = tuple(f"{name}." for name in names)  # a name may have dots of its own
    size = sum(chunk.total_uncompressed_size for chunk in chunks if f"{chunk.path_in_schema}.".startswith(within))
    per_record = size / max(1, group.num_rows) + 1
    return max(1, min(BATCH_RECORDS, int(BATCH_BYTES / per_record)))


@lru_cache(maxsize=64)
def _file_io(properties: tuple[tuple[str, str], ...], scheme: str) -> FileIO:
    return load_file_io(dict(properties), f"{scheme}://")


def _failure(files: DataFiles, source: Source, error: Exception) -> FirnError:
    """The error for a damaged file (RefusedError) or a failing store (UnavailableError)."""
    reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    what, where = f"{files.subject}: a {source.kind}", f"the {source.kind} is {source.path}"
    mend = shlex.join(["firn", "mend", files.table, "--file", source.path])
    if isinstance(error, FileNotFoundError):
        remedy = f"; to take it out if it is lost: {mend}" if source.kind == "segment" else ""
        return LostError(f"{what} is gone; {where}; try again, because the table may have changed{remedy}")
    # Arrow also raises OSError for damage. An error of the machine has an errno; an error of S3 says "AWS Error".
    if isinstance(error, OSError) and (error.errno is not None or "AWS Error" in reason):
        return UnavailableError(f"{what} can't be read now: {reason}; {where}; try again later")
    remedy = f"; to take it out: {mend}" if source.kind == "segment" else ""
    return RefusedError(
        f"{what} is not readable as Parquet: {reason}; {where}; allowed: a complete Parquet file with a record count "
        f"of {source.records}{remedy}"
    )


_FIELD_ID: Final = b"PARQUET:field_id"


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """``kind`` with extension types replaced by their storage types; for example, a UUID is stored as 16 bytes."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_struct(kind):
        return pa.struct([_with_type(part, _stored_type(part.type)) for part in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(_with_type(kind.value_field, _stored_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            _with_type(kind.key_field, _stored_type(kind.key_type)),
            _with_type(kind.item_field, _stored_type(kind.item_type)),
        )
    return kind


def _converted(values: pa.Array, written: pa.Field, column: NestedField, kind: pa.DataType) -> pa.Array:
    """Convert ``values`` of the file's field ``written`` to ``kind``, the type of the table's ``column``.

    The fields of structs are resolved by id, or by name if the file has no ids. Raises ValueError or an error of Arrow
    if a value would not stay the same.
    """
    if values.type.equals(kind):
        return values
    if values.offset and pa.types.is_nested(kind):
        values = pa.concat_arrays([values])
    match column.field_type:
        case StructType(fields=fields):
            own = {_id(part) or part.name: place for place, part in enumerate(written.type)}
            parts = []
            for field in fields:
                place, target = own.get(field.field_id, own.get(field.name)), kind.field(field.name)
                if place is None:
                    parts.append(pa.nulls(len(values), target.type))
                else:
                    parts.append(_converted(values.field(place), written.type.field(place), field, target.type))
            return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
        case ListType(element_field=field):
            element = _converted(values.values, written.type.value_field, field, kind.value_type)
            return pa.LargeListArray.from_arrays(values.offsets, element, type=kind, mask=values.is_null())
        case MapType(key_field=key, value_field=value):
            keys = _converted(values.keys, written.type.key_field, key, kind.key_type)
            items = _converted(values.items, written.type.item_field, value, kind.item_type)
            return pa.MapArray.from_arrays(values.offsets, keys, items, type=kind, mask=values.is_null())
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns":
        return values.cast(kind, safe=False)  # truncated to Iceberg's microseconds
    converted = values.cast(kind)
    if pa.types.is_null(values.type) or any({values.type, kind} <= one for one in _KINDS):
        return converted
    # Arrow lets more pass than Iceberg's promotions, and loses fractions, digits and times of day on the way.
    again = converted.cast(values.type)
    if pa.types.is_floating(values.type):
        # NaN is the same as NaN.
        values, again = (one.filter(pc.invert(pc.is_nan(one).fill_null(False))) for one in (values, again))  # noqa: FBT003  # Arrow's
    if not values.equals(again):
        raise ValueError(f"no conversion from {values.type} to {kind} keeps them")
    return converted


_KINDS: Final = (
    {pa.string(), pa.large_string()},
    {pa.binary(), pa.large_binary()},
    {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()},
)
"""Kinds of types within which Arrow's conversions keep every value, or raise."""


def _required_nulls(values: pa.Array, column: pa.Field) -> Iterator[str]:
    """The name of each required field within ``column`` that is NULL in ``values``, although what holds it is not."""
    if values.null_count and not column.nullable:
        yield column.name
    kind = values.type
    if not pa.types.is_nested(kind):
        return
    held = values.drop_null() if values.null_count else values
    if pa.types.is_struct(kind):
        parts = [(held.field(place), kind.field(place)) for place in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        parts = [(held.items, kind.item_field)]
    else:
        parts = [(held.flatten(), kind.value_field)]
    for part, own in parts:
        yield from _required_nulls(part, own.with_name(f"{column.name}.{own.name}"))


def _id(part: pa.Field) -> int | None:
    held = part.metadata or {}
    return int(held[_FIELD_ID]) if _FIELD_ID in held else None


def names_by_id(schema: pa.Schema, mapping: NameMapping | None) -> dict[int, str]:
    """Names of a file's top-level columns, by field id. If the file has no ids, the name mapping gives the ids."""
    names = {field_id: column.name for column in schema if (field_id := _id(column)) is not None}
    if names or mapping is None:
        return names
    return {
        mapped.field_id: name
        for mapped in mapping.root
        if mapped.field_id is not None
        for name in mapped.names
        if name in schema.names
    }


def _with_type(part: pa.Field, kind: pa.DataType) -> pa.Field:
    return pa.field(part.name, kind, part.nullable)
