"""C29: files that other tables or other catalogs need stay; what nobody names goes at the operator's word only."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyiceberg.table.update import SetPartitionStatisticsUpdate

from firnlake.door import OpenCatalog
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from infra.foreign.files import files_under, on_disk
from tests.support.faults import HeadsOnly, Nth, through, watched
from tests.support.scenario import Scenario

DATA_PATH, METADATA_PATH = "write.data.path", "write.metadata.path"
OTHER = "elsewhere.other"


@pytest.fixture
def home(scenario: Scenario) -> Path:
    """The location of a table with one record, in a lake of its own."""
    scenario.play("alone", "land a=1")
    return on_disk(scenario.loaded().location())


def other_table(scenario: Scenario, location: str | None = None, **properties: str) -> None:
    """A table in another namespace, with two files of data."""
    lake = scenario.opened.lake
    lake.create_namespace("elsewhere")
    own = scenario.loaded()
    made = lake.catalog.create_table(OTHER, own.schema(), location, own.spec(), properties=properties)
    for batch in scenario.batches("x=1@0 | x=2@1"):
        made.append(scenario.foreign_rows(batch))


def offsets(lake: Lake, table: str) -> list[int]:
    return sorted(lake.catalog.load_table(table).scan(selected_fields=("offset",)).to_arrow()["offset"].to_pylist())


OVERLAPS: dict[str, tuple[str | None, dict[str, str]]] = {
    "data below": (None, {DATA_PATH: "file:{home}/other"}),
    "metadata below": (None, {METADATA_PATH: "file://{home}/other/"}),
    "location below": ("file://{home}/other", {METADATA_PATH: "file://{home}/../apart"}),
    "data at": (None, {DATA_PATH: "file://{home}"}),
    "data above": (None, {DATA_PATH: "file://{home}/.."}),
    "object storage below": (None, {"write.object-storage.path": "file://{home}/objects"}),
}


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_c29_any_overlap_with_another_table_keeps_every_unnamed_file(
    scenario: Scenario, home: Path, overlap: str
) -> None:
    location, properties = OVERLAPS[overlap]
    filled = {
        name: value.format(home=home).replace(f"{home}/..", str(home.parent)) for name, value in properties.items()
    }
    other_table(scenario, location and location.format(home=home), **filled)
    scenario.play("stray data/stray.parquet", "later 4d", "maintain")
    assert offsets(scenario.opened.lake, OTHER) == [0, 1]
    said = scenario.play("set maintenance=manifests,orphans,snapshots", "maintained")
    assert any(f"table {OTHER} " in line and line.endswith(", exit code 1") for line in said), said
    assert scenario.answer("strays") == ["data/stray.parquet"]
    assert offsets(scenario.opened.lake, OTHER) == [0, 1]


def test_c29_a_table_that_can_not_be_loaded_keeps_unnamed_files_but_none_of_firns_own(
    scenario: Scenario, home: Path
) -> None:
    other_table(scenario)
    on_disk(scenario.opened.lake.catalog.load_table(OTHER).metadata_location).unlink()
    own = "data/_firn/{uuid}/0123456789abcdef/left.parquet"
    scenario.play(f"stray data/stray.parquet {own}", "set maintenance=manifests,orphans,snapshots", "later 4d")
    assert any(f"table {OTHER} can't be loaded" in line for line in scenario.play("maintained"))
    assert scenario.answer("strays") == ["data/stray.parquet"]
    assert home.exists()


@pytest.mark.parametrize("versions", ["100", "2"])
def test_c29_what_another_tool_has_expired_is_an_orphan_also_when_the_log_names_its_metadata_no_longer(
    scenario: Scenario, home: Path, versions: str
) -> None:
    scenario.play(
        f"property write.metadata.previous-versions-max={versions}",
        "set maintenance=manifests,orphans,snapshots",
    )
    before = files_under(home)
    scenario.play("append b=1", "drop offset = 1")
    expired = {path for path in files_under(home) - before if path.suffix == ".parquet"}
    scenario.loaded().maintenance.expire_snapshots().older_than(datetime(2100, 1, 1, tzinfo=UTC)).commit()
    scenario.play(*(f"append c={number}" for number in range(4)), "later 4d", "maintain", "later 4d", "maintain")
    assert len(expired) == 1
    assert not any(path.exists() for path in expired)
    named = {on_disk(one.metadata_file) for one in scenario.loaded().metadata.metadata_log}
    if versions == "2":
        assert set(home.glob("metadata/*.metadata.json")) == named | {on_disk(scenario.loaded().metadata_location)}


def test_c29_damaged_metadata_files_of_the_past_hold_nothing_up(scenario: Scenario, home: Path) -> None:
    scenario.play(
        "stray data/stray.parquet data/_firn/{uuid}/0123456789abcdef/left.parquet",
        "set maintenance=manifests,orphans,snapshots",
        "later 4d",
    )
    for path in home.glob("metadata/*.metadata.json"):
        if on_disk(scenario.loaded().metadata_location) != path:
            path.write_text("{")
    scenario.play("maintain")
    assert scenario.answer("strays") == ["none"]


def registered(scenario: Scenario, folder: Path) -> Lake:
    """Another catalog, in which the table is registered as it is now."""
    other = Lake.embedded(folder / "moved")
    other.create_namespace(scenario.name.partition(".")[0])
    other.catalog.register_table(scenario.name, scenario.loaded().metadata_location)
    return other


@pytest.mark.parametrize("age", ["4d", "40d"])
def test_c29_what_writers_that_moved_to_another_catalog_have_written_stays(
    scenario: Scenario, home: Path, tmp_path: Path, age: str
) -> None:
    before = files_under(home)
    moved = registered(scenario, tmp_path)
    for batch in scenario.batches("b=1@1 | c=1@2"):
        moved.catalog.load_table(scenario.name).append(scenario.foreign_rows(batch))
    written = files_under(home) - before
    scenario.play("set maintenance=manifests,orphans,snapshots")
    assert any("the metadata log does not name it" in line for line in scenario.play(f"later {age}", "maintained"))
    assert written <= files_under(home)
    assert offsets(moved, scenario.name) == [0, 1, 2]


def test_c29_whatever_a_catalog_answers_maintenance_ends_in_words(scenario: Scenario, home: Path) -> None:
    def refuse() -> None:
        raise ValueError("sequence number is taken")

    scenario.play("overwrite b=1@1", "later 6d")
    refusing = Nth(1, refuse, only="before commit")
    opened = OpenCatalog(watched(scenario.opened.lake, refusing), scenario.opened.now, scenario.opened.engine)
    with suppress(FirnError):
        opened.table(scenario.name).maintain()
    assert refusing.acted
    assert home.exists()


DIFFERENT = {
    "snapshots": "snapshots",
    "references": "references",
    "manifest lists": "snapshots",
    "table UUID": "table UUID",
    "no location": "does not name",
}
"""What a catalog leaves out or tells otherwise, and what the refusal says of it."""


@pytest.mark.parametrize("differs", DIFFERENT)
def test_c29_a_load_that_tells_less_than_the_metadata_file_deletes_nothing(
    scenario: Scenario, home: Path, differs: str
) -> None:
    scenario.play("ref tag kept", "overwrite b=1@1", "overwrite c=1@2", "later 6d")
    before = files_under(home)
    lake = through(scenario.opened.lake, HeadsOnly(differs))
    opened = OpenCatalog(lake, scenario.opened.now, scenario.opened.engine)
    with pytest.raises(FirnError, match=f"table {scenario.name}.*{DIFFERENT[differs]}"):
        opened.table(scenario.name).maintain()
    assert files_under(home) == before


@pytest.mark.parametrize("override", [False, True], ids=["by the client", "by the server"])
def test_c29_all_snapshots_are_loaded_whatever_is_configured(scenario: Scenario, home: Path, override: bool) -> None:
    scenario.play("overwrite b=1@1")
    assert home.exists()
    lake = scenario.opened.lake
    configured = replace(lake, properties={**lake.properties, "snapshot-loading-mode": "refs"})
    loaded = through(configured, HeadsOnly(override=override)).table(scenario.name)
    assert loaded.metadata.snapshots == scenario.loaded().metadata.snapshots


def test_c29_partition_statistics_go_with_their_snapshot(scenario: Scenario, home: Path) -> None:
    scenario.play("overwrite b=1@1")
    paths = []
    for snapshot in (scenario.loaded().metadata.snapshots[0], scenario.loaded().metadata.snapshots[-1]):
        paths.append(home / "metadata" / f"{snapshot.snapshot_id}.parquet")
        paths[-1].write_bytes(b"PAR1")
        named = {"snapshot-id": snapshot.snapshot_id, "statistics-path": f"file://{paths[-1]}", "file-size-in-bytes": 4}
        update = SetPartitionStatisticsUpdate.model_validate({"partition-statistics": named})
        scenario.opened.lake.catalog.commit_table(scenario.loaded(), (), (update,))
    scenario.play("later 6d", "maintain")
    assert [path.exists() for path in paths] == [False, True]
