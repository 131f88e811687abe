"""Data files of any writer in the table's present columns and types, where what can't be understood is refused (C26);
and those that Firn writes, with field ids, metrics and the table's own write properties."""

import decimal
import pickle
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from firnlake.errors import RefusedError
from firnlake.iceberg.data_files import BATCH_BYTES, DataFiles, Source
from firnlake.iceberg.parquet import DICTIONARY_OF, ParquetFileWriter, WriteOptions

SPEC = PartitionSpec(PartitionField(7, 1000, IdentityTransform(), "level"))
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def files(*fields: NestedField, names: NameMapping | None = None) -> DataFiles:
    return DataFiles("db.t", "table db.t", Schema(*fields, NestedField(7, "level", LongType())), {0: SPEC}, names, {})


def field(number: int, name: str, kind: IcebergType, *, required: bool = False) -> NestedField:
    return NestedField(number, name, kind, required=required)


def with_id(number: int, name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def source(path: Path, records: int, kind: str = "PARQUET") -> Source:
    return Source(f"file://{path}", path.stat().st_size, records, 0, (3,), kind)


def stored(path: Path, columns: Sequence[tuple[pa.Field, Sequence[Any]]], **options: Any) -> Source:
    arrays = [pa.array(values, column.type) for column, values in columns]
    table = pa.Table.from_arrays(arrays, schema=pa.schema([column for column, _ in columns]))
    pq.write_table(table, path, **options)
    return source(path, table.num_rows)


def read(data: DataFiles, of: Source, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    return [row for batch in data.batches(of, columns) for row in batch.to_pylist()]


def test_columns_are_found_by_id_and_what_the_file_lacks_is_its_partition_value_or_null(tmp_path: Path) -> None:
    of = stored(tmp_path / "a", [(with_id(2, "b", pa.int64()), [1, 2]), (with_id(1, "a", pa.int64()), [3, 4])])
    data = files(field(1, "b", LongType()), field(2, "a", LongType()), field(3, "added", StringType()))
    rows = [{"a": 1, "b": 3, "added": None, "level": 3}, {"a": 2, "b": 4, "added": None, "level": 3}]
    assert read(data, of, ["a", "b", "added", "level"]) == read(data, of) == rows


def test_files_without_ids_are_read_by_the_name_mapping(tmp_path: Path) -> None:
    of = stored(tmp_path / "a", [(pa.field("old", pa.int64()), [1])])
    names = NameMapping([MappedField.model_validate({"field-id": 1, "names": ["a", "old"]})])
    assert read(files(field(1, "a", LongType()), names=names), of, ["a"]) == [{"a": 1}]
    with pytest.raises(RefusedError, match=r"table db\.t: .* no field ids; allowed: .*schema\.name-mapping\.default"):
        read(files(field(1, "a", LongType())), of)


@pytest.mark.parametrize(
    ("kind", "values", "now", "expected"),
    [
        (pa.int32(), [1], LongType(), 1),
        (pa.decimal128(5, 2), [Decimal("1.50")], DecimalType(9, 2), Decimal("1.50")),
        (pa.timestamp("ms", tz="UTC"), [NOON], TimestamptzType(), NOON),
        (pa.timestamp("ns", tz="UTC"), [NOON], TimestamptzType(), NOON),
        (pa.binary(16), [b"u" * 16], UUIDType(), b"u" * 16),
        (pa.dictionary(pa.int32(), pa.string()), ["x"], StringType(), "x"),
    ],
)
def test_types_are_the_tables(
    tmp_path: Path, kind: pa.DataType, values: list[object], now: IcebergType, expected: object
) -> None:
    of = stored(tmp_path / "a", [(with_id(1, "a", kind), values)])
    assert read(files(field(1, "a", now)), of, ["a"]) == [{"a": expected}]


def test_int96_timestamps_of_old_writers(tmp_path: Path) -> None:
    column = with_id(1, "a", pa.timestamp("us"))
    of = stored(
        tmp_path / "a", [(column, [NOON.replace(tzinfo=None)])], use_deprecated_int96_timestamps=True, version="1.0"
    )
    assert read(files(field(1, "a", TimestamptzType())), of, ["a"]) == [{"a": NOON}]


def test_nested_fields_follow_their_ids(tmp_path: Path) -> None:
    inner = pa.struct([with_id(3, "key", pa.string()), with_id(4, "value", pa.binary())])
    of = stored(
        tmp_path / "a",
        [
            (with_id(1, "headers", pa.list_(with_id(2, "element", inner))), [[{"key": "k", "value": b"v"}], None, []]),
            (
                with_id(5, "tags", pa.map_(pa.string(), with_id(8, "value", inner))),
                [[("x", {"key": "k", "value": None})], [], None],
            ),
        ],
    )
    renamed = StructType(
        field(9, "extra", LongType()), field(4, "content", StringType()), field(3, "name", StringType())
    )
    data = files(field(1, "headers", ListType(2, renamed)), field(5, "tags", MapType(10, StringType(), 8, renamed)))
    assert read(data, of, ["headers", "tags"]) == [
        {
            "headers": [{"extra": None, "content": "v", "name": "k"}],
            "tags": [("x", {"extra": None, "content": None, "name": "k"})],
        },
        {"headers": None, "tags": []},
        {"headers": [], "tags": None},
    ]


def test_c26_other_formats_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    path.write_bytes(b"ORC")
    with pytest.raises(RefusedError, match=r"a\.orc is an ORC file; allowed: PARQUET"):
        read(files(), source(path, 1, "ORC"))


def test_batches_are_bounded_by_bytes(tmp_path: Path) -> None:
    """A column of far more than a batch comes in pieces; a single record may be larger than one."""
    values = [b"x" * (1 << 20)] * 40 + [b"y" * (3 * BATCH_BYTES)]
    of = stored(tmp_path / "a", [(with_id(1, "a", pa.large_binary()), values)], use_dictionary=False)
    data = pickle.loads(pickle.dumps(files(field(1, "a", StringType()))))  # noqa: S301  # as it travels to a task
    sizes = [(batch.num_rows, batch.nbytes) for batch in data.batches(of, ["a"])]
    assert sum(rows for rows, _ in sizes) == 41
    assert max(size for _, size in sizes) < 6 * BATCH_BYTES


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


def write(path: Path, properties: dict[str, str], *batches: pa.RecordBatch) -> DataFile:
    output = PyArrowFileIO().new_output(f"file://{path}")
    writer = ParquetFileWriter(output, WriteOptions(SCHEMA, properties), 7, ("t",))
    for batch in batches:
        writer.write(batch)
    return writer.close()


def test_the_facts_of_a_file_are_its_own(tmp_path: Path) -> None:
    file = write(tmp_path / "a", {}, BATCH, BATCH.slice(1, 2))
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
    assert bloom.file_size_in_bytes > (tmp_path / "ZSTD").stat().st_size
    write(tmp_path / "plain", {f"{DICTIONARY_OF}{name}": "false" for name in ("price", "key", "offset")}, BATCH)
    group = pq.read_metadata(tmp_path / "plain").row_group(0)
    chunks = [group.column(place) for place in range(group.num_columns)]
    assert [one.path_in_schema for one in chunks if one.has_dictionary_page] == ["id", "at", "city"]
