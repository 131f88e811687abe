"""C25, C29: files that nothing refers to go, beside others who list them, and at strange locations."""

import gzip
import json

import pytest

from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add
from tests.support.faults import Nth, watched
from tests.support.row_deletes import data_files
from tests.support.scenario import Scenario

OTHER = "00000000-0000-0000-0000-000000000001"


@pytest.fixture
def orphan(scenario: Scenario) -> Scenario:
    """A table that may lose a file that it has never named."""
    for line in ("alone", "create maintenance=manifests,orphans,snapshots", "append a=1", "stray data/stray.parquet"):
        scenario.answer(line)
    scenario.answer("later 4d")
    return scenario


def test_c25_what_is_in_use_again_at_the_time_of_deletion_stays(scenario: Scenario) -> None:
    for line in ("alone", "land a=1 | a=2", "full!"):
        scenario.answer(line)
    (file,) = data_files(scenario.loaded())
    for line in ("drop offset = 1", "expire", "later 4d"):
        scenario.answer(line)
    lake = scenario.opened.lake
    listing = Nth(1, lambda: add(lake, scenario.name, [], [file]), only="before commit")
    scenario.use(watched(lake, listing))
    said = scenario.answer("maintained")
    assert listing.acted
    assert any("in use again at the time of deletion" in line for line in said)
    assert (scenario.answer("read"), scenario.answer("whole")) == (["a=2@1"], ["missing 0, left 0"])


@pytest.mark.parametrize("name", ["v1.metadata.json", "00000-a.gz.metadata.json", "v2.metadata.json.gz"])
@pytest.mark.parametrize("folder", ["metadata", "data/nested/metadata", "metadata/deep/er"])
def test_c26_a_table_within_is_told_by_its_metadata_however_it_is_packed(
    orphan: Scenario, folder: str, name: str
) -> None:
    path = on_disk(orphan.loaded().location()) / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"properties": {"x": "y" * 200_000}, "table-uuid": OTHER}).encode()
    path.write_bytes(gzip.compress(text) if ".gz" in name else text)
    assert any("within that location, is of another table" in line for line in orphan.answer("maintained"))
    assert (orphan.answer("strays"), path.exists()) == (["data/stray.parquet"], True)


def test_c26_a_table_of_the_catalog_at_the_same_place(orphan: Scenario) -> None:
    """Its metadata lies elsewhere. A neighbour is no obstacle, and loses nothing."""
    table, catalog = orphan.loaded(), orphan.opened.lake.catalog
    orphan.opened.table("db.orders_2").create()
    elsewhere = {"write.metadata.path": f"file://{orphan.folder}/elsewhere"}
    catalog.create_table("db.twin", table.schema(), table.location(), properties=elsewhere)
    assert any("table db.twin is at " in line for line in orphan.answer("maintained"))
    assert orphan.answer("strays") == ["data/stray.parquet"]
    catalog.drop_table("db.twin")
    orphan.answer("maintained")
    assert orphan.answer("strays") == ["none"]


def test_a_location_through_a_link_takes_nothing(orphan: Scenario) -> None:
    """The store lists files under paths that the metadata does not name: their names hold them."""
    table, catalog = orphan.loaded(), orphan.opened.lake.catalog
    home, link = on_disk(table.location()), orphan.folder / "link"
    link.symlink_to(home)
    document = json.loads(on_disk(table.metadata_location).read_text())
    moved = home / "metadata" / "moved.metadata.json"
    moved.write_text(json.dumps(document | {"location": f"file://{link}"}))
    catalog.drop_table(orphan.name)
    catalog.register_table(orphan.name, f"file://{moved}")
    orphan.answer("maintained")
    assert (orphan.answer("read"), orphan.answer("strays")) == (["a=1@0"], ["none"])
