"""Where a manifest lacks a figure that decides, the footer is asked; no sentence says more than was seen (C20)."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from firnlake.engine.local import LocalEngine
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.run import run
from firnlake.table.segment import Segment
from firnlake.table.segments import read
from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add
from tests.support.foreign import relisted
from tests.support.row_deletes import data_file
from tests.support.topics import NOW

TABLE = "shop.changes"
COLUMNS = {"topic": StringType(), "shard": IntegerType(), "id": LongType(), "seq": LongType(), "at_ms": LongType()}
COLUMNS |= {"body": StringType()}
CHOICE = Choice(("id",), "seq", "at_ms", tombstone="body IS NULL", keep_partitioning=True)
BY_TOPIC = Choice(("id",), "seq", "at_ms", "topic", "shard", "body IS NULL")
METRICS = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
BOUNDS = METRICS[3:]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table without partitions, so that bounds alone tell a file's level."""
    made = Lake.embedded(tmp_path)
    made.create_namespace("shop")
    fields = (NestedField(number, *one, required=False) for number, one in enumerate(COLUMNS.items(), 1))
    made.catalog.create_table(TABLE, Schema(*fields), properties={"format-version": "2"})
    return made


def adopted(lake: Lake, choice: Choice = CHOICE) -> Lake:
    adopt(lake, TABLE, choice, {"firn.min.cleanable.dirty.ratio": "0"})
    return lake


def rows(*offsets: int, **others: Any) -> list[dict[str, Any]]:
    row = {"topic": "orders", "shard": 0, "id": 1, "at_ms": NOW - 9, "body": "b" * 99}
    return [row | {"seq": offset, "body": None if offset == 2 else "b" * 99} | others for offset in offsets]


def ids(lake: Lake, names: Collection[str]) -> set[int]:
    return {lake.table(TABLE).schema().find_field(name).field_id for name in names}


def without(file: DataFile, columns: Collection[int], metrics: Collection[str] = METRICS) -> DataFile:
    """``file`` as listed by a writer that leaves these ``metrics`` of these ``columns`` out."""
    known = {name: getattr(file, name) or {} for name in metrics}
    left = {name: {one: value for one, value in own.items() if one not in columns} for name, own in known.items()}
    return relisted(file, **left)


def append(lake: Lake, file: DataFile) -> None:
    table = lake.table(TABLE)
    if table.current_snapshot() is None:
        table.append(pa.Table.from_pylist([], schema=table.schema().as_arrow()))
    add(lake, TABLE, [], [file])


def segments(lake: Lake) -> list[Segment]:
    found = read(lake.table(TABLE), TABLE)
    assert found.strays == ()
    return [*found]


def facts(segment: Segment) -> dict[str, Any]:
    names = ["topic_partition", "level", "base_offset", "last_offset", "records", "data_bytes", "tombstones"]
    names += ["null_keys", "oldest_ms", "newest_ms", "stamped", "first_horizon_ms", "last_horizon_ms", "problem"]
    return {name: getattr(segment, name) for name in names}


EVERY = (*COLUMNS, "level", "delete_horizon")


@pytest.mark.parametrize("metrics", [METRICS, BOUNDS, METRICS[2:3]], ids=["none", "counts", "no null counts"])
@pytest.mark.parametrize("columns", [("seq",), ("at_ms",), ("id", "body"), ("level", "delete_horizon"), EVERY])
def test_b1_what_a_manifest_leaves_out_is_in_the_footer(
    lake: Lake, columns: tuple[str, ...], metrics: tuple[str, ...]
) -> None:
    """Iceberg 1.6 and later write no size of a column in mode `none`, which is the default past the 100th column."""
    table = adopted(lake).table(TABLE)
    written = rows(1, 2, level=3, delete_horizon=None) + rows(3, level=3, delete_horizon=NOW * 1000)
    file = data_file(table, written, table.spec().spec_id, ())
    append(lake, file)
    (whole,) = segments(lake)
    assert (whole.level, whole.stamped, whole.problem) == (3, 1, None)
    other = relisted(file, file_path=file.file_path.replace(".parquet", "-2.parquet"))
    on_disk(other.file_path).write_bytes(on_disk(file.file_path).read_bytes())
    append(lake, without(other, ids(lake, columns), metrics))
    assert [facts(one) for one in segments(lake)] == [facts(whole)] * 2


@pytest.mark.parametrize("metrics", [METRICS, BOUNDS], ids=["none", "counts"])
def test_b1_so_is_the_topic_partition(lake: Lake, metrics: tuple[str, ...]) -> None:
    """Of a file from before the table was partitioned by it."""
    table = adopted(lake, BY_TOPIC).table(TABLE)
    file = data_file(table, rows(1, 2), 0, ())
    append(lake, without(file, ids(lake, EVERY), metrics))
    assert [(str(one.topic_partition), one.level, one.problem) for one in segments(lake)] == [("orders-0", 0, None)]


@pytest.mark.parametrize("left", [COLUMNS, ("seq",)], ids=["all columns", "the offset"])
def test_b1_a_table_of_such_files_is_cleaned(lake: Lake, left: Collection[str]) -> None:
    table = adopted(lake).table(TABLE)
    for offsets in ((1, 3), (4, 5)):
        file = data_file(table, rows(*offsets, level=None), table.spec().spec_id, ())
        append(lake, without(file, ids(lake, left)))
    list(run(lake, TABLE, NOW, lambda _: LocalEngine()))
    assert lake.table(TABLE).scan().to_arrow()["seq"].to_pylist() == [5]


def test_b1_sizes_of_some_columns_are_not_those_of_the_file(lake: Lake) -> None:
    table = adopted(lake).table(TABLE)
    file = data_file(table, rows(*range(10)), table.spec().spec_id, ())
    append(lake, without(file, ids(lake, ("body", "id", "topic"))))
    assert [one.data_bytes for one in segments(lake)] == [sum((file.column_sizes or {}).values())]


@pytest.mark.parametrize("metrics", [(), METRICS], ids=["full", "none"])
@pytest.mark.parametrize("column", ["seq", "at_ms"])
def test_b1_nulls_are_told_as_nulls(lake: Lake, column: str, metrics: tuple[str, ...]) -> None:
    table = adopted(lake).table(TABLE)
    file = data_file(table, rows(1) + rows(2, **{column: None}), table.spec().spec_id, ())
    append(lake, without(file, ids(lake, (column,)), metrics))
    (segment,) = segments(lake)
    assert segment.problem == f"has NULLs in column {column} (1 of 2); allowed: none"


@pytest.mark.parametrize("column", ["seq", "at_ms", "level"])
def test_b1_what_the_footer_leaves_out_too_is_told_as_left_out(lake: Lake, column: str) -> None:
    table = adopted(lake).table(TABLE)
    file = data_file(table, rows(1, 2, level=1), table.spec().spec_id, ())
    held = pq.read_table(on_disk(file.file_path), partitioning=None)
    pq.write_table(held, on_disk(file.file_path), write_statistics=[one for one in held.column_names if one != column])
    append(lake, without(file, ids(lake, (column,))))
    told = (
        f"has no bounds for column {column}; allowed: a file written with write.metadata.metrics.column.{column}=full"
    )
    assert [one.problem for one in segments(lake)] == [told]


@pytest.mark.parametrize("expired", [False, True])
def test_b1_files_from_before_the_adoption_are_asked_only_if_their_snapshot_is_gone(lake: Lake, expired: bool) -> None:
    table = lake.table(TABLE)
    table.append(pa.Table.from_pylist(rows(1, 2), schema=table.schema().as_arrow()))
    first = lake.table(TABLE).metadata.current_snapshot_id
    assert first is not None
    adopted(lake)
    table = lake.table(TABLE)
    table.append(pa.Table.from_pylist(rows(3), schema=table.schema().as_arrow()))
    if expired:
        lake.table(TABLE).maintenance.expire_snapshots().by_id(first).commit()
    else:
        for file in (one.file.file_path for one in lake.table(TABLE).scan().plan_files()):
            on_disk(file).rename(on_disk(file).with_suffix(".away"))
    found = [(one.level, one.problem, one.base_offset) for one in segments(lake)]
    assert found == [(0, None, 1), (0, None, 3)]
