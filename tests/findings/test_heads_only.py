"""A load of a table that tells less than its metadata file decides about no deletion."""

from pathlib import Path

import pytest

from firnlake.clock import now_ms
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.collect import discard
from firnlake.maintain.maintain import maintain_table
from firnlake.table import records
from firnlake.table.policy import DAY_MS
from tests.support import lakes
from tests.support.expiring import replaced
from tests.support.heads_only import heads_only
from tests.support.lakes import TABLE

STUBBORN = {"differs": "snapshots"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.embedded(tmp_path / "home")


@pytest.fixture
def past(lake: Lake) -> set[Path]:
    """Files that only past snapshots reach."""
    records.create(lake, TABLE, {})
    return replaced(lake)


def after_the_age_of_orphans() -> int:
    return now_ms() + 4 * DAY_MS


@pytest.mark.parametrize("differs", ["snapshots", "references", "manifest lists", "table UUID"])
def test_r6_maintenance_refuses_a_load_unlike_the_metadata_file(lake: Lake, past: set[Path], differs: str) -> None:
    first = lake.table(TABLE).metadata.snapshots[0].snapshot_id
    lake.table(TABLE).manage_snapshots().create_tag(first, "kept").commit()
    before = lakes.table_files(lake)
    with pytest.raises(RefusedError) as refused:
        maintain_table(heads_only(lake, differs=differs), TABLE, after_the_age_of_orphans(), remove=True)
    assert f"table {TABLE}" in str(refused.value)
    assert differs in str(refused.value)
    assert lake.table(TABLE).metadata_location in str(refused.value)
    assert lakes.table_files(lake) == before
    assert past <= before


def test_r6_maintenance_refuses_a_load_without_a_metadata_location(lake: Lake, past: set[Path]) -> None:
    with pytest.raises(RefusedError, match=f"table {TABLE}: .* does not name the table"):
        maintain_table(heads_only(lake, differs="no location"), TABLE, after_the_age_of_orphans(), remove=True)
    assert all(path.exists() for path in past)


def test_r6_discarding_a_stage_refuses_such_a_load(lake: Lake, past: set[Path]) -> None:
    stage = lakes.ready(lake, lakes.only_plan(lake), [lakes.row(3)], lakes.Fates())
    with pytest.raises(RefusedError, match="snapshots"):
        discard(heads_only(lake, **STUBBORN), stage.identifier)
    assert all(path.exists() for path in past)


@pytest.mark.usefixtures("past")
@pytest.mark.parametrize("setting", ["snapshot-loading-mode", "override"])
def test_r6_all_snapshots_are_loaded_whatever_is_configured(lake: Lake, setting: str) -> None:
    whole = lake.table(TABLE).metadata
    assert heads_only(lake, **{setting: "refs"}).table(TABLE).metadata.snapshots == whole.snapshots


def test_r6_where_a_load_is_whole_maintenance_does_its_work(lake: Lake, past: set[Path]) -> None:
    maintain_table(heads_only(lake), TABLE, now_ms() + 6 * DAY_MS, remove=True)
    assert not any(path.exists() for path in past)
    assert lakes.offsets(lake) == [3]
