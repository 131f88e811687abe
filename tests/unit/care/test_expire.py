"""Snapshots, branches and tags expire by Iceberg's rules, and with them the files that nothing else reaches (C29)."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowLocalFileSystem
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import StatisticsFile

from pipeline import clock
from pipeline.care import ALL, Garbage, Kind, Part, care_table
from pipeline.errors import RefusedError, UnavailableError
from pipeline.history.retained import MAX_SNAPSHOT_AGE
from pipeline.lake import Lake
from pipeline.policy.policy import DAY_MS
from tests.support import foreign, lakes
from tests.support.caring import gone, kept
from tests.support.lakes import TABLE, append, row
from tests.support.late import late

LATER = 6 * DAY_MS
"""Past the default age of snapshots."""


def care(lake: Lake, after_ms: int = LATER, parts: frozenset[Part] = ALL) -> list[Garbage]:
    return care_table(lake, TABLE, clock.now_ms() + after_ms, remove=True, parts=parts)


def expire(lake: Lake) -> list[Garbage]:
    return care(lake, parts=frozenset([Part.SNAPSHOTS]))


def on_disk(lake: Lake) -> set[Path]:
    """All files of the table."""
    return lakes.files_under(lakes.on_disk(lake.table(TABLE).location()))


def replaced(lake: Lake, times: int = 3) -> set[Path]:
    """Land and delete a record, again and again; the data files that only past snapshots reach."""
    files = set()
    for number in range(times):
        files.add(lakes.on_disk(lakes.append_file(lake, [row(number)])))
        lake.table(TABLE).delete(f"offset = {number}")
    append(lake, [row(times)])
    return files


def first_of(lake: Lake) -> Snapshot:
    """The snapshot that landed the first record."""
    table = lake.table(TABLE)
    return next(one for one in table.metadata.snapshots if one.manifests(table.io))


def heads(table: Table) -> set[int]:
    """The snapshots of branches and tags."""
    return {ref.snapshot_id for ref in table.metadata.refs.values()}


@pytest.fixture
def old(lake: Lake, table: str) -> set[Path]:
    """Data files that only past snapshots reach."""
    assert table == TABLE
    return replaced(lake)


class TestFiles:
    """Snapshots and files that go, and those that stay."""

    def test_c29_space_is_freed_and_readers_see_what_they_saw(self, lake: Lake, old: set[Path]) -> None:
        found = care(lake)
        assert gone(found, Kind.SNAPSHOTS)
        assert not any(path.exists() for path in old)
        table = lake.table(TABLE)
        assert {one.snapshot_id for one in table.metadata.snapshots} == heads(table)
        assert lakes.offsets(lake) == [3]
        known = {lakes.on_disk(path) for path in lakes.held(table)}
        for snapshot in table.metadata.snapshots:
            known |= {lakes.on_disk(one.manifest_path) for one in snapshot.manifests(table.io)}
            known |= {lakes.on_disk(snapshot.manifest_list)}
        assert {path for path in on_disk(lake) if ".metadata.json" not in path.name} == known

    def test_c25_a_dry_run_finds_what_a_run_removes_and_a_second_run_nothing(self, lake: Lake, old: set[Path]) -> None:
        before = on_disk(lake)
        now_ms = clock.now_ms() + LATER
        shown = care_table(lake, TABLE, now_ms, remove=False)
        assert on_disk(lake) == before
        assert care_table(lake, TABLE, now_ms, remove=True) == shown
        files = [one.files for one in shown if one.kind is Kind.EXPIRED]
        assert sum(files) == len(before - on_disk(lake))
        assert files[0] == len(old)
        assert sum(one.bytes for one in shown if one.kind is Kind.EXPIRED) > 0
        assert care_table(lake, TABLE, now_ms, remove=True) == []

    def test_young_snapshots_stay(self, lake: Lake, old: set[Path]) -> None:
        before = on_disk(lake)
        assert not [one for one in care(lake, after_ms=4 * DAY_MS) if one.goes]
        assert on_disk(lake) == before
        assert all(path.exists() for path in old)

    def test_the_tables_own_limit_holds(self, lake: Lake, old: set[Path]) -> None:
        lake.set_properties(TABLE, {MAX_SNAPSHOT_AGE: "3600000"})
        assert gone(care(lake, after_ms=7_200_000), Kind.SNAPSHOTS)
        assert not any(path.exists() for path in old)

    @pytest.mark.parametrize("kind", ["tag", "branch"])
    def test_c29_a_ref_of_another_writer_keeps_all_it_reaches(self, lake: Lake, table: str, kind: str) -> None:
        path = lakes.on_disk(lakes.append_file(lake, [row(0)]))
        snapshot_id = lakes.snapshot(lake)
        assert snapshot_id is not None
        manage = lake.table(table).manage_snapshots()
        (manage.create_tag if kind == "tag" else manage.create_branch)(snapshot_id, "audit").commit()
        lake.table(table).delete("offset = 0")
        old = replaced(lake)
        care(lake)
        assert path.exists()
        assert not any(one.exists() for one in old)
        assert lake.table(table).scan().use_ref("audit").to_arrow()["offset"].to_pylist() == [0]
        assert lakes.offsets(lake) == [3]

    def test_a_tag_past_its_age_goes_with_its_files(self, lake: Lake, table: str) -> None:
        path = lakes.on_disk(lakes.append_file(lake, [row(0)]))
        snapshot_id = lakes.snapshot(lake)
        assert snapshot_id is not None
        lake.table(table).manage_snapshots().create_tag(snapshot_id, "audit", max_ref_age_ms=DAY_MS).commit()
        lake.table(table).delete("offset = 0")
        append(lake, [row(1)])
        assert list(gone(care(lake), Kind.REF)) == ["tag audit"]
        assert "audit" not in lake.table(table).metadata.refs
        assert not path.exists()

    def test_statistics_go_with_their_snapshot(self, lake: Lake, old: set[Path]) -> None:
        table = lake.table(TABLE)
        paths = []
        for snapshot in (table.metadata.snapshots[0], table.metadata.snapshots[-1]):
            location = f"{table.location()}/metadata/{snapshot.snapshot_id}.stats"
            lakes.on_disk(location).write_bytes(b"puffin")
            paths.append(lakes.on_disk(location))
            named = {
                "snapshot-id": snapshot.snapshot_id,
                "statistics-path": location,
                "file-size-in-bytes": 6,
                "file-footer-size-in-bytes": 1,
                "blob-metadata": [],
            }
            with lake.table(TABLE).update_statistics() as update:
                update.set_statistics(StatisticsFile.model_validate(named))
        care(lake)
        assert [path.exists() for path in paths] == [False, True]
        assert not any(path.exists() for path in old)

    def test_a_file_under_another_spelling_is_the_same_file(self, lake: Lake, table: str) -> None:
        """Java writes `file:/a`, PyIceberg `file:///a`."""
        location = lakes.append_file(lake, [row(0)])
        foreign.append_again(lake, location, respelled=location.replace("file:///", "file:/"))
        with lake.table(table).transaction() as change, change.update_snapshot().overwrite() as swap:
            (entry,) = (task.file for task in lake.table(table).scan().plan_files() if task.file.file_path == location)
            swap.delete_data_file(entry)
        assert gone(care(lake), Kind.SNAPSHOTS)
        assert lakes.on_disk(location).exists()
        assert lakes.offsets(lake) == [0]

    def test_checksums_of_hadoop_go_with_their_files(self, lake: Lake, old: set[Path]) -> None:
        checksums = [path.with_name(f".{path.name}.crc") for path in old]
        for path in checksums:
            path.write_bytes(b"crc")
        expire(lake)
        assert not any(path.exists() for path in checksums)


class TestOthers:
    """Other processes at the same time, and what they leave."""

    def test_c22_an_append_meanwhile_is_not_lost(self, lake: Lake, old: set[Path]) -> None:
        slow, catalog = late(lake, "records", "yes")
        with ThreadPoolExecutor(1) as other:
            caring = other.submit(expire, slow)
            assert catalog.came.wait(60)
            append(lake, [row(4)])
            catalog.go.set()
            found = caring.result()
        assert gone(found, Kind.SNAPSHOTS)
        assert lakes.offsets(lake) == [3, 4]
        assert not any(path.exists() for path in old)

    def test_c29_what_main_is_rolled_back_to_meanwhile_stays(self, lake: Lake, old: set[Path]) -> None:
        first = first_of(lake).snapshot_id
        slow, catalog = late(lake, "records", "yes")
        with ThreadPoolExecutor(1) as other:
            caring = other.submit(expire, slow)
            assert catalog.came.wait(60)
            lake.table(TABLE).manage_snapshots().set_current_snapshot(first).commit()
            catalog.go.set()
            caring.result()
        assert lakes.snapshot(lake) == first
        assert lakes.offsets(lake) == [0]
        assert [path.exists() for path in sorted(old)].count(True) == 1

    @pytest.mark.parametrize("kind", ["tag", "branch"])
    def test_c29_a_ref_that_is_created_meanwhile_keeps_its_snapshot(
        self, lake: Lake, old: set[Path], kind: str
    ) -> None:
        """Catalogs remove the refs of a snapshot with it, and no commit can ask that there is none."""
        first = first_of(lake).snapshot_id
        slow, catalog = late(lake, "records", "yes")
        with ThreadPoolExecutor(1) as other:
            caring = other.submit(expire, slow)
            assert catalog.came.wait(60)
            manage = lake.table(TABLE).manage_snapshots()
            if kind == "tag":
                manage.create_tag(first, "audit", max_ref_age_ms=77 * DAY_MS).commit()
            else:
                manage.create_branch(first, "audit", max_ref_age_ms=77 * DAY_MS).commit()
            catalog.go.set()
            caring.result()
        ref = lake.table(TABLE).metadata.refs["audit"]
        assert (ref.snapshot_id, ref.snapshot_ref_type.value, ref.max_ref_age_ms) == (first, kind, 77 * DAY_MS)
        assert lake.table(TABLE).scan().use_ref("audit").to_arrow()["offset"].to_pylist() == [0]
        care(lake)
        assert lake.table(TABLE).scan().use_ref("audit").to_arrow()["offset"].to_pylist() == [0]
        assert [path.exists() for path in old].count(True) == 1
        append(lake, [row(5)])
        assert lakes.offsets(lake) == [3, 5]

    def test_what_another_tool_expires_meanwhile_is_no_error(self, lake: Lake, old: set[Path]) -> None:
        first = first_of(lake).snapshot_id
        slow, catalog = late(lake, "records", "yes")
        with ThreadPoolExecutor(1) as other:
            caring = other.submit(expire, slow)
            assert catalog.came.wait(60)
            lake.table(TABLE).maintenance.expire_snapshots().by_id(first).commit()
            catalog.go.set()
            found = caring.result()
        assert gone(found, Kind.SNAPSHOTS)
        care(lake)
        assert not any(path.exists() for path in old)
        assert lakes.offsets(lake) == [3]

    def test_several_at_a_time_do_no_harm(self, lake: Lake, old: set[Path]) -> None:
        done = lakes.together(*[lambda: expire(Lake.embedded(lake.home))] * 3)
        assert not [one for one in done if isinstance(one, Exception)]
        assert not any(path.exists() for path in old)
        assert lakes.offsets(lake) == [3]


def torn(path: Path) -> None:
    """Cut the file where a block ends: nothing in it tells."""
    content = path.read_bytes()
    path.write_bytes(content[: content.index(content[-16:]) + 16])


def garbled(path: Path) -> None:
    """Other bytes in place of its last block."""
    content = path.read_bytes()
    path.write_bytes(content[:-60] + bytes(60))


class TestFailures:
    """Metadata and files that are missing, broken or forbidden."""

    @pytest.mark.parametrize("harm", [Path.unlink, torn, garbled])
    def test_c26_of_a_missing_manifest_the_rest_goes_and_it_is_named(
        self, lake: Lake, old: set[Path], harm: Callable[[Path], None]
    ) -> None:
        manifest = first_of(lake).manifests(lake.table(TABLE).io)[0].manifest_path
        harm(lakes.on_disk(manifest))
        found = care(lake)
        assert "so what it names can't be told" in kept(found, Kind.EXPIRED)[manifest]
        assert [path.exists() for path in sorted(old)].count(True) == 1
        assert not any(one.exit_code for one in found if one.kind is not Kind.ORPHANS)
        assert gone(care(lake), Kind.ORPHANS), "what could not be told is an orphan"
        assert not any(path.exists() for path in old)
        assert lakes.offsets(lake) == [3]

    def test_c26_of_a_missing_manifest_list_the_rest_goes_and_it_is_named(self, lake: Lake, old: set[Path]) -> None:
        listed = first_of(lake).manifest_list
        lakes.on_disk(listed).unlink()
        assert listed in kept(care(lake), Kind.EXPIRED)
        care(lake)
        assert not any(path.exists() for path in old)

    @pytest.mark.parametrize("harm", [Path.unlink, torn, garbled])
    def test_c29_where_a_kept_manifest_is_missing_nothing_is_deleted(
        self, lake: Lake, old: set[Path], harm: Callable[[Path], None]
    ) -> None:
        snapshot = lake.table(TABLE).current_snapshot()
        assert snapshot is not None
        for manifest in snapshot.manifests(lake.table(TABLE).io):
            harm(lakes.on_disk(manifest.manifest_path))
        found = expire(lake)
        (failed,) = (one for one in found if one.kind is Kind.EXPIRED)
        assert (failed.goes, failed.exit_code) == (False, UnavailableError.exit_code)
        assert all(path.exists() for path in old)

    def test_a_missing_data_file_is_no_error(self, lake: Lake, old: set[Path]) -> None:
        next(iter(old)).unlink()
        found = expire(lake)
        assert not any(one.exit_code for one in found)
        assert not any(path.exists() for path in old)

    def test_c26_a_store_that_fails_in_the_middle_is_told_and_the_next_run_goes_on(
        self, lake: Lake, old: set[Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failing = sorted(map(str, old))[1:]

        def delete_file(files: FileSystem, path: str) -> None:
            if path in failing:
                raise OSError(f"503 slow down: {path}")
            FileSystem.delete_file(files, path)

        with monkeypatch.context() as patched:
            patched.setattr(PyArrowLocalFileSystem, "delete_file", delete_file, raising=False)
            found = expire(lake)
        failed = [one for one in found if one.exit_code]
        assert sorted(one.name for one in failed) == failing
        assert {one.exit_code for one in failed} == {UnavailableError.exit_code}
        assert "503 slow down" in failed[0].reason
        assert sorted(str(path) for path in old if path.exists()) == failing
        care(lake)
        assert not any(path.exists() for path in old)

    def test_c26_without_permission_to_delete_everything_stays_and_is_named(
        self, lake: Lake, old: set[Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def delete_file(files: FileSystem, path: str) -> None:
            raise PermissionError(13, "Permission denied", path)

        before = on_disk(lake)
        monkeypatch.setattr(PyArrowLocalFileSystem, "delete_file", delete_file, raising=False)
        found = expire(lake)
        assert before <= on_disk(lake)
        assert set(map(str, old)) <= {one.name for one in found if one.exit_code}
        assert not [one for one in found if one.kind is Kind.EXPIRED and one.goes]
        assert lakes.offsets(lake) == [3]

    @pytest.mark.usefixtures("old")
    def test_c26_a_limit_that_is_no_number_is_refused(self, lake: Lake) -> None:
        lake.set_properties(TABLE, {MAX_SNAPSHOT_AGE: "5 days"})
        before = on_disk(lake)
        with pytest.raises(RefusedError, match=f"property {MAX_SNAPSHOT_AGE} is '5 days'"):
            expire(lake)
        assert on_disk(lake) == before


class TestSwitches:
    """Others may look after the table."""

    @pytest.mark.parametrize("name", ["firn.care.enabled", "firn.care.snapshots"])
    def test_each_part_can_be_left_to_others(self, lake: Lake, old: set[Path], name: str) -> None:
        lake.set_properties(TABLE, {name: "false"})
        before = lake.table(TABLE).metadata.snapshots
        expire(lake)
        assert lake.table(TABLE).metadata.snapshots == before
        assert all(path.exists() for path in old)

    def test_icebergs_own_switch_forbids_it(self, lake: Lake, old: set[Path]) -> None:
        lake.set_properties(TABLE, {"gc.enabled": "false"})
        orphan = lakes.on_disk(lake.table(TABLE).location()) / "data" / "orphan.parquet"
        orphan.write_bytes(b"PAR1")
        os.utime(orphan, (0, 0))
        found = care(lake)
        assert {one.kind for one in found if "GC is disabled" in one.reason} == {Kind.SNAPSHOTS, Kind.ORPHANS}
        assert not [one for one in found if one.goes]
        assert orphan.exists()
        assert all(path.exists() for path in old)
