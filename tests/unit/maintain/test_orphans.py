"""Files of a table that no snapshot refers to go once they are past their limit, all others stay (C25)."""

import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowLocalFileSystem

from firnlake import clock
from firnlake.errors import FirnError, RefusedError, UnavailableError
from firnlake.iceberg.branches import QUARANTINE
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Kind
from firnlake.iceberg.files import DATA_PATH, data_folder
from firnlake.job.plan import Plan
from firnlake.maintain.maintain import HOURLY, maintain_table
from firnlake.table import records
from firnlake.table.policy import DAY_MS
from firnlake.table.segments import read_entries
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.faults import late
from tests.support.lakes import TABLE, Fates, append, only_plan, ready, row
from tests.support.maintaining import HOUR_MS, LATER, collect, files_on, gone, kept, quarantined
from tests.support.publishing import publish


def published(lake: Lake, plan: Plan, *offsets: int) -> set[Path]:
    """The files that publishing a cleaning of ``plan`` has put into the table."""
    publish(
        lake, ready(lake, plan, [row(one) for one in offsets], Fates(superseded=plan.records - len(offsets))).identifier
    )
    return {on_disk(path) for path in lakes.paths(lake.table(TABLE)) if "/_firn/" in path}


def expire(lake: Lake, identifier: str = TABLE) -> None:
    """Expire all snapshots but the current one, as the table's owner does."""
    lake.table(identifier).maintenance.expire_snapshots().older_than(datetime(2100, 1, 1, tzinfo=UTC)).commit()


def stray(lake: Lake, folder: str, name: str = "stray.parquet") -> Path:
    """A file that nothing refers to, ``folder`` below the table's data."""
    table = lake.table(TABLE)
    own = folder.startswith("_firn/")
    root = on_disk(data_folder(table)).parent.parent if own else on_disk(table.location()) / "data"
    path = root / (folder.replace("_firn/", f"_firn/{table.metadata.table_uuid}/") if own else folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"PAR1")
    return path


class TestData:
    """Files that no snapshot refers to."""

    @pytest.mark.usefixtures("table")
    def test_a_table_without_anything_has_nothing_to_collect(self, lake: Lake) -> None:
        assert collect(lake, LATER) == []

    def test_c25_what_is_live_stays_for_ever(self, lake: Lake, plan: Plan) -> None:
        files = published(lake, plan, 1)
        collect(lake, 1000 * DAY_MS)
        assert collect(lake, 1000 * DAY_MS) == []
        assert all(file.exists() for file in files)
        assert lakes.offsets(lake) == [1]

    def test_time_travel_holds_files(self, lake: Lake, plan: Plan) -> None:
        files = published(lake, plan, 1)
        published_as = lakes.snapshot(lake)
        lake.table(TABLE).delete("offset = 1")
        files |= {on_disk(one.path) for one in plan.inputs}
        found = collect(lake, LATER)
        assert not any(one.goes for one in found)
        (held,) = found
        assert (held.files, held.bytes) == (3, sum(file.stat().st_size for file in files))
        assert "only past snapshots refer to them" in held.reason
        assert lake.table(TABLE).scan(snapshot_id=published_as).to_arrow()["offset"].to_pylist() == [1]

    def test_what_was_expired_goes_with_its_folders(self, lake: Lake, plan: Plan) -> None:
        (file,) = published(lake, plan, 1)
        landed = [on_disk(one.path) for one in plan.inputs]
        lake.table(TABLE).delete("offset = 1")
        expire(lake)
        folder = f"{data_folder(lake.table(TABLE))}/{plan.id}"
        found = collect(lake, LATER)
        assert list(gone(found, Kind.DATA)) == [folder]
        assert not on_disk(folder).exists()
        location = lake.table(TABLE).location()
        assert set(gone(found, Kind.ORPHANS)) == {f"{location}/data", f"{location}/metadata"}
        assert not any(path.exists() for path in landed), "other writers' files go too"
        assert not file.exists()
        assert collect(lake, LATER) == [], "C25: nothing is left to do"

    def test_c29_a_manifest_that_is_gone_names_nothing_and_holds_nothing_up(self, lake: Lake, plan: Plan) -> None:
        published(lake, plan, 1)
        lake.table(TABLE).delete("offset = 1")
        table = lake.table(TABLE)
        kept = {one.manifest_path for one in table.snapshots()[-1].manifests(table.io)}
        every = [one for snapshot in table.snapshots() for one in snapshot.manifests(table.io)]
        first, *others = dict.fromkeys(one.manifest_path for one in every if one.manifest_path not in kept)
        expire(lake)
        on_disk(first).unlink()
        collect(lake, LATER)
        assert others
        assert not any(on_disk(path).exists() for path in others)

    @pytest.mark.usefixtures("plan")
    def test_c29_empty_folders_go_with_the_files_of_a_job_and_only_when_files_go(self, lake: Lake) -> None:
        folder = stray(lake, f"_firn/{'0' * 16}").parent
        (folder / "empty").mkdir()
        collect(lake, LATER, remove=False)
        assert (folder / "empty").is_dir()
        collect(lake, LATER)
        assert not folder.exists()

    @pytest.mark.parametrize("ref", ["branch", "tag"])
    def test_branches_and_tags_hold_files(self, lake: Lake, plan: Plan, ref: str) -> None:
        (file,) = published(lake, plan, 1)
        snapshot_id = lakes.snapshot(lake)
        assert snapshot_id is not None
        manage = lake.table(TABLE).manage_snapshots()
        (manage.create_branch if ref == "branch" else manage.create_tag)(snapshot_id, "kept").commit()
        lake.table(TABLE).delete("offset = 1")
        expire(lake)
        collect(lake, LATER)
        assert file.exists()
        assert lake.table(TABLE).scan().use_ref("kept").to_arrow()["offset"].to_pylist() == [1]

    def test_young_files_stay_and_are_named(self, lake: Lake, plan: Plan) -> None:
        paths = [stray(lake, f"_firn/{plan.id}"), stray(lake, "topic=a")]
        found = collect(lake, 3 * DAY_MS - HOUR_MS)
        assert [(one.kind, one.goes, one.files, one.bytes) for one in found] == [
            (Kind.DATA, False, 1, 4),
            (Kind.ORPHANS, False, 1, 4),
        ]
        for one in found:
            assert one.reason == "unreferenced, but not older than 3 days"
        assert all(path.exists() for path in paths)

    @pytest.mark.usefixtures("plan")
    @pytest.mark.parametrize("folder", ["", "other/0123456789abcdef", "topic=a/partition=0/level=0", "..", "../x/y/z"])
    def test_other_writers_files_go(self, lake: Lake, folder: str) -> None:
        lake.set_properties(TABLE, {"firn.maintenance": "manifests,orphans,snapshots"})
        path = stray(lake, folder)
        checksum = stray(lake, folder, ".stray.parquet.crc")
        assert [one.files for one in collect(lake, LATER) if one.goes] == [2]
        assert not path.exists()
        assert not checksum.exists()
        assert lakes.offsets(lake) == [0, 1]

    def test_a_folder_of_data_that_other_tables_may_share_is_not_looked_at(self, lake: Lake, tmp_path: Path) -> None:
        records.create(lake, TABLE, {DATA_PATH: f"file://{tmp_path}/shared"})
        path = tmp_path / "shared" / "_firn" / str(uuid.UUID(int=0)) / ("0" * 16) / "of-another-table.parquet"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"PAR1")
        (found,) = collect(lake, LATER)
        assert (found.goes, found.files) == (False, 0)
        assert "and may have files of other tables" in found.reason
        assert path.exists()

    def test_c25_the_folder_of_a_stage_is_left_alone(self, lake: Lake, plan: Plan) -> None:
        """A stage that is being written to is not what its documents say: sweeping decides about it as a whole."""
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        path = stray(lake, f"_firn/{plan.id}")
        aged(lake)
        assert not any(one.goes for one in collect(lake))
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [1]
        assert not path.exists(), "deleting the stage takes it away"

    @pytest.mark.usefixtures("table")
    def test_c5_the_quarantine_refers_to_files(self, lake: Lake) -> None:
        file = quarantined(lake)
        expire(lake)
        collect(lake, LATER)
        assert file.exists()
        assert files_on(lake, QUARANTINE) == {file}

    def test_c25_what_is_published_meanwhile_is_not_deleted(self, lake: Lake, plan: Plan) -> None:
        """Between the first look and the deletion another process refers to what nothing referred to."""
        (file,) = published(lake, plan, 1)
        (entry,) = [entry for entry, _ in read_entries(lake.table(TABLE))]
        lake.table(TABLE).delete("offset = 1")
        expire(lake)
        slow, catalog = late(lake, "records", "yes")
        with ThreadPoolExecutor(1) as other:
            collecting = other.submit(collect, slow, LATER)
            assert catalog.came.wait(60)
            with lake.table(TABLE).transaction() as change, change.update_snapshot().fast_append() as again:
                again.append_data_file(entry.data_file)
            catalog.go.set()
            found = collecting.result()
        assert "in use again at the time of deletion" in kept(found, Kind.DATA).values()
        assert file.exists()
        assert lakes.offsets(lake) == [1]

    def test_c25_what_is_staged_meanwhile_is_not_deleted(self, lake: Lake, plan: Plan) -> None:
        """A job that is staged again writes files of its own: what an earlier try of it left is still an orphan."""
        path = stray(lake, f"_firn/{plan.id}")
        slow, catalog = late(lake, "records", "yes")
        with ThreadPoolExecutor(1) as other:
            collecting = other.submit(collect, slow, LATER)
            assert catalog.came.wait(60)
            stage = ready(lake, plan, [row(1)], Fates(superseded=1))
            catalog.go.set()
            found = collecting.result()
        assert [one.files for one in found if one.goes] == [1]
        assert not path.exists()
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [1]

    def test_snapshots_that_are_expired_all_the_time_leave_everything(self, lake: Lake, plan: Plan) -> None:
        """A collector that can't read all references deletes nothing (C26)."""
        published(lake, plan, 1)
        path = stray(lake, f"_firn/{plan.id}")
        for manifest in on_disk(lake.table(TABLE).location()).glob("metadata/*-m0.avro"):
            manifest.unlink()
        (found,) = collect(lake, LATER)
        assert "can't read which files its snapshots refer to" in found.reason
        assert (found.goes, found.exit_code) == (False, UnavailableError.exit_code)
        assert path.exists()

    def test_looking_changes_nothing_and_finds_the_same(self, lake: Lake, plan: Plan) -> None:
        published(lake, plan, 1)
        lake.table(TABLE).delete("offset = 1")
        expire(lake)
        stray(lake, "_firn/0123456789abcdef")
        home = on_disk(lake.table(TABLE).location())
        before = files_under(home), lake.table(TABLE).metadata_location
        now_ms = clock.now_ms() + LATER
        shown = maintain_table(lake, TABLE, now_ms, remove=False)
        assert (files_under(home), lake.table(TABLE).metadata_location) == before
        assert maintain_table(lake, TABLE, now_ms, remove=True) == shown
        assert len(gone(shown, Kind.DATA)) == 2
        assert collect_again(lake, now_ms) == []

    def test_c25_several_collectors_at_the_same_time_do_no_harm(self, lake: Lake, plan: Plan) -> None:
        published(lake, plan, 1)
        append(lake, [row(2)])
        published(lake, only_plan(lake), 1, 2)
        expire(lake)
        paths = [stray(lake, f"_firn/{number:016x}") for number in range(8)]
        done = lakes.together(*[lambda: collect(Lake.embedded(lake.home), LATER)] * 3)
        assert not [one for one in done if isinstance(one, FirnError)]
        assert not any(path.exists() for path in paths)
        assert lakes.offsets(lake) == [1, 2]

    def test_c25_the_next_collector_carries_on_where_one_died(
        self, lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        published(lake, plan, 1)
        paths = [stray(lake, f"_firn/{number:016x}") for number in range(3)]
        deleted: list[str] = []

        def die_at_the_second(files: FileSystem, path: str) -> None:
            if deleted:
                raise KeyboardInterrupt
            deleted.append(path)
            FileSystem.delete_file(files, path)

        with monkeypatch.context() as patched:
            patched.setattr(PyArrowLocalFileSystem, "delete_file", die_at_the_second, raising=False)
            with pytest.raises(KeyboardInterrupt):
                collect(lake, LATER)
        assert [path.exists() for path in paths].count(False) == 1
        assert lakes.offsets(lake) == [1]
        assert len(gone(collect(lake, LATER), Kind.DATA)) == 2
        assert not any(path.exists() for path in paths)
        assert not [one for one in collect(lake, LATER) if one.goes]

    def test_without_data_no_folder_is_listed(self, lake: Lake, plan: Plan) -> None:
        path = stray(lake, f"_firn/{plan.id}")
        assert maintain_table(lake, TABLE, clock.now_ms() + LATER, remove=True, parts=HOURLY) == []
        assert path.exists()

    def test_an_unknown_table_is_refused(self, lake: Lake) -> None:
        with pytest.raises(RefusedError, match="does not exist"):
            collect(lake)


def collect_again(lake: Lake, now_ms: int) -> list[str]:
    """Files that still go."""
    return [str(one) for one in maintain_table(lake, TABLE, now_ms, remove=True) if one.goes]


def aged(lake: Lake) -> None:
    """Every data file was written ten days ago."""
    then = clock.now_ms() / 1000 - 10 * DAY_MS / 1000
    for path in files_under(on_disk(lake.table(TABLE).location()) / "data"):
        os.utime(path, (then, then))
