"""Side branches are made when Firn takes a table in hand, or else with the first commit that needs them (C5, C25);
``clear`` takes records out of quarantine: what comes meanwhile stays (C5, C22)."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.iceberg.branches import QUARANTINE, QUARANTINED, SIDE_BRANCHES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.commit import create_side_branches
from firnlake.ingest import quarantine
from firnlake.ingest.quarantine import as_of_now
from firnlake.table import records
from tests.support import lakes
from tests.support.faults import late
from tests.support.lakes import TABLE, Fates, append, append_two, files_on, only_plan, publish, ready, row


def made(lake: Lake) -> None:
    """It has both branches, empty."""
    table = lake.table(TABLE)
    assert {MAIN_BRANCH, *SIDE_BRANCHES} <= set(table.metadata.refs)
    assert all(not lakes.paths(on_branch(table, name)) for name in SIDE_BRANCHES)


def test_c25_a_new_table_has_them_and_only_what_is_missing_is_made(lake: Lake, table: str) -> None:
    made(lake)
    assert len(lake.table(table).metadata.snapshots) == 1 + len(SIDE_BRANCHES)
    before = lake.table(table).metadata_location
    create_side_branches(lake, table)
    assert lake.table(table).metadata_location == before
    for name in SIDE_BRANCHES:
        (other,) = set(SIDE_BRANCHES) - {name}
        stays = lake.table(table).metadata.refs[other].snapshot_id
        lake.table(table).manage_snapshots().remove_branch(name).commit()
        create_side_branches(lake, table)
        made(lake)
        assert lake.table(table).metadata.refs[other].snapshot_id == stays


def test_c5_a_table_whose_creation_was_cut_short_gets_them_with_the_first_commit_that_needs_them(lake: Lake) -> None:
    """The process died between the table and its branches."""
    records.create(lake, "lake.model", {})
    model = lake.table("lake.model")
    lake.catalog.create_table(TABLE, model.schema(), partition_spec=model.spec(), properties=dict(model.properties))
    append_two(lake, row(0, key=None), row(1))
    publish(lake, ready(lake, only_plan(lake), [row(0, key=None, level=-1), row(1)], Fates(quarantined=1)).identifier)
    aside = on_branch(lake.table(TABLE), QUARANTINE).scan().to_arrow()["offset"].to_pylist()
    assert (lakes.offsets(lake), aside) == ([1], [0])


def quarantined(lake: Lake, start: int) -> None:
    """Land a record without a key at offset ``start`` and one with a key, and move the former away."""
    append(lake, [row(start, key=None, headers=[]), row(start + 1, b"%d" % start)])
    rows = [
        one | {"level": QUARANTINED if one["key"] is None else 3}
        for one in lake.table(TABLE).scan().to_arrow().to_pylist()
    ]
    publish(lake, ready(lake, only_plan(lake), rows, Fates(quarantined=1)).identifier)


def left(lake: Lake) -> list[int | None]:
    """The first offset of each batch in quarantine."""
    return [one.base_offset for one in quarantine.batches(lake, TABLE)]


@pytest.mark.usefixtures("table")
def test_c5_what_is_quarantined_during_a_clear_is_not_lost_and_a_mistake_can_be_undone(lake: Lake) -> None:
    """The files stay until the branch's snapshots are expired."""
    quarantined(lake, 0)
    before, files = lake.table(TABLE).metadata.refs[QUARANTINE].snapshot_id, files_on(lake, QUARANTINE)
    slow, catalog = late(lake, "records", "yes")
    with ThreadPoolExecutor(1) as other:
        clearing = other.submit(quarantine.clear, slow, TABLE, as_of_now(lake, TABLE))
        assert catalog.came.wait(60)
        quarantined(lake, 30)
        catalog.go.set()
        assert clearing.result() == 1
    assert left(lake) == [30]
    assert all(file.exists() for file in files)
    lake.table(TABLE).manage_snapshots().create_branch(before, QUARANTINE).commit()
    assert left(lake) == [0]
