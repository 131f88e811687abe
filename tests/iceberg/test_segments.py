"""What other writers leave in a table blocks the topic partitions that it is about, and no others (C7, C20). The cache
of manifests changes no answer, and nothing is read twice (C26)."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import Stored
from firnlake.ingest.adopt import adopt
from firnlake.inspect.status import PartitionStatus, status_of
from firnlake.lanes import Lane
from firnlake.plan.make import plan_table
from firnlake.table.columns import ColumnRoles
from firnlake.table.manifest_reader import ManifestCache, read
from firnlake.table.segment import Segment, TopicPartition
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.foreign import append_again, append_empty_file, delete_rows, written_under_no_spec
from tests.support.lakes import NOW, TABLE, append, append_file, row

pytestmark = pytest.mark.usefixtures("table")
NO_METRICS = {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.offset": "none"}
LONG = "a-topic-with-a-long-name"


def partitions(lake: Lake) -> dict[str, PartitionStatus]:
    return {one.name: one for one in status_of(lake, TABLE, NOW).partitions}


def planned(lake: Lake) -> dict[str, int | None]:
    """The topic partitions that lane full takes, and the offset from which tombstones are kept."""
    plans = plan_table(lake, TABLE, Lane.FULL, NOW, force=True)
    return {str(plan.topic_partition): plan.clean_below for plan in plans}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"offset": None}, "has NULLs in column offset (1 of 2); allowed: none"),
        ({"timestamp": None}, "has NULLs in column timestamp (1 of 2); allowed: none"),
        ({"offset": -1}, "has offset -1; allowed: 0 or more"),
        ({"level": 4}, "has level 4; allowed: NULL, 0, 1, 2, 3"),
        ({"level": -1}, "has level -1; allowed: NULL, 0, 1, 2, 3"),
        ({"partition": -1}, "has partition -1; allowed: 0 or more"),
    ],
)
def test_c20_what_is_wrong_with_a_segment_blocks_its_topic_partition_only(
    lake: Lake, wrong: dict[str, Any], problem: str
) -> None:
    append(lake, [row(0, partition=1)])
    both = {name: value for name, value in wrong.items() if name in ("level", "partition")}
    path = append_file(lake, [row(1) | wrong, row(2) | both])
    found = partitions(lake)
    (blocker,) = found[f"orders-{wrong.get('partition', 0)}"].blockers
    assert problem in blocker
    assert path in blocker
    assert (found["orders-1"].blockers, planned(lake)) == ((), {"orders-1": None})


def test_c20_levels_that_no_partition_field_keeps_apart_and_files_in_two_partitions_block(lake: Lake) -> None:
    append(lake, [row(0), row(0, partition=1), row(0, partition=9)])
    written_under_no_spec(lake, [row(7), row(9, level=3)])
    append_again(lake, append_file(lake, [row(1, partition=1)]), Record("orders", 2, None))
    found = partitions(lake)
    assert "may have several levels in column level" in found["orders-0"].blockers[0]
    assert {name: bool(one.blockers) for name, one in found.items()} == {
        "orders-0": True,
        "orders-1": True,
        "orders-2": True,
        "orders-9": False,
    }


def test_a_file_of_another_spec_is_a_landed_segment_where_its_bounds_prove_one_topic_partition(lake: Lake) -> None:
    append(lake, [row(0), row(0, partition=1)])
    written_under_no_spec(lake, [row(7), row(9)])
    assert [(one.name, one.blockers) for one in partitions(lake).values()] == [("orders-0", ()), ("orders-1", ())]
    assert planned(lake) == {"orders-0": None, "orders-1": None}


@pytest.mark.parametrize(
    ("rows", "properties", "keeps"),
    [
        ([row(4), row(6, partition=3)], {}, {"orders-0": 4, "orders-1": 4}),
        (
            [row(4), row(6, partition=3)],
            NO_METRICS,
            dict.fromkeys(("orders-0", "orders-1", "orders-7", LONG + "-0"), 0),
        ),
        ([row(4, topic=LONG), row(5, topic=LONG, partition=1)], {}, {LONG + "-0": 4}),
        ([row(4), row(5, topic=None)], {}, {"orders-0": 4}),
        ([row(4, topic=None), row(5, topic=None)], {}, {}),
    ],
    ids=["bounds", "no bounds", "a topic cut short", "with and without a topic", "nobody's"],
)
def test_c7_a_file_of_several_topic_partitions_keeps_tombstones_of_those_that_it_may_hold(
    lake: Lake, rows: list[dict[str, Any]], properties: dict[str, str], keeps: dict[str, int]
) -> None:
    append(lake, [row(9), row(9, partition=1), row(9, partition=7), row(9, topic=LONG)])
    path = written_under_no_spec(lake, rows, **properties)
    if properties:
        on_disk(path).unlink()  # nor does its footer tell
    assert {name: bound for name, bound in planned(lake).items() if bound is not None} == keeps
    told = f"segment {path} may hold records from offset {{}} on: tombstones from there on are kept"
    found = partitions(lake)
    assert {name: one.blockers for name, one in found.items() if one.blockers} == {
        name: (told.format(bound),) for name, bound in keeps.items()
    }
    assert all(one.due for one in found.values())
    (stray,) = status_of(lake, TABLE, NOW).strays
    assert path in stray


@pytest.mark.parametrize("column", ["topic", "partition"])
def test_c20_a_record_without_topic_or_partition_is_nobodys_and_holds_up_nobody(lake: Lake, column: str) -> None:
    append(lake, [row(5)])
    append_file(lake, [row(0) | {column: None}])
    (stray,) = status_of(lake, TABLE, NOW).strays
    assert "allowed: a topic and a partition in every record" in stray
    assert planned(lake) == {"orders-0": None}


def plain(lake: Lake) -> None:
    append(lake, [row(0), row(1, key=None), row(2, value=None)])
    append(lake, [row(0, topic="a"), row(7, partition=1, level=3)])


def row_deletes(lake: Lake) -> None:
    hit = append_file(lake, [row(0), row(1)])
    append(lake, [row(0, partition=1)])
    delete_rows(lake, hit, [1])
    append(lake, [row(2)])


def copies(lake: Lake) -> None:
    append_again(lake, append_file(lake, [row(0), row(1, key=None), row(2, value=None)]))
    append_again(lake, append_file(lake, [row(9)]), Record("orders", 1, None))


def strays(lake: Lake) -> None:
    append(lake, [row(0), row(5) | {"topic": None}])
    written_under_no_spec(lake, [row(4), row(6, partition=3)])
    written_under_no_spec(lake, [row(4) | {"topic": None}])


def problems(lake: Lake) -> None:
    append(lake, [row(0, level=7), row(3, level=1), row(0, partition=-1)])
    append(lake, [row(1) | {"timestamp": None}])
    written_under_no_spec(lake, [row(8), row(9, level=3)])


def expired(lake: Lake) -> None:
    append(lake, [row(0)])
    first = lakes.snapshot(lake)
    assert first is not None
    append(lake, [row(1)])
    lake.table(TABLE).maintenance.expire_snapshots().by_id(first).commit()


def renamed(lake: Lake) -> None:
    """Under its new name the column that was called so means something else."""
    for old, new in (("value", "other"), ("key", "value"), ("other", "key")):
        with lake.table(TABLE).update_schema() as update:
            update.rename_column(old, new)


@pytest.fixture
def cache(lake: Lake) -> ManifestCache:
    found = ManifestCache.of(lake)
    assert found is not None
    return found


def segments(lake: Lake, cache: ManifestCache | None = None) -> tuple[dict[TopicPartition, tuple[Segment, ...]], Any]:
    found = read(lake.table(TABLE), TABLE, cache=cache)
    return dict(found), found.strays


def kept_files(lake: Lake) -> list[Path]:
    return sorted(lake.cache_folder.rglob("*.arrow"))


def lose_the_manifests(lake: Lake) -> None:
    """From now on nothing can read a manifest of data files."""
    table = lake.table(TABLE)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            on_disk(manifest.manifest_path).unlink()


def test_whatever_others_left_segments_are_the_same_and_no_manifest_is_read_twice(
    lake: Lake, cache: ManifestCache
) -> None:
    for change in (append_empty_file, plain, row_deletes, strays, copies, problems, expired, renamed):
        change(lake)
        assert segments(lake, cache) == segments(lake)
    expected = segments(lake)
    assert lakes.together(*[lambda: segments(lake, cache)] * 4) == [expected] * 4
    lose_the_manifests(lake)
    assert segments(lake, cache) == expected


def test_what_is_kept_of_a_manifest_and_damaged_is_read_again(lake: Lake, cache: ManifestCache) -> None:
    plain(lake)
    expected = segments(lake, cache)
    kept = {path: path.read_bytes() for path in kept_files(lake)}
    path, content = next(iter(kept.items()))
    middle = len(content) // 2
    for damaged in (content[:middle], content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :], b""):
        path.write_bytes(damaged)
        assert segments(lake, cache) == expected
        assert {path: path.read_bytes() for path in kept_files(lake)} == kept


def test_only_what_the_newest_snapshot_lists_is_kept(lake: Lake, cache: ManifestCache) -> None:
    append(lake, [row(0)])
    segments(lake, cache)
    (path,) = kept_files(lake)
    before = path.stat().st_size
    for offset in range(1, 4):
        append(lake, [row(offset)])
        segments(lake, cache)
    lake.table(TABLE).overwrite(lake.table(TABLE).scan(row_filter="offset = 0").to_arrow())
    segments(lake, cache)
    assert kept_files(lake) == [path]
    assert path.stat().st_size <= before * 2


def test_what_is_kept_of_a_dropped_table_goes_after_a_month(lake: Lake, cache: ManifestCache) -> None:
    append(lake, [row(0)])
    segments(lake, cache)
    (path,) = kept_files(lake)
    dropped = [path.with_name(f"{days}.arrow") for days in (29, 31)]
    for days, file in zip((29, 31), dropped, strict=True):
        file.write_bytes(b"")
        os.utime(file, times=(0, path.stat().st_mtime - days * 86_400))
    append(lake, [row(1)])
    segments(lake, cache)
    assert kept_files(lake) == sorted([path, dropped[0]])


def test_a_folder_that_can_not_be_written_is_no_obstacle(lake: Lake, tmp_path: Path) -> None:
    append(lake, [row(1)])
    (tmp_path / "file").write_text("")
    assert segments(lake, ManifestCache(tmp_path / "file")) == segments(lake)


@pytest.mark.parametrize("tells", [True, False])
def test_c11_c19_a_record_without_timestamp_never_counts_as_older_than_it_is(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    """Adoption has made side branches, whose snapshots are older than most landings and never expire."""
    name, schema = "lake.untimed", Schema(NestedField(1, "id", LongType()), NestedField(2, "lsn", LongType()))
    table = lake.catalog.create_table(name, schema)
    table.append(pa.table({"id": [1], "lsn": [1]}))
    adopt(lake, name, ColumnRoles(key=("id",), offset="lsn"), {})
    times: list[int] = []
    for lsn in (2, 3):
        table.refresh().append(pa.table({"id": [1], "lsn": [lsn], "level": pa.nulls(1, pa.int32())}))
        newest = table.current_snapshot()
        assert newest is not None
        times.append(newest.timestamp_ms)
    kept = {one.snapshot_id for one in table.metadata.refs.values()}
    expired = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in kept]
    table.maintenance.expire_snapshots().by_ids(expired).commit()
    for one in table.scan().plan_files():
        os.utime(on_disk(one.file.file_path), ns=(times[0] * 1_000_000,) * 2)
    if not tells:
        monkeypatch.setattr(Stored, "of", lambda files, info: Stored(files, info.path, info.size, None))
    (own,) = read(lake.table(name), name).values()
    assert [one.newest_ms for one in own] == [times[0] if tells else times[1]] * 2 + [times[1]]
