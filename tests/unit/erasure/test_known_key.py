"""C30: with the key at hand only row groups are read that may hold it, by bounds and bloom filters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, IcebergType, IntegerType, LongType, NestedField, StringType

from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.lanes.erasure.read import KnownKey

TYPES: dict[str, tuple[IcebergType, pa.DataType, Any]] = {
    "binary": (BinaryType(), pa.large_binary(), st.binary(max_size=40)),
    "string": (StringType(), pa.large_string(), st.text(max_size=40)),
    "int": (IntegerType(), pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (LongType(), pa.int64(), st.integers(-(2**63), 2**63 - 1)),
}


def stored(path: Path, columns: dict[str, pa.Array], *, per_group: int, filtered: Sequence[str] = ()) -> Source:
    """A file with these columns, whose field ids are their places from 1."""
    fields = [
        pa.field(name, values.type, metadata={"PARQUET:field_id": str(place)})
        for place, (name, values) in enumerate(columns.items(), 1)
    ]
    table = pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))
    filters: dict[str, dict[str, int]] = {name: {} for name in filtered}
    pq.write_table(table, path, row_group_size=per_group, bloom_filter_options=filters or None)
    return Source(f"file://{path}", path.stat().st_size, table.num_rows, 0, ())


def groups(source: Source, kinds: dict[str, IcebergType], **key: Any) -> list[int]:
    """The row groups that may hold the ``key``."""
    schema = Schema(*(NestedField(place, name, kind) for place, (name, kind) in enumerate(kinds.items(), 1)))
    with DataFiles("db.t", "table db.t", schema, {}, None, {}).opened(source) as file:
        return KnownKey(b"", key).row_groups(file)


def numbered(*numbers: int) -> pa.Array:
    return pa.array([b"key-%04d" % one for one in numbers], pa.large_binary())


@pytest.mark.parametrize("kind", TYPES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(data=st.data())
def test_a_row_group_with_the_key_is_read(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    iceberg, arrow, values = TYPES[kind]
    key, *others = data.draw(st.lists(values, min_size=1, max_size=10))
    keys = data.draw(st.lists(st.none() | st.sampled_from([key, *others]), min_size=1, max_size=30))
    source = stored(tmp_path / "a", {"key": pa.array(keys, arrow)}, per_group=4, filtered=["key"])
    holding = {place // 4 for place, one in enumerate(keys) if one == key}
    assert holding <= set(groups(source, {"key": iceberg}, key=key))


@pytest.mark.parametrize("name", ["plain", "[a]*?.parquet", "a#b c%20d"])
def test_bloom_filters_skip_what_bounds_do_not(tmp_path: Path, name: str) -> None:
    keys = {"key": numbered(0, 500, 900, 0, 600, 900, 1, 2, 3)}
    without = stored(tmp_path / f"{name}-1", keys, per_group=3)
    having = stored(tmp_path / f"{name}-2", keys, per_group=3, filtered=["key"])
    kinds: dict[str, IcebergType] = {"key": BinaryType()}
    assert groups(without, kinds, key=b"key-0600") == [0, 1], "bounds leave out the last row group only"
    assert groups(having, kinds, key=b"key-0600") == [1]
    assert groups(having, kinds, key=b"key-0700") == []


def test_a_key_of_two_columns_has_both(tmp_path: Path) -> None:
    columns = {"region": numbered(1, 1, 2, 2), "id": numbered(7, 8, 7, 8)}
    source = stored(tmp_path / "a", columns, per_group=1, filtered=["region", "id"])
    assert groups(source, {"region": BinaryType(), "id": BinaryType()}, region=b"key-0002", id=b"key-0007") == [2]


def test_a_renamed_column_keeps_its_filter(tmp_path: Path) -> None:
    source = stored(tmp_path / "a", {"old.name": numbered(0, 9, 1, 9)}, per_group=2, filtered=["old.name"])
    assert groups(source, {"key": BinaryType()}, key=b"key-0001") == [1]


def test_e4_a_filter_of_a_column_whose_name_differs_only_in_case_says_nothing(tmp_path: Path) -> None:
    columns = {"Key": numbered(0, 9), "key": numbered(4, 6), "other": numbered(1, 3)}
    source = stored(tmp_path / "a", columns, per_group=2, filtered=list(columns))
    kinds: dict[str, IcebergType] = dict.fromkeys(columns, BinaryType())
    assert groups(source, kinds, key=b"key-0004") == groups(source, kinds, Key=b"key-0009") == [0]
    assert groups(source, kinds, other=b"key-0002") == []


def test_a_column_that_the_file_lacks_says_nothing(tmp_path: Path) -> None:
    source = stored(tmp_path / "a", {"region": numbered(1)}, per_group=1, filtered=["region"])
    assert groups(source, {"region": BinaryType(), "id": BinaryType()}, id=b"key-0007") == [0]


def test_an_int_that_became_a_long(tmp_path: Path) -> None:
    source = stored(tmp_path / "a", {"key": pa.array([1, 9, 5, 5], pa.int32())}, per_group=2, filtered=["key"])
    kinds: dict[str, IcebergType] = {"key": LongType()}
    assert groups(source, kinds, key=5) == [0, 1]
    assert groups(source, kinds, key=2**40) == []


def test_a_filter_that_is_not_readable_leaves_nothing_out(tmp_path: Path) -> None:
    source = stored(tmp_path / "a", {"key": numbered(0, 500, 900)}, per_group=3, filtered=["key"])
    path = tmp_path / "a"
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    start, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
    content[start : start + length] = b"\xff" * length
    path.write_bytes(content)
    assert groups(source, {"key": BinaryType()}, key=b"key-0500") == [0]
