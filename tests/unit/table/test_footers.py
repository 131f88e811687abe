"""Facts that manifests lack are read from the files' footers; a segment blocks only if these lack them too (C20)."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firnlake.clock import from_ms
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_table
from firnlake.table import records
from firnlake.table.segment import Segment
from firnlake.table.segment_cache import ManifestCache
from firnlake.table.segments import read
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.lakes import NOW, append, append_file, row

METRICS = "write.metadata.metrics."
NO_METRICS = {f"{METRICS}default": "none"} | {
    f"{METRICS}column.{name}": "none" for name in ("offset", "timestamp", "key", "value", "delete_horizon")
}
ROWS = [
    row(7, value=None, timestamp=from_ms(NOW - 5)),
    row(3, key=None, timestamp=from_ms(NOW - 2)),
    row(5, key=b"", timestamp=from_ms(-1500)),
    row(9, key=None, value=None, timestamp=from_ms(NOW - 7)),
]


def only_segment(lake: Lake, cache: ManifestCache | None = None) -> Segment:
    (segment,) = read(lake.table(lakes.TABLE), lakes.TABLE, cache=cache)
    return segment


def facts(segment: Segment) -> dict[str, Any]:
    names = ("base_offset", "last_offset", "oldest_ms", "newest_ms", "tombstones", "null_keys", "problem")
    return {name: getattr(segment, name) for name in names}


@pytest.mark.parametrize("mode", ["none", "counts"])
@pytest.mark.parametrize("columns", [("offset",), ("timestamp",), ("key",), ("value",), ("offset", "timestamp", "key")])
def test_a_segment_is_the_same_without_metrics(lake: Lake, columns: tuple[str, ...], mode: str) -> None:
    records.create(lake, lakes.TABLE, {})
    append(lake, ROWS)
    records.create(lake, "lake.other", {f"{METRICS}column.{name}": mode for name in columns})
    append(lake, ROWS, "lake.other")
    (bare,) = read(lake.table("lake.other"), "lake.other")
    assert facts(bare) == facts(only_segment(lake))
    assert bare.problem is None


def test_a_table_without_any_metrics_is_planned(lake: Lake) -> None:
    records.create(lake, lakes.TABLE, NO_METRICS)
    append(lake, [row(offset) for offset in range(10)])
    append(lake, [row(offset) for offset in range(10, 20)])
    (plan,) = plan_table(lake, lakes.TABLE, Lane.FULL, NOW, force=True)
    assert [(one.base_offset, one.last_offset) for one in plan.inputs] == [(0, 9), (10, 19)]


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_files_that_were_added_as_they_are(lake: Lake, unit: str) -> None:
    """Without field ids, by another writer, with other row groups and times in another unit."""
    table = records.create(lake, lakes.TABLE, NO_METRICS | {f"{METRICS}default": "truncate(16)"})
    with table.update_spec() as update:
        for name in records.PARTITION_FIELDS:
            update.remove_field(name)
    moments = [datetime(2023, 11, 14, 22, 13, second, tzinfo=UTC) for second in range(10)]
    data = pa.table(
        {
            "key": pa.array([None if n == 4 else b"k" for n in range(10)], pa.binary()),
            "value": pa.array([None if n > 7 else b"v" for n in range(10)], pa.binary()),
            "topic": ["orders"] * 10,
            "partition": pa.array([0] * 10, pa.int32()),
            "offset": pa.array(range(100, 110), pa.int64()),
            "timestamp": pa.array(moments, pa.timestamp(unit, "UTC")),
            "timestampType": pa.array([0] * 10, pa.int32()),
        }
    )
    path = f"{table.location()}/added.parquet"
    on_disk(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, on_disk(path), row_group_size=3)
    lake.table(lakes.TABLE).add_files([path])
    with lake.table(lakes.TABLE).update_spec() as update:
        for name in records.PARTITION_FIELDS:
            update.add_identity(name)
    first, last = (int(moment.timestamp() * 1000) for moment in (moments[0], moments[-1]))
    assert facts(only_segment(lake)) == {
        "base_offset": 100,
        "last_offset": 109,
        "oldest_ms": first,
        "newest_ms": last,
        "tombstones": 2,
        "null_keys": 1,
        "problem": None,
    }


@pytest.mark.parametrize(
    ("left_out", "problem"),
    [
        ("offset", "has no bounds for column offset; allowed: a file written with {}column.offset=full"),
        ("timestamp", "has no bounds for column timestamp; allowed: a file written with {}column.timestamp=full"),
        ("key", "has no null count for column key; allowed: a file written with {}column.key other than `none`"),
        ("value", "has no null count for column value; allowed: a file written with {}column.value other than `none`"),
    ],
)
def test_c26_what_the_footer_leaves_out_too_is_a_problem_that_names_the_property(
    lake: Lake, left_out: str, problem: str
) -> None:
    records.create(lake, lakes.TABLE, {f"{METRICS}column.{left_out}": "none"})
    path = append_file(lake, ROWS)
    written = pq.read_table(on_disk(path))
    others = [name for name in written.column_names if name != left_out]
    pq.write_table(written, on_disk(path), write_statistics=others)
    assert problem.format(METRICS) in (only_segment(lake).problem or "")


@pytest.mark.parametrize("column", ["offset", "timestamp"])
def test_c26_nulls_are_a_problem_with_or_without_metrics(lake: Lake, column: str) -> None:
    records.create(lake, lakes.TABLE, NO_METRICS)
    append(lake, [row(1), row(2) | {column: None}])
    assert f"has NULLs in column {column} (1 of 2); allowed: none" in (only_segment(lake).problem or "")


def test_a_footer_of_other_records_is_not_believed(lake: Lake) -> None:
    records.create(lake, lakes.TABLE, NO_METRICS)
    path = append_file(lake, ROWS)
    pq.write_table(pq.read_table(on_disk(path)).slice(1), on_disk(path))
    assert "has no bounds for column offset" in (only_segment(lake).problem or "")


def test_a_file_that_cannot_be_read_blocks_until_it_can(lake: Lake) -> None:
    records.create(lake, lakes.TABLE, NO_METRICS)
    path = append_file(lake, ROWS)
    cache = ManifestCache.of(lake)
    away = on_disk(path).rename(on_disk(path).with_suffix(".away"))
    assert "(its footer can't be read: " in (only_segment(lake, cache).problem or "")
    away.rename(on_disk(path))
    assert only_segment(lake, cache).problem is None


def test_a_footer_is_read_once(lake: Lake) -> None:
    records.create(lake, lakes.TABLE, NO_METRICS)
    path = append_file(lake, ROWS)
    cache = ManifestCache.of(lake)
    expected = only_segment(lake, cache)
    on_disk(path).unlink()
    assert only_segment(lake, cache) == expected


def test_a_column_that_came_after_the_file_is_null_in_all_of_it(lake: Lake) -> None:
    """By its field id, not by its name: that may have been another column's."""
    records.create(lake, lakes.TABLE, NO_METRICS)
    path = append_file(lake, ROWS)
    written = pq.read_table(on_disk(path))
    pq.write_table(written.drop_columns(["value"]), on_disk(path))
    assert only_segment(lake).tombstones == len(ROWS)
