"""What is collected of the quarantine and of removed tombstones: nothing, unless the table says so (C5, C9)."""

import os
from pathlib import Path

import pytest
from pyiceberg.table import Table

from pipeline import clock, quarantine
from pipeline.errors import ConflictError, FirnError
from pipeline.gc import Kind, collect_table
from pipeline.lake import Lake
from pipeline.policy.policy import DAY_MS
from pipeline.publish import publish
from pipeline.quarantine.quarantine import SUFFIX
from pipeline.stage import BURIED
from pipeline.tombstones import tombstones
from tests.support import lakes
from tests.support.collecting import HOUR_MS, collect, find_quarantine, gone, kept, quarantined
from tests.support.lakes import TABLE, Fates, append, append_two, only_plan, ready, row


class TestQuarantine:
    """The only copy of records without a key: kept for ever unless the table says otherwise."""

    def test_c5_by_default_it_is_kept_for_ever(self, lake: Lake, table: str) -> None:
        quarantined(lake)
        assert not any(one.goes for one in collect(lake, 10_000 * DAY_MS))
        assert len(quarantine.records(lake, table, 10)) == 1

    @pytest.mark.parametrize("name", ["age.ms", "bytes"])
    def test_limits_drop_files_and_what_only_old_snapshots_hold(self, lake: Lake, table: str, name: str) -> None:
        (file,) = quarantined(lake)
        lake.set_properties(table, {f"firn.gc.quarantine.{name}": "0"})
        now_ms = clock.now_ms() + 2 * HOUR_MS
        shown = collect_table(lake, table, now_ms, remove=False)
        found = collect_table(lake, table, now_ms, remove=True)
        assert [one for one in found if one.goes] == [one for one in shown if one.goes]
        assert f"firn.gc.quarantine.{name} = 0" in next(iter(gone(found, Kind.QUARANTINE).values()))
        assert quarantine.records(lake, table, 10) == []
        assert file.exists(), "time travel on the quarantine table still holds it"
        assert lakes.offsets(lake) == [1], "the topic table is as it was"
        assert gone(collect(lake, 2 * HOUR_MS), Kind.QUARANTINE) == {}
        later = collect(lake, 6 * DAY_MS)
        assert len(gone(later, Kind.SNAPSHOT)) == 1
        assert not file.exists()
        assert not any(one.goes for one in collect(lake, 6 * DAY_MS))
        assert metadata_files(find_quarantine(lake)) == held_metadata(find_quarantine(lake))

    def test_all_at_once_when_it_is_looked_for_late(self, lake: Lake, table: str) -> None:
        """What is shown is what goes: the file, the snapshot that held it, and the data that nothing holds then."""
        (file,) = quarantined(lake)
        lake.set_properties(table, {"firn.gc.quarantine.age.ms": str(5 * DAY_MS)})
        now_ms = clock.now_ms() + 6 * DAY_MS
        shown = collect_table(lake, table, now_ms, remove=False)
        assert file.exists()
        assert collect_table(lake, table, now_ms, remove=True) == shown
        assert {one.kind for one in shown if one.goes} == {Kind.QUARANTINE, Kind.SNAPSHOT, Kind.DATA}
        assert not file.exists()

    def test_what_is_shown_leaves_the_rest_of_an_old_snapshot(self, lake: Lake, table: str) -> None:
        """The newest snapshot is past its age and holds two files, of which one has to go."""
        (first,) = quarantined(lake)
        (second,) = quarantined(lake, start=10) - {first}
        lake.set_properties(table, {"firn.gc.quarantine.bytes": str(second.stat().st_size)})
        now_ms = clock.now_ms() + 6 * DAY_MS
        shown = collect_table(lake, table, now_ms, remove=False)
        assert collect_table(lake, table, now_ms, remove=True) == shown
        assert [one.files for one in shown if one.goes and one.kind is Kind.DATA] == [1]
        assert (first.exists(), second.exists()) == (False, True)
        assert [one.offset for one in quarantine.records(lake, table, 10)] == [10]

    def test_nothing_younger_than_an_hour_goes(self, lake: Lake, table: str) -> None:
        quarantined(lake)
        lake.set_properties(table, {"firn.gc.quarantine.age.ms": "0", "firn.gc.quarantine.bytes": "0"})
        assert gone(collect(lake, HOUR_MS - 60_000), Kind.QUARANTINE) == {}

    def test_beyond_its_bytes_the_oldest_goes(self, lake: Lake, table: str) -> None:
        (first,) = quarantined(lake)
        (second,) = quarantined(lake, start=10) - {first}
        os.utime(first, (0, 0))
        size = second.stat().st_size
        lake.set_properties(table, {"firn.gc.quarantine.bytes": str(size)})
        found = gone(collect(lake, 2 * HOUR_MS), Kind.QUARANTINE)
        assert [lakes.on_disk(path) for path in found] == [first]
        assert [one.offset for one in quarantine.records(lake, table, 10)] == [10]

    def test_tags_on_the_quarantine_hold(self, lake: Lake, table: str) -> None:
        (file,) = quarantined(lake)
        held = find_quarantine(lake)
        snapshot = held.current_snapshot()
        assert snapshot is not None
        held.manage_snapshots().create_tag(snapshot.snapshot_id, "audit").commit()
        lake.set_properties(table, {"firn.gc.quarantine.age.ms": "0"})
        collect(lake, 6 * DAY_MS)
        assert gone(collect(lake, 20 * DAY_MS), Kind.SNAPSHOT) == {}
        assert file.exists()
        assert find_quarantine(lake).scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows == 1

    def test_icebergs_own_properties_say_how_long_its_history_is_kept(self, lake: Lake, table: str) -> None:
        quarantined(lake)
        lake.set_properties(table, {"firn.gc.quarantine.age.ms": "0"})
        lake.set_properties(f"{table}{SUFFIX}", {"history.expire.min-snapshots-to-keep": "2"})
        collect(lake, 2 * HOUR_MS)
        assert gone(collect(lake, 20 * DAY_MS), Kind.SNAPSHOT) == {}
        lake.set_properties(
            f"{table}{SUFFIX}",
            {"history.expire.min-snapshots-to-keep": "1", "history.expire.max-snapshot-age-ms": str(30 * DAY_MS)},
        )
        assert gone(collect(lake, 20 * DAY_MS), Kind.SNAPSHOT) == {}
        assert gone(collect(lake, 31 * DAY_MS), Kind.SNAPSHOT)

    def test_c5_what_is_quarantined_at_the_same_time_is_not_lost(self, lake: Lake, table: str) -> None:
        (first,) = quarantined(lake)
        lake.set_properties(table, {"firn.gc.quarantine.bytes": str(first.stat().st_size)})
        done = lakes.together(
            lambda: collect(Lake.embedded(lake.home), 2 * HOUR_MS),
            lambda: quarantined(Lake.embedded(lake.home), start=10),
        )
        assert not [one for one in done if isinstance(one, FirnError)]
        assert [one.offset for one in quarantine.records(lake, table, 10)][-1] == 10
        collect(lake, 2 * HOUR_MS)
        assert [one.offset for one in quarantine.records(lake, table, 10)] == [10]


class TestRemovedTombstones:
    """Kept beside the table for records that turn up late (C9): for ever unless the table says otherwise."""

    def test_c9_by_default_they_are_kept_for_ever(self, lake: Lake, table: str) -> None:
        buried(lake)
        found = collect(lake, 10_000 * DAY_MS)
        assert not any(one.goes for one in found)
        assert list(kept(found, Kind.TOMBSTONES)) == [f"{table}__tombstones"]
        assert find_tombstones(lake).scan().count() == 1

    @pytest.mark.parametrize("name", ["age.ms", "bytes"])
    def test_limits_forget_them_and_nothing_else(self, lake: Lake, table: str, name: str) -> None:
        (lost,) = quarantined(lake)
        (file,) = buried(lake, start=10)
        lake.set_properties(table, {f"firn.gc.tombstones.{name}": "0"})
        now_ms = clock.now_ms() + 6 * DAY_MS
        shown = collect_table(lake, table, now_ms, remove=False)
        assert file.exists()
        assert collect_table(lake, table, now_ms, remove=True) == shown
        assert {one.kind for one in shown if one.goes} == {Kind.TOMBSTONES, Kind.SNAPSHOT, Kind.DATA}
        assert f"firn.gc.tombstones.{name} = 0" in next(iter(gone(shown, Kind.TOMBSTONES).values()))
        assert f"{table}__tombstones" in next(iter(gone(shown, Kind.SNAPSHOT).values()))
        assert (file.exists(), find_tombstones(lake).scan().count()) == (False, 0)
        assert (lost.exists(), len(quarantine.records(lake, table, 10))) == (True, 1)
        assert lakes.offsets(lake) == [11], "the topic table is as it was"

    def test_one_that_was_removed_within_the_limit_stays(self, lake: Lake, table: str) -> None:
        (file,) = buried(lake)
        lake.set_properties(table, {"firn.gc.tombstones.age.ms": str(90 * DAY_MS)})
        assert gone(collect(lake, 89 * DAY_MS), Kind.TOMBSTONES) == {}
        assert [lakes.on_disk(path) for path in gone(collect(lake, 91 * DAY_MS), Kind.TOMBSTONES)] == [file]

    def test_a_plan_that_needs_one_is_planned_again(self, lake: Lake, table: str) -> None:
        buried(lake, start=10)
        append(lake, [row(5)])
        plan = only_plan(lake)
        assert plan.buried
        lake.set_properties(table, {"firn.gc.tombstones.age.ms": "0"})
        collect(lake, 2 * HOUR_MS)
        with pytest.raises(ConflictError, match="plan again"):
            tombstones.files_of(lake, plan)
        assert not only_plan(lake).buried


def buried(lake: Lake, start: int = 0) -> set[Path]:
    """Land a tombstone and a newer record, and publish a cleaning that removes it; the files of removed tombstones."""
    append_two(lake, row(start, value=None, headers=[]), row(start + 1, headers=[]))
    plan = only_plan(lake)
    rows = [row(start, value=None, headers=[], level=BURIED), row(start + 1, headers=[])]
    fates = Fates(superseded=plan.records - 2, tombstones_removed=1)
    publish(lake, ready(lake, plan, rows, fates).identifier)
    return {lakes.on_disk(path) for path in lakes.paths(find_tombstones(lake))}


def find_tombstones(lake: Lake) -> Table:
    table = tombstones.find(lake, TABLE)
    assert table is not None
    return table


def metadata_files(table: Table) -> set[str]:
    """Manifest lists and manifests that lie there."""
    return {path.name for path in lakes.on_disk(table.location()).glob("metadata/*.avro")}


def held_metadata(table: Table) -> set[str]:
    """Manifest lists and manifests that snapshots have."""
    found = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    found |= {one.manifest_path for snapshot in table.metadata.snapshots for one in snapshot.manifests(table.io)}
    return {path.rpartition("/")[2] for path in found}
