"""Files that a table's metadata never named stay, unless its operator and every other table of the catalog allow it."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from firnlake import clock
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.iceberg.files import DATA_PATH, METADATA_PATH, data_folder
from firnlake.maintain.maintain import maintain_table
from firnlake.table import records
from firnlake.table.policy import DAY_MS
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.lakes import TABLE, append, row

OTHER = "elsewhere.other"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of its own: each of its tables is looked at."""
    return Lake.embedded(tmp_path / "home")


@pytest.fixture
def root(lake: Lake) -> Path:
    """The location of a table with one record."""
    records.create(lake, TABLE, {})
    append(lake, [row(0)])
    return on_disk(lake.table(TABLE).location())


def orphans_go(lake: Lake) -> None:
    lake.set_properties(TABLE, {"firn.maintenance": "manifests,orphans,snapshots"})


def maintain(lake: Lake, days: int = 4) -> list[Finding]:
    """Maintenance at a time when every file that is there now is older than the default age of orphans."""
    return maintain_table(lake, TABLE, clock.now_ms() + days * DAY_MS, remove=True)


def stray(root: Path, place: str = "data/stray.parquet") -> Path:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"PAR1")
    return path


def other_table(lake: Lake, location: str | None = None, **properties: str) -> None:
    """A table in another namespace, with two files of data."""
    lake.create_namespace("elsewhere")
    lake.catalog.create_table(OTHER, lake.table(TABLE).schema(), location, properties=properties)
    for number in range(2):
        append(lake, [row(number)], OTHER)


def told(garbage: Iterable[Finding]) -> Finding:
    """The one finding about orphans."""
    (one,) = (one for one in garbage if one.kind is Kind.ORPHANS)
    return one


@pytest.mark.parametrize("at_the_operators_word", [False, True])
def test_r5_data_of_another_table_below_this_location_stay(lake: Lake, root: Path, at_the_operators_word: bool) -> None:
    other_table(lake, **{DATA_PATH: f"file://{root}/data/other"})
    if at_the_operators_word:
        orphans_go(lake)
    maintain(lake)
    assert lakes.offsets(lake, OTHER) == [0, 1]


@pytest.mark.parametrize(
    "overlap", ["data below", "metadata below", "location below", "data at", "data above", "object storage below"]
)
def test_r5_any_overlap_with_another_table_keeps_every_unnamed_file(lake: Lake, root: Path, overlap: str) -> None:
    match overlap:
        case "data below":
            other_table(lake, **{DATA_PATH: f"file:{root}/other"})
        case "metadata below":
            other_table(lake, **{METADATA_PATH: f"file://{root}/other/"})
        case "location below":
            other_table(lake, f"file://{root}/other", **{METADATA_PATH: f"file://{root.parent}/apart"})
        case "data at":
            other_table(lake, **{DATA_PATH: f"file://{root}"})
        case "data above":
            other_table(lake, **{DATA_PATH: f"file://{root.parent}"})
        case "object storage below":
            other_table(lake, **{"write.object-storage.path": f"file://{root}/objects"})
    orphans_go(lake)
    path = stray(root)
    refused = told(maintain(lake))
    assert path.exists()
    assert f"table {OTHER} " in refused.reason
    assert (refused.goes, refused.exit_code) == (False, RefusedError.exit_code)
    assert lakes.offsets(lake, OTHER) == [0, 1]


def test_r5_a_table_that_can_not_be_loaded_keeps_every_unnamed_file(lake: Lake, root: Path) -> None:
    other_table(lake)
    on_disk(lake.table(OTHER).metadata_location).unlink()
    orphans_go(lake)
    path = stray(root)
    refused = told(maintain(lake))
    assert path.exists()
    assert f"table {OTHER} can't be loaded" in refused.reason
    assert (refused.goes, refused.files, refused.exit_code) == (False, 1, RefusedError.exit_code)


def test_r5_a_table_that_can_not_be_loaded_keeps_nothing_of_firns_own(lake: Lake, root: Path) -> None:
    other_table(lake)
    on_disk(lake.table(OTHER).metadata_location).unlink()
    path = stray(root, f"data/_firn/{lake.table(TABLE).metadata.table_uuid}/0123456789abcdef/left.parquet")
    maintain(lake)
    assert not path.exists()


def expired_elsewhere(lake: Lake) -> set[Path]:
    """Data files, manifests and lists of the snapshots that another tool has expired, without their files."""
    before = lakes.table_files(lake)
    append(lake, [row(1)])
    lake.table(TABLE).delete("offset = 1")
    lake.table(TABLE).maintenance.expire_snapshots().older_than(datetime(2100, 1, 1, tzinfo=UTC)).commit()
    table = lake.table(TABLE)
    kept = {on_disk(path) for path in lakes.held(table)}
    kept |= {on_disk(one.manifest_path) for snapshot in table.snapshots() for one in snapshot.manifests(table.io)}
    kept |= {on_disk(one.manifest_list) for one in table.snapshots()}
    return {one for one in lakes.table_files(lake) - before - kept if not one.name.endswith(".json")}


def test_r5_what_another_tool_has_expired_goes_as_before(lake: Lake, root: Path) -> None:
    files = expired_elsewhere(lake)
    assert {one.suffix for one in files} == {".parquet", ".avro"}
    path = stray(root)
    maintain(lake)
    assert not any(one.exists() for one in files)
    assert lakes.offsets(lake) == [0]
    orphans_go(lake)
    maintain(lake)
    assert not path.exists()


def test_r5_it_goes_although_the_log_names_that_metadata_no_longer(lake: Lake, root: Path) -> None:
    lake.set_properties(TABLE, {"write.metadata.previous-versions-max": "2"})
    files = expired_elsewhere(lake)
    for number in range(2, 6):
        append(lake, [row(number)])
    maintain(lake)
    assert not any(one.exists() for one in files)
    named = {one.metadata_file for one in lake.table(TABLE).metadata.metadata_log}
    left = {f"file://{one}" for one in root.glob("metadata/*.metadata.json")}
    assert left == named | {lake.table(TABLE).metadata_location}


def test_r5_damaged_metadata_files_of_the_past_hold_nothing_up(lake: Lake, root: Path) -> None:
    path = stray(root)
    own = stray(root, f"data/_firn/{lake.table(TABLE).metadata.table_uuid}/0123456789abcdef/left.parquet")
    for one in root.glob("metadata/*.metadata.json"):
        if on_disk(lake.table(TABLE).metadata_location) != one:
            one.write_text("{")
    orphans_go(lake)
    maintain(lake)
    assert not own.exists()
    assert not path.exists()


@pytest.mark.parametrize("days", [4, 40])
def test_r4_what_another_catalog_has_written_since_stays(lake: Lake, root: Path, tmp_path: Path, days: int) -> None:
    """Writers have moved there. The old catalog's table stays as it was then."""
    before = files_under(root)
    moved = registered(lake, tmp_path)
    append(moved, [row(1)])
    append(moved, [row(2)])
    written = files_under(root) - before
    maintain(lake, days)
    assert written <= files_under(root)
    assert lakes.offsets(moved) == [0, 1, 2]


@pytest.mark.xfail(strict=True, reason="R4: the old catalog's expiry deletes what another catalog's table still holds")
def test_r4_what_expires_in_the_old_catalog_stays_in_the_new(lake: Lake, root: Path, tmp_path: Path) -> None:
    moved = registered(lake, tmp_path)
    append(moved, [row(1)])
    lake.table(TABLE).delete("offset = 0")
    maintain(lake, 6)
    assert lakes.offsets(moved) == [0, 1]


@pytest.mark.xfail(strict=True, reason="R4: what Firn has published through another catalog is taken for a dead job's")
def test_r4_what_firn_publishes_through_the_new_catalog_stays(lake: Lake, root: Path, tmp_path: Path) -> None:
    moved = registered(lake, tmp_path)
    folder = data_folder(moved.table(TABLE)) + "/0123456789abcdef"
    moved.set_properties(TABLE, {DATA_PATH: folder})
    append(moved, [row(1)])
    maintain(lake)
    assert lakes.offsets(moved) == [0, 1]


def registered(lake: Lake, tmp_path: Path) -> Lake:
    """Another catalog, in which the table is registered as it is now."""
    other = Lake.embedded(tmp_path / "moved")
    other.create_namespace(TABLE.partition(".")[0])
    other.catalog.register_table(TABLE, lake.table(TABLE).metadata_location)
    return other


def test_a_table_whose_files_all_lie_elsewhere_is_maintained(lake: Lake, tmp_path: Path) -> None:
    elsewhere = {DATA_PATH: f"file://{tmp_path}/data", METADATA_PATH: f"file://{tmp_path}/metadata"}
    records.create(lake, TABLE, elsewhere)
    append(lake, [row(0)])
    assert not any(one.exit_code for one in maintain(lake))
    assert lakes.offsets(lake) == [0]
