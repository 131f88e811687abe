"""Data files as Iceberg wants them: field ids, metrics, and the table's own write properties."""

import decimal
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DecimalType, LongType, NestedField, StringType, TimestamptzType, UUIDType

from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.parquet import DICTIONARY_OF, ParquetFileWriter, WriteOptions, WrittenFile

SCHEMA = Schema(
    NestedField(1, "key", BinaryType(), required=False),
    NestedField(2, "offset", LongType(), required=False),
    NestedField(3, "id", UUIDType(), required=False),
    NestedField(4, "price", DecimalType(9, 2), required=False),
    NestedField(5, "at", TimestamptzType(), required=False),
    NestedField(6, "city", StringType(), required=False),
)
IDS = [uuid.UUID(int=number) for number in range(4)]
TYPES = DataFiles("db.t", "table db.t", SCHEMA, {}, None, {}).arrow_schema()
BATCH = pa.record_batch(
    [
        pa.array([b"a", None, b"c", b"d" * 40], pa.large_binary()),
        pa.array([3, 1, 2, 9], pa.int64()),
        pa.array([one.bytes for one in IDS], pa.binary(16)),
        pa.array([decimal.Decimal("1.50")] * 4, pa.decimal128(9, 2)),
        pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 4, pa.timestamp("us", tz="UTC")),
        pa.array(["x"] * 4, pa.large_string()),
    ],
    schema=TYPES,
)


def write(path: Path, properties: dict[str, str], *batches: pa.RecordBatch) -> WrittenFile:
    output = PyArrowFileIO().new_output(f"file://{path}")
    writer = ParquetFileWriter(output, WriteOptions(SCHEMA, properties), ("t",))
    for batch in batches:
        writer.write(batch)
    return writer.close()


def test_the_facts_of_a_file_are_its_own(tmp_path: Path) -> None:
    found = write(tmp_path / "a", {}, BATCH, BATCH.slice(1, 2))
    file = found.data_file(7)
    assert (file.spec_id, file.record_count, file.file_size_in_bytes) == (7, 6, (tmp_path / "a").stat().st_size)
    assert file.partition[0] == "t"
    assert (file.null_value_counts[1], file.value_counts[1]) == (2, 6)
    assert int.from_bytes(file.lower_bounds[2], "little") == 1
    assert int.from_bytes(file.upper_bounds[2], "little") == 9
    assert file.upper_bounds[1] == b"d" * 15 + b"e", "cut at 16 bytes, and rounded up"
    schema = pq.read_schema(tmp_path / "a")
    assert [int(schema.field(name).metadata[b"PARQUET:field_id"]) for name in schema.names] == [1, 2, 3, 4, 5, 6]


def test_the_tables_write_properties_hold(tmp_path: Path) -> None:
    for asked, codec in {"": "ZSTD", "snappy": "SNAPPY", "GZIP": "GZIP", "uncompressed": "UNCOMPRESSED"}.items():
        write(tmp_path / codec, {"write.parquet.compression-codec": asked} if asked else {}, BATCH)
        assert pq.read_metadata(tmp_path / codec).row_group(0).column(0).compression == codec
    write(tmp_path / "groups", {"write.parquet.row-group-size-bytes": "100"}, BATCH, BATCH)
    assert pq.read_metadata(tmp_path / "groups").num_row_groups == 2
    bloom = write(tmp_path / "bloom", {"write.parquet.bloom-filter-enabled.column.key": "true"}, BATCH)
    assert bloom.bytes > (tmp_path / "ZSTD").stat().st_size
    write(tmp_path / "plain", {f"{DICTIONARY_OF}{name}": "false" for name in ("price", "key", "offset")}, BATCH)
    group = pq.read_metadata(tmp_path / "plain").row_group(0)
    chunks = [group.column(place) for place in range(group.num_columns)]
    assert [one.path_in_schema for one in chunks if one.has_dictionary_page] == ["id", "at", "city"]
