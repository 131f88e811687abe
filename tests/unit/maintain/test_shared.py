"""Orphans stay where another table's files may lie: within the location, at it, or above it."""

import gzip
import json
import uuid
from pathlib import Path

import pytest

from firnlake import clock
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.iceberg.files import path_of
from firnlake.maintain.maintain import maintain_table
from firnlake.table import records
from firnlake.table.policy import DAY_MS
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.lakes import TABLE, append, row

LATER = 4 * DAY_MS
OTHER = str(uuid.uuid4())


@pytest.fixture
def orphan(lake: Lake, table: str) -> Path:
    append(lake, [row(0)])
    lake.set_properties(table, {"firn.maintenance": "manifests,orphans,snapshots"})
    path = location(lake, table) / "data" / "orphan.parquet"
    path.write_bytes(b"PAR1")
    return path


def location(lake: Lake, table: str = TABLE) -> Path:
    return on_disk(lake.table(table).location())


def maintain(lake: Lake) -> list[Finding]:
    return maintain_table(lake, TABLE, clock.now_ms() + LATER, remove=True)


def metadata_file(folder: Path, table_uuid: str, name: str = "v1.metadata.json", fill: int = 0) -> Path:
    """A metadata file of the table ``table_uuid``, whose UUID comes after ``fill`` bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"properties": {"x": "y" * fill}, "table-uuid": table_uuid}).encode()
    path = folder / name
    path.write_bytes(gzip.compress(text) if ".gz" in name else text)
    return path


def assert_refused(found: list[Finding], told: str, orphan: Path) -> None:
    (refused,) = (one for one in found if one.kind is Kind.ORPHANS)
    assert told in refused.reason
    assert "its location" in refused.reason
    assert (refused.goes, refused.exit_code) == (False, RefusedError.exit_code)
    assert orphan.exists()


@pytest.mark.parametrize("name", ["v1.metadata.json", "00000-a.gz.metadata.json", "v2.metadata.json.gz"])
@pytest.mark.parametrize("fill", [0, 200_000])
@pytest.mark.parametrize("folder", ["metadata", "data/nested/metadata", "metadata/deep/er"])
def test_c26_a_table_within_is_told_by_its_metadata(
    lake: Lake, orphan: Path, folder: str, name: str, fill: int
) -> None:
    path = metadata_file(location(lake) / folder, OTHER, name, fill)
    assert_refused(maintain(lake), f"{path}, within that location, is of another table (UUID {OTHER})", orphan)
    assert path.exists()


def test_c26_a_table_above_is_told_by_its_metadata(lake: Lake, orphan: Path) -> None:
    path = metadata_file(location(lake).parent / "metadata", OTHER)
    assert_refused(maintain(lake), f"{path}, above that location, is of another table", orphan)


def test_c26_a_table_of_the_catalog_at_the_same_place(lake: Lake, orphan: Path) -> None:
    """Its metadata lies elsewhere."""
    elsewhere = {"write.metadata.path": f"file://{location(lake).parent}/elsewhere"}
    table = lake.table(TABLE)
    lake.catalog.create_table("lake.twin", table.schema(), table.location(), properties=elsewhere)
    assert_refused(maintain(lake), f"table lake.twin is at {table.location()}", orphan)


def test_neighbours_are_no_obstacle(lake: Lake, orphan: Path) -> None:
    records.create(lake, "lake.records_2", {})
    other = location(lake, "lake.records_2") / "data" / "orphan.parquet"
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(b"PAR1")
    maintain(lake)
    assert not orphan.exists()
    assert other.exists()


def test_metadata_of_lost_commits_goes(lake: Lake, orphan: Path) -> None:
    """It is of the table itself; a torn file is nobody's."""
    own = metadata_file(location(lake) / "metadata", str(lake.table(TABLE).metadata.table_uuid), "lost.metadata.json")
    torn = own.with_name("torn.metadata.json")
    torn.write_bytes(b'{"location": "file')
    assert not any(one.exit_code for one in maintain(lake))
    assert not any(path.exists() for path in (own, torn, orphan))
    assert lakes.offsets(lake) == [0]


def test_former_metadata_goes_with_the_commit_that_drops_it_from_the_log(lake: Lake, orphan: Path) -> None:
    lake.set_properties(TABLE, {"write.metadata.previous-versions-max": "2"})
    for number in range(1, 5):
        append(lake, [row(number)])
    now_ms = clock.now_ms() + 6 * DAY_MS
    shown = maintain_table(lake, TABLE, now_ms, remove=False)
    assert [one.files for one in shown if one.kind is Kind.METADATA] == [1]
    assert maintain_table(lake, TABLE, now_ms, remove=True) == shown
    assert len(list(location(lake).glob("metadata/*.metadata.json"))) == 3
    assert maintain_table(lake, TABLE, now_ms, remove=True) == []
    assert not orphan.exists()
    assert lakes.offsets(lake) == [0, 1, 2, 3, 4]


def test_c29_a_location_through_a_link_takes_nothing(lake: Lake, table: str, tmp_path: Path) -> None:
    """The store lists files under paths that the metadata does not name: their names hold them."""
    append(lake, [row(0)])
    lake.set_properties(table, {"firn.maintenance": "manifests,orphans,snapshots"})
    link = tmp_path / "link"
    link.symlink_to(location(lake))
    document = json.loads(on_disk(lake.table(table).metadata_location).read_text())
    moved = location(lake) / "metadata" / "moved.metadata.json"
    moved.write_text(json.dumps(document | {"location": f"file://{link}"}))
    lake.catalog.drop_table(table)
    lake.catalog.register_table(table, f"file://{moved}")
    orphan = link / "data" / "orphan.parquet"
    orphan.write_bytes(b"PAR1")
    maintain(lake)
    assert lakes.offsets(lake) == [0]
    assert not orphan.exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:/a/b", "file:///a/b"),
        ("file:///a/b", "/a/b"),
        ("file:///a//b", "/a/b"),
        ("s3://bucket/a", "s3a://bucket/a"),
        ("s3n://bucket/a", "bucket/a"),
        ("hdfs://one:8020/a/b", "hdfs:/a/b"),
        ("hdfs://one/a", "/a"),
        ("file:///a/.b.crc", "/a/b"),
        ("file:///a:b/c", "/a:b/c"),
    ],
)
def test_spellings_of_one_file(one: str, other: str) -> None:
    assert path_of(one) == path_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://bucket/a", "s3://other/a"),
        ("file:///a/b", "file:///a/b/c"),
        ("file:///a%20b", "file:///a b"),
        ("/a/b.crc", "/a/b"),
        ("/A", "/a"),
    ],
)
def test_different_files(one: str, other: str) -> None:
    assert path_of(one) != path_of(other)
