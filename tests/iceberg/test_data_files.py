"""Data files of any writer in the table's present columns and types; what can't be understood is refused (C26)."""

import pickle
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from firnlake.errors import RefusedError
from firnlake.iceberg.data_files import BATCH_BYTES, DataFiles, Source

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


def test_columns_are_found_by_id_whatever_the_file_calls_them(tmp_path: Path) -> None:
    of = stored(tmp_path / "a", [(with_id(2, "b", pa.int64()), [1, 2]), (with_id(1, "a", pa.int64()), [3, 4])])
    data = files(field(1, "b", LongType()), field(2, "a", LongType()))
    assert read(data, of, ["a", "b"]) == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]


def test_a_column_that_the_file_lacks_is_its_partition_value_or_null(tmp_path: Path) -> None:
    of = stored(tmp_path / "a", [(with_id(1, "a", pa.int64()), [1])])
    data = files(field(1, "a", LongType()), field(2, "added", StringType()))
    assert read(data, of) == [{"a": 1, "added": None, "level": 3}]
    assert read(data, of, ["level"]) == [{"level": 3}]


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
        (pa.float32(), [0.5], DoubleType(), 0.5),
        (pa.decimal128(5, 2), [Decimal("1.50")], DecimalType(9, 2), Decimal("1.50")),
        (pa.timestamp("ms", tz="UTC"), [NOON], TimestamptzType(), NOON),
        (pa.timestamp("ns", tz="UTC"), [NOON], TimestamptzType(), NOON),
        (pa.timestamp("us"), [NOON.replace(tzinfo=None)], TimestampType(), NOON.replace(tzinfo=None)),
        (pa.date32(), [date(2026, 1, 1)], DateType(), date(2026, 1, 1)),
        (pa.binary(16), [b"u" * 16], UUIDType(), b"u" * 16),
        (pa.dictionary(pa.int32(), pa.string()), ["x"], StringType(), "x"),
        (pa.string(), ["x"], StringType(), "x"),
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
