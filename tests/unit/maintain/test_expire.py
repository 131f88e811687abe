"""Snapshots, branches and tags expire by Iceberg's rules, and with them the files that nothing else reaches (C29)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from firnlake import clock
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Kind
from firnlake.iceberg.referenced_files import Contents
from firnlake.maintain.expire import expire as expire_table
from firnlake.maintain.maintain import maintain_table
from firnlake.maintain.unreached import Coming
from infra.foreign.files import on_disk
from tests.support import foreign, lakes
from tests.support.expiring import LATER, expire, first_of, maintain
from tests.support.faults import late
from tests.support.lakes import TABLE, append, row
from tests.support.maintaining import gone


def heads(table: Table) -> set[int]:
    """The snapshots of branches and tags."""
    return {ref.snapshot_id for ref in table.metadata.refs.values()}


class Overtaken(Contents):
    """Another maintenance run deletes a manifest and, before it, its data files, when this run reads it once more."""

    def files_of(self, manifest: int) -> Iterator[tuple[str, int]]:
        for location in (*(path for path, _ in super().files_of(manifest)), self.manifest(manifest)[0]):
            on_disk(location).unlink()
        return super().files_of(manifest)


class TestFiles:
    """Snapshots and files that go, and those that stay."""

    def test_c29_space_is_freed_and_readers_see_what_they_saw(self, lake: Lake, old: set[Path]) -> None:
        found = maintain(lake)
        assert gone(found, Kind.SNAPSHOTS)
        assert not any(path.exists() for path in old)
        table = lake.table(TABLE)
        assert {one.snapshot_id for one in table.metadata.snapshots} == heads(table)
        assert lakes.offsets(lake) == [3]
        known = {on_disk(path) for path in lakes.held(table)}
        for snapshot in table.metadata.snapshots:
            known |= {on_disk(one.manifest_path) for one in snapshot.manifests(table.io)}
            known |= {on_disk(snapshot.manifest_list)}
        assert {path for path in lakes.table_files(lake) if ".metadata.json" not in path.name} == known

    def test_c25_a_dry_run_finds_what_a_run_removes_and_a_second_run_nothing(self, lake: Lake, old: set[Path]) -> None:
        before = lakes.table_files(lake)
        now_ms = clock.now_ms() + LATER
        shown = maintain_table(lake, TABLE, now_ms, remove=False)
        assert lakes.table_files(lake) == before
        assert maintain_table(lake, TABLE, now_ms, remove=True) == shown
        files = [one.files for one in shown if one.kind is Kind.EXPIRED]
        assert sum(files) == len(before - lakes.table_files(lake))
        assert files[0] == len(old)
        assert sum(one.bytes for one in shown if one.kind is Kind.EXPIRED) > 0
        assert maintain_table(lake, TABLE, now_ms, remove=True) == []

    def test_statistics_go_with_their_snapshot(self, lake: Lake, old: set[Path]) -> None:
        table = lake.table(TABLE)
        paths = []
        for snapshot in (table.metadata.snapshots[0], table.metadata.snapshots[-1]):
            location = f"{table.location()}/metadata/{snapshot.snapshot_id}.stats"
            on_disk(location).write_bytes(b"puffin")
            paths.append(on_disk(location))
            named = {
                "snapshot-id": snapshot.snapshot_id,
                "statistics-path": location,
                "file-size-in-bytes": 6,
                "file-footer-size-in-bytes": 1,
                "blob-metadata": [],
            }
            with lake.table(TABLE).update_statistics() as update:
                update.set_statistics(StatisticsFile.model_validate(named))
        maintain(lake)
        assert [path.exists() for path in paths] == [False, True]
        assert not any(path.exists() for path in old)

    def test_a_file_under_another_spelling_is_the_same_file(self, lake: Lake, table: str) -> None:
        """Java writes `file:/a`, PyIceberg `file:///a`."""
        location = lakes.append_file(lake, [row(0)])
        foreign.append_again(lake, location, respelled=location.replace("file:///", "file:/"))
        with lake.table(table).transaction() as change, change.update_snapshot().overwrite() as swap:
            (entry,) = (task.file for task in lake.table(table).scan().plan_files() if task.file.file_path == location)
            swap.delete_data_file(entry)
        assert gone(maintain(lake), Kind.SNAPSHOTS)
        assert on_disk(location).exists()
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
            maintaining = other.submit(expire, slow)
            assert catalog.came.wait(60)
            append(lake, [row(4)])
            catalog.go.set()
            found = maintaining.result()
        assert gone(found, Kind.SNAPSHOTS)
        assert lakes.offsets(lake) == [3, 4]
        assert not any(path.exists() for path in old)

    def test_c29_what_main_is_rolled_back_to_meanwhile_stays(self, lake: Lake, old: set[Path]) -> None:
        first = first_of(lake).snapshot_id
        slow, catalog = late(lake, "records", "yes")
        with ThreadPoolExecutor(1) as other:
            maintaining = other.submit(expire, slow)
            assert catalog.came.wait(60)
            lake.table(TABLE).manage_snapshots().set_current_snapshot(first).commit()
            catalog.go.set()
            maintaining.result()
        assert lakes.snapshot(lake) == first
        assert lakes.offsets(lake) == [0]
        assert [path.exists() for path in sorted(old)].count(True) == 1

    def test_what_another_tool_expires_meanwhile_is_no_error(self, lake: Lake, old: set[Path]) -> None:
        first = first_of(lake).snapshot_id
        slow, catalog = late(lake, "records", "yes")
        with ThreadPoolExecutor(1) as other:
            maintaining = other.submit(expire, slow)
            assert catalog.came.wait(60)
            lake.table(TABLE).maintenance.expire_snapshots().by_id(first).commit()
            catalog.go.set()
            found = maintaining.result()
        assert gone(found, Kind.SNAPSHOTS)
        maintain(lake)
        assert not any(path.exists() for path in old)
        assert lakes.offsets(lake) == [3]

    def test_another_run_may_delete_the_manifests_first(self, lake: Lake, old: set[Path]) -> None:
        now_ms, table = clock.now_ms() + LATER, lake.table(TABLE)
        found = expire_table(lake, TABLE, now_ms, Overtaken(table.io), Coming(), remove=True).findings
        assert not [one for one in found if one.exit_code]
        assert any("it is gone" in one.reason for one in found)
        assert not any(path.exists() for path in old)
        assert lakes.offsets(lake) == [3]

    def test_several_at_a_time_do_no_harm(self, lake: Lake, old: set[Path]) -> None:
        done = lakes.together(*[lambda: expire(Lake.embedded(lake.home))] * 3)
        assert not [one for one in done if isinstance(one, Exception)]
        assert not any(path.exists() for path in old)
        assert lakes.offsets(lake) == [3]
