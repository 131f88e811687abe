"""Two tables that put their data into one folder leave each other's files alone."""

from pathlib import Path

import pytest

from firnlake import clock
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import DATA_PATH, METADATA_PATH, data_folder
from firnlake.maintain.maintain import maintain_table
from firnlake.table import records
from firnlake.table.policy import DAY_MS
from tests.support import lakes
from tests.support.lakes import TABLE, append, row

TWIN = "other.twin"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.embedded(tmp_path / "home")


def publish(lake: Lake, identifier: str, job_id: str) -> None:
    """A record in a file where Firn's job puts its output, published."""
    folder = data_folder(lake.table(identifier))
    path = lake.table(identifier).properties.get(DATA_PATH)
    lake.set_properties(identifier, {DATA_PATH: f"{folder}/{job_id}"})
    append(lake, [row(0)], identifier)
    if path:
        lake.set_properties(identifier, {DATA_PATH: path})
    else:
        with lake.table(identifier).transaction() as transaction:
            transaction.remove_properties(DATA_PATH)


@pytest.mark.parametrize("shared", ["data path", "location"])
@pytest.mark.parametrize("parts", ["manifests,snapshots", "none"])
def test_r24_each_collector_leaves_what_the_other_table_has_published(lake: Lake, shared: str, parts: str) -> None:
    table = records.create(lake, TABLE, {"firn.maintenance": parts})
    lake.create_namespace("other")
    properties = {DATA_PATH: f"{table.location()}/data", "firn.maintenance": parts}
    if shared == "location":
        properties[METADATA_PATH] = f"{table.location()}-twin"
    location = table.location() if shared == "location" else None
    lake.catalog.create_table(TWIN, table.schema(), location, properties=properties)
    publish(lake, TABLE, "0" * 16)
    publish(lake, TWIN, "1" * 16)
    for identifier in (TABLE, TWIN):
        maintain_table(lake, identifier, clock.now_ms() + 4 * DAY_MS, remove=True)
    assert lakes.offsets(lake, TABLE) == [0]
    assert lakes.offsets(lake, TWIN) == [0]
