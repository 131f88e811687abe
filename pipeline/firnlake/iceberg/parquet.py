"""Opens and writes Parquet files, always with page checksums (C23): with field ids, and with Iceberg's metrics."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType

from firnlake.errors import RefusedError
from firnlake.iceberg.files import whole_number

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


_WRITE: Final = "write.parquet."
_BLOOM_FILTER_OF: Final = f"{_WRITE}bloom-filter-enabled.column."
_METRICS: Final = "write.metadata.metrics."
_METRICS_OF: Final = (f"{_METRICS}default", f"{_METRICS}column.")
_MODE: Final = re.compile(r"none|counts|full|truncate\(0*[1-9][0-9]{0,8}\)")
_ROW_GROUP: Final = 32 << 20
"""Maximum Arrow bytes per row group, which a writer holds in memory. A smaller value of the table property
`write.parquet.row-group-size-bytes` lowers this limit; a larger value does not raise it."""
_PAGE: Final = 1 << 20
_UNCOMPRESSED: Final = {"uncompressed": "none", "lz4_raw": "lz4"}
_CODECS: Final = ("zstd", "gzip", "brotli", "snappy", "lz4", "uncompressed")
_LEVEL: Final = {"zstd": 3, "gzip": 6, "brotli": 1}
"""The level of each codec that has one."""


@dataclass(frozen=True)
class WriteOptions:
    """Settings for writing the data files of a table; can be pickled. Messages about a property name the ``table``."""

    schema: Schema
    properties: Mapping[str, str]
    table: str = ""
    content: DataFileContent = DataFileContent.DATA

    def arrow_schema(self) -> pa.Schema:
        """The schema of the files, including field ids."""
        return schema_to_pyarrow(self.schema)

    @property
    def row_group_bytes(self) -> int:
        return min(_ROW_GROUP, self._number("row-group-size-bytes", _ROW_GROUP))

    def check(self) -> None:
        """Raise RefusedError for a property with which no file can be written."""
        self.parquet()
        self._number("row-group-size-bytes", _ROW_GROUP)
        for name, value in self.properties.items():
            if name.startswith(_METRICS_OF) and not _MODE.fullmatch(value.strip().lower()):
                raise self._refused(name, "none, counts, full, or truncate(16) with any length")

    def parquet(self) -> dict[str, Any]:
        """Options of pyarrow's writer."""
        name = f"{_WRITE}compression-codec"
        codec = self.properties.get(name, "zstd").lower()
        codec = _UNCOMPRESSED.get(codec, codec)
        if codec != "none" and codec not in _CODECS:
            raise self._refused(name, ", ".join(_CODECS))
        every = parquet_path_to_id_mapping(self.schema)
        filtered = [path for path in every if self._is_true(f"{_BLOOM_FILTER_OF}{path}", otherwise=False)]
        booleans = {path for path, number in every.items() if self.schema.find_type(number) == BooleanType()}
        return {
            "compression": codec,
            "compression_level": self._level(codec),
            # For values that never repeat, a dictionary would be built in vain.
            "use_dictionary": [
                path for path in every if self._is_true(f"{DICTIONARY_OF}{path.partition('.')[0]}", otherwise=True)
            ],
            "data_page_size": self._number("page-size-bytes", _PAGE),
            "store_decimal_as_integer": True,
            "store_schema": False,
            # Parquet has none for booleans.
            "bloom_filter_options": {path: {} for path in filtered if path not in booleans} or None,
        }

    def _level(self, codec: str) -> int | None:
        """The level of compression; None if ``codec`` has none."""
        name = f"{_WRITE}compression-level"
        if codec not in _LEVEL or not (text := self.properties.get(name)):
            return _LEVEL.get(codec)
        least, most = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
        if not re.fullmatch("-?[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise self._refused(name, f"a whole number from {least} to {most} for {codec}")
        return int(text)

    def _number(self, name: str, default: int) -> int:
        return whole_number(self.table, self.properties, f"{_WRITE}{name}", default)

    def _is_true(self, name: str, *, otherwise: bool) -> bool:
        text = self.properties.get(name, str(otherwise)).lower()
        if text not in ("true", "false"):
            raise self._refused(name, "true or false")
        return text == "true"

    def _refused(self, name: str, allowed: str) -> RefusedError:
        where = f"table {self.table}: " if self.table else ""
        return RefusedError(f"{where}property {name} is {self.properties[name]!r}; allowed: {allowed}")


class ParquetFileWriter:
    """Writes batches to one file; a row group ends when it reaches the memory limit."""

    def __init__(self, output: OutputFile, options: WriteOptions, spec_id: int, partition: tuple[Any, ...]) -> None:
        """``partition`` are the values of the file's records for the partition spec ``spec_id``."""
        self._path = output.location
        self._options = options
        self._spec_id = spec_id
        self._partition = partition
        options.check()
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

    def close(self) -> DataFile:
        """Finish the file, and return it as a manifest lists it, with the metrics in its footer."""
        self._flush()
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        (footer,) = self._footers
        file = DataFile.from_args(
            content=self._options.content,
            file_path=self._path,
            file_format=FileFormat.PARQUET,
            partition=Record(*self._partition),
            file_size_in_bytes=size,
            **_metrics(footer, self._options),
        )
        file.spec_id = self._spec_id
        return file

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
        table = pa.Table.from_batches(self._held).cast(self._schema)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._held, self._held_bytes = [], 0


def _metrics(footer: pq.FileMetaData, options: WriteOptions) -> Mapping[str, Any]:
    """The metrics that ``footer`` has of a file; counts alone if there is a bound that can't be told, such as a time
    that Python has no calendar for. Readers do without bounds."""
    paths = parquet_path_to_id_mapping(options.schema)
    plan = compute_statistics_plan(options.schema, dict(options.properties))
    try:
        return data_file_statistics_from_parquet_metadata(footer, plan, paths).to_serialized_dict()
    except Exception:  # noqa: BLE001  # whatever PyIceberg raises
        plan = {number: replace(one, mode=MetricsMode(MetricModeTypes.COUNTS)) for number, one in plan.items()}
        return data_file_statistics_from_parquet_metadata(footer, plan, paths).to_serialized_dict()
