"""Reads and writes Parquet files, always with page checksums (C23); writes field ids, and returns Iceberg's metrics."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.typedef import Record
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
)

DICTIONARY_OF = "write.parquet.dict-encoding-enabled.column."
"""Prefix of an Iceberg table property; a column name follows (Iceberg docs, "Configuration", write properties)."""

open_file: Final = partial(pq.ParquetFile, page_checksum_verification=True)
"""``ParquetFile`` that verifies page checksums."""
read_file: Final = partial(pq.read_table, page_checksum_verification=True)
"""``read_table`` that verifies page checksums."""
file_writer: Final = partial(pq.ParquetWriter, write_page_checksum=True)
"""``ParquetWriter`` that writes page checksums."""
write_file: Final = partial(pq.write_table, write_page_checksum=True)
"""``write_table`` that writes page checksums."""

_FIELD_ID: Final = b"PARQUET:field_id"


def stored_type(kind: pa.DataType) -> pa.DataType:
    """``kind`` with extension types replaced by their storage types; for example, a UUID is stored as 16 bytes."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_struct(kind):
        return pa.struct([_with_type(part, stored_type(part.type)) for part in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(_with_type(kind.value_field, stored_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            _with_type(kind.key_field, stored_type(kind.key_type)),
            _with_type(kind.item_field, stored_type(kind.item_type)),
        )
    return kind


def fitted(values: pa.Array, written: pa.Field, column: NestedField, kind: pa.DataType) -> pa.Array:
    """Convert ``values`` of the file's field ``written`` to ``kind``, the type of the table's ``column``."""
    if values.type.equals(kind):
        return values
    if _renamed(written, column.field_type):
        values = _reshaped(values, written, column.field_type, kind)
        if values.type.equals(kind):
            return values
    # Nanoseconds are truncated to Iceberg's microseconds; no other promotion loses information.
    return values.cast(kind, safe=not pa.types.is_timestamp(values.type))


def _renamed(written: pa.Field, kind: IcebergType) -> bool:
    """True when a nested struct's fields differ from the table's: added, dropped, renamed or reordered."""
    match kind:
        case StructType():
            parts = list(written.type)
            if [part.name for part in parts] != [part.name for part in kind.fields]:
                return True
            return any(_renamed(part, own.field_type) for part, own in zip(parts, kind.fields, strict=True))
        case ListType():
            return _renamed(written.type.value_field, kind.element_type)
        case MapType():
            return _renamed(written.type.item_field, kind.value_type)
        case _:
            return False


def _reshaped(values: pa.Array, written: pa.Field, kind: IcebergType, wanted: pa.DataType) -> pa.Array:
    """``values`` with the fields of every nested struct resolved by id, or by name if the file has no ids."""
    match kind:
        case StructType():
            own = {_id(part) or part.name: place for place, part in enumerate(written.type)}
            parts = []
            for field in kind.fields:
                place = own.get(field.field_id, own.get(field.name))
                target = wanted.field(field.name)
                if place is None:
                    parts.append(pa.nulls(len(values), target.type))
                else:
                    inner = fitted(values.field(place), written.type.field(place), field, target.type)
                    parts.append(inner)
            return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=values.is_null())
        case ListType():
            element = _reshaped(values.values, written.type.value_field, kind.element_type, wanted.value_type)
            return pa.LargeListArray.from_arrays(values.offsets, element, type=wanted, mask=values.is_null())
        case MapType():
            items = _reshaped(values.items, written.type.item_field, kind.value_type, wanted.item_type)
            keys = values.keys.cast(wanted.key_type)
            return pa.MapArray.from_arrays(values.offsets, keys, items, type=wanted, mask=values.is_null())
        case _:
            return values.cast(wanted)


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


_BLOOM_FILTER_OF: Final = "write.parquet.bloom-filter-enabled.column."
_ROW_GROUP: Final = 32 << 20
"""Maximum Arrow bytes per row group, which a writer holds in memory. A smaller value of the table property
`write.parquet.row-group-size-bytes` lowers this limit; a larger value does not raise it."""
_UNCOMPRESSED: Final = {"uncompressed": "none"}
_LEVEL: Final = {"zstd": 3, "gzip": 6, "brotli": 1}


@dataclass(frozen=True)
class WriteOptions:
    """Settings for writing the data files of a table; can be pickled."""

    schema: Schema
    properties: Mapping[str, str]

    def arrow_schema(self) -> pa.Schema:
        """The schema of the files, including field ids."""
        return schema_to_pyarrow(self.schema)

    @property
    def row_group_bytes(self) -> int:
        said = self.properties.get("write.parquet.row-group-size-bytes", "")
        return min(_ROW_GROUP, int(said)) if re.fullmatch("[1-9][0-9]{0,17}", said) else _ROW_GROUP

    def parquet(self) -> dict[str, Any]:
        """Options of pyarrow's writer."""
        codec = self.properties.get("write.parquet.compression-codec", "zstd").lower()
        level = self.properties.get("write.parquet.compression-level")
        filters: dict[str, dict[str, Any]] = {
            name.removeprefix(_BLOOM_FILTER_OF): {}
            for name, value in self.properties.items()
            if name.startswith(_BLOOM_FILTER_OF) and value.lower() == "true"
        }
        return {
            "compression": _UNCOMPRESSED.get(codec, codec),
            "compression_level": int(level) if level else _LEVEL.get(codec),
            "use_dictionary": self._with_dictionary(),
            "data_page_size": int(self.properties.get("write.parquet.page-size-bytes", 1 << 20)),
            "store_decimal_as_integer": True,
            "store_schema": False,
            **({"bloom_filter_options": filters} if filters else {}),
        }

    def _with_dictionary(self) -> list[str]:
        """Columns with a Parquet dictionary. For values that never repeat, a dictionary would be built in vain."""
        every = parquet_path_to_id_mapping(self.schema)
        return [path for path in every if self._repeats(path.partition(".")[0])]

    def _repeats(self, column: str) -> bool:
        return self.properties.get(f"{DICTIONARY_OF}{column}", "true").lower() == "true"


@dataclass(frozen=True)
class WrittenFile:
    """A written data file: its path, its size in bytes and its metrics. Unlike DataFile, it can be pickled."""

    path: str
    bytes: int
    records: int
    partition: tuple[Any, ...]
    metrics: Mapping[str, Any]

    def data_file(self, spec_id: int) -> DataFile:
        """The file as a manifest lists it."""
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Record(*self.partition),
            file_size_in_bytes=self.bytes,
            **self.metrics,
        )
        file.spec_id = spec_id
        return file


class ParquetFileWriter:
    """Writes batches to one file; a row group ends when it reaches the memory limit."""

    def __init__(self, output: OutputFile, options: WriteOptions, partition: tuple[Any, ...]) -> None:
        self._path = output.location
        self._options = options
        self._partition = partition
        self._schema = options.arrow_schema()
        self._stream = output.create()
        self._footers: list[pq.FileMetaData] = []
        self._writer = file_writer(self._stream, self._schema, metadata_collector=self._footers, **options.parquet())
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    @property
    def bytes(self) -> int:
        """Approximate size of the file so far, without buffered records."""
        return int(self._stream.tell())

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the records of ``batch``, whose columns are those of the table in the table's order."""
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= self._options.row_group_bytes:
            self._flush()

    def close(self) -> WrittenFile:
        """Finish the file, and return it with the metrics in its footer."""
        self._flush()
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        (footer,) = self._footers
        plan = compute_statistics_plan(self._options.schema, dict(self._options.properties))
        metrics = data_file_statistics_from_parquet_metadata(
            footer, plan, parquet_path_to_id_mapping(self._options.schema)
        ).to_serialized_dict()
        return WrittenFile(self._path, size, footer.num_rows, self._partition, metrics)

    def abandon(self) -> None:
        """Close the writer after an error; nothing refers to the file."""
        # A failed writer has no footer to collect and raises RuntimeError.
        with suppress(OSError, pa.ArrowException, RuntimeError):
            self._writer.close()
        with suppress(OSError, pa.ArrowException):
            self._stream.close()

    def _flush(self) -> None:
        if not self._held:
            return
        arrays = [
            pa.chunked_array([_typed(batch.column(place), column.type) for batch in self._held], column.type)
            for place, column in enumerate(self._schema)
        ]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._held, self._held_bytes = [], 0


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast ``values`` to the file's type ``kind``, which may have other metadata or be an extension type (UUID)."""
    if values.type.equals(kind):
        return values
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, values)
    return values.cast(kind)
