"""Writes one data file of an Iceberg table: Parquet with the table's field ids, properties and metrics.

Source: Iceberg docs, "Configuration", write properties; Iceberg spec, "Data Files" and "Parquet".
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
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
from pyiceberg.typedef import Record

from pipeline.lake import checked_parquet
from pipeline.lake.records import DICTIONARY_OF

_BLOOM_FILTER_OF: Final = "write.parquet.bloom-filter-enabled.column."
_ROW_GROUP: Final = 32 << 20
"""Maximum Arrow bytes per row group, and so in a writer's memory. A smaller `write.parquet.row-group-size-bytes` of the
table lowers it; a larger one does not raise it."""
_UNCOMPRESSED: Final = {"uncompressed": "none"}
_LEVEL: Final = {"zstd": 3, "gzip": 6, "brotli": 1}


@dataclass(frozen=True)
class WriteOptions:
    """Settings for writing the data files of a table; picklable."""

    schema: Schema
    properties: Mapping[str, str]

    def arrow_schema(self) -> pa.Schema:
        """The schema of the files, field ids included."""
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
        """Columns with a Parquet dictionary. Where values never repeat, Parquet builds one and throws it away."""
        every = parquet_path_to_id_mapping(self.schema)
        return [path for path in every if self._repeats(path.partition(".")[0])]

    def _repeats(self, column: str) -> bool:
        return self.properties.get(f"{DICTIONARY_OF}{column}", "true").lower() == "true"


@dataclass(frozen=True)
class WrittenFile:
    """A written data file: path, size in bytes and metrics; picklable, unlike DataFile."""

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
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
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
        self._writer = checked_parquet.file_writer(
            self._stream, self._schema, metadata_collector=self._footers, **options.parquet()
        )
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    @property
    def bytes(self) -> int:
        """Approximate file size so far; buffered records do not count."""
        return int(self._stream.tell())

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the records of ``batch``, which has the table's columns in the table's order."""
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= self._options.row_group_bytes:
            self._flush()

    def close(self) -> WrittenFile:
        """Finish the file; its metrics come from its own footer."""
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
    """Cast ``values`` to the file's type, which differs in metadata, or by an extension type such as UUID."""
    if values.type.equals(kind):
        return values
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, values)
    return values.cast(kind)
