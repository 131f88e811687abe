"""Bytes of a table by what keeps them, and files that nothing refers to: these go, beside others who list them, and at
strange locations (C25, C29)."""

import json
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress

import pytest
from pyiceberg.table import Table

from firnlake.errors import FirnError
from firnlake.iceberg.branches import QUARANTINE, QUARANTINED, SIDE_BRANCHES, ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status import TopicSpace, history_space, status_of
from firnlake.job.garbage import discard
from firnlake.job.stage import Stage, open_stages, stages_of
from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add
from tests.support.disturbed import Telling
from tests.support.faults import Nth, through, watched
from tests.support.lakes import TABLE, Fates, append, only_plan, publish, ready, row
from tests.support.row_deletes import data_files
from tests.support.scenario import Scenario


def sizes(table: Table, snapshot_id: int | None = None) -> Mapping[str, int]:
    """Sizes of all live files of a snapshot by path, smallest first, from its manifests."""
    snapshot = table.snapshot_by_id(snapshot_id) if snapshot_id else table.current_snapshot()
    assert snapshot is not None
    entries = (entry for one in snapshot.manifests(table.io) for entry in one.fetch_manifest_entry(table.io))
    found = sorted((one.data_file.file_size_in_bytes, one.data_file.file_path) for one in entries)
    return {path: size for size, path in found}


def heads(table: Table) -> dict[str, int]:
    return {name: ref.snapshot_id for name, ref in table.metadata.refs.items()}


def counted(table: Table, staying: Collection[int]) -> tuple[int, int]:
    """The same figures by listing the files of every snapshot."""
    by_snapshot = {one.snapshot_id: sizes(table, one.snapshot_id) for one in table.metadata.snapshots}
    live = {path for name, at in heads(table).items() if name in ("main", *SIDE_BRANCHES) for path in by_snapshot[at]}
    kept = {path for snapshot_id in staying for path in by_snapshot[snapshot_id]}
    held = {path: size for files in by_snapshot.values() for path, size in files.items() if path not in live}
    expirable = sum(size for path, size in held.items() if path not in kept)
    return sum(held.values()), expirable


def remove(table: Table, paths: Collection[str], branch: str = "main") -> None:
    """Take files out of a branch, as an engine does that overwrites them."""
    with table.transaction() as transaction, transaction.update_snapshot(branch=branch).overwrite() as change:
        for task in table.scan(snapshot_id=heads(table)[branch]).plan_files():
            if task.file.file_path in paths:
                change.delete_data_file(task.file)


def record_of(number: int) -> list[dict[str, object]]:
    """One record, in a file of a size of its own."""
    return [row(number, value=b"v" * (10 * number))]


@pytest.fixture
def removed_twice(lake: Lake, table: str) -> Table:
    """Six appends of one file; then the third's file goes, and the first's and second's."""
    for number in range(6):
        append(lake, record_of(number))
    paths = list(sizes(lake.table(table)))
    for going in (paths[2:3], paths[:2]):
        remove(lake.table(table), going)
    return lake.table(table)


def test_c29_what_was_removed_is_held_until_its_snapshots_go(removed_twice: Table) -> None:
    newest_first = [snapshot.snapshot_id for snapshot in ancestors(removed_twice)]
    freed = []
    for number in range(1, len(newest_first) + 1):
        told = history_space(removed_twice, newest_first[:number])
        assert told == counted(removed_twice, newest_first[:number])
        freed.append(told[1])
    assert freed[0] == told[0] > freed[1] > freed[2] == 0


def live(lake: Lake, branch: str = "main") -> int:
    """Bytes of the data files on a branch."""
    return sum(sizes(lake.table(TABLE), heads(lake.table(TABLE))[branch]).values())


def clean(lake: Lake) -> int:
    """Land two records of one key and one without, and clean them; returns the bytes that landed."""
    append(lake, [row(0, value=b"older" * 100)])
    append(lake, [row(1), row(2, key=None)])
    landed = live(lake)
    kept = [row(1, level=3), row(2, key=None, level=QUARANTINED)]
    publish(lake, ready(lake, only_plan(lake), kept, Fates(superseded=1, quarantined=1)).identifier)
    return landed


def test_c29_status_tells_what_keeps_the_bytes_and_what_expiry_frees(lake: Lake, table: str) -> None:
    landed = clean(lake)
    newest = max(one.timestamp_ms for one in lake.table(table).metadata.snapshots)
    found = status_of(lake, table, newest)
    assert found.topics == (TopicSpace(topic="orders", main_bytes=live(lake), side_bytes=live(lake, QUARANTINE)),)
    assert (found.history_bytes, found.expirable_bytes) == (landed, 0)
    after = newest + 5 * 86_400_000 + 1
    assert status_of(lake, TABLE, after).expirable_bytes == landed
    lake.set_properties(table, {"history.expire.min-snapshots-to-keep": "100"})
    assert status_of(lake, TABLE, after).expirable_bytes == 0
    lake.set_properties(table, {"history.expire.max-snapshot-age-ms": "a week"})
    found = status_of(lake, table, newest + 10**12)
    assert found.expirable_bytes == 0
    assert "history.expire.max-snapshot-age-ms" in found.doubts[0]


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
    found = 9  # It loads the table so often until it has found what goes.
    listing = Nth(found, lambda: add(lake, scenario.name, [], [file]), only="before load")
    scenario.use(watched(lake, listing))
    said = scenario.answer("maintained")
    assert listing.acted
    assert any("in use again at the time of deletion" in line for line in said)
    assert (scenario.answer("read"), scenario.answer("whole")) == (["a=2@1"], ["missing 0, left 0"])


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


def test_an_expired_file_behind_a_link_stays(scenario: Scenario) -> None:
    """Its folder may be another table's: what `add_files` took in from there is not this table's (C29)."""
    for line in ("alone", "create maintenance=snapshots", "append a=1"):
        scenario.answer(line)
    (file,) = data_files(scenario.loaded())
    home, outside = on_disk(scenario.loaded().location()), scenario.folder / "outside"
    outside.mkdir()
    shutil.copy(on_disk(file.file_path), outside / "other.parquet")
    (home / "data" / "linked").symlink_to(outside)
    scenario.loaded().add_files([f"{scenario.loaded().location()}/data/linked/other.parquet"])
    for line in ("drop offset = 0", "later 30d", "maintained"):
        scenario.answer(line)
    assert not on_disk(file.file_path).exists()
    assert [path.name for path in outside.iterdir()] == ["other.parquet"]


def test_a_job_that_is_made_again_while_it_goes_has_no_result(scenario: Scenario) -> None:
    """C25: its files go, so whoever opens the same job after its documents went must not find what was judged."""
    for line in ("alone", "land a=1 | a=2", "stage full!"):
        scenario.answer(line)
    lake, did = scenario.opened.lake, list[str]()
    (stage,) = stages_of(lake, scenario.name)
    plans = Stage.load(lake, stage).plans

    def watch(call: str) -> None:
        if call == "catalog, before commit":
            did.append(*open_stages(lake, plans))
        if call.startswith("delete ") and did == [stage]:
            with suppress(FirnError):
                did.append(str(publish(lake, stage)))

    discard(through(lake, Telling(watch), store=True), stage)
    assert did == [stage]
    assert (scenario.answer("read"), scenario.answer("whole")) == (["a=1@0 a=2@1"], ["missing 0, left 0"])


def test_a_finding_is_a_line_of_airflows_log(orphan: Scenario) -> None:
    table = orphan.loaded()
    said = [str(one) for one in orphan.table.maintain()]
    assert f"orphans {table.location()}/data (files: 1, bytes: 4), deleted: unreferenced; older than 3 days" in said
