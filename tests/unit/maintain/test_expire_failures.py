"""C29: expiry beside metadata and files that are missing, broken or forbidden, and where others do the work."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowLocalFileSystem

from firnlake.errors import UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Kind
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.expiring import expire, first_of, maintain
from tests.support.lakes import TABLE
from tests.support.maintaining import gone, kept


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
        lake.set_properties(TABLE, {"firn.maintenance": "manifests,orphans,snapshots"})
        manifest = first_of(lake).manifests(lake.table(TABLE).io)[0].manifest_path
        harm(on_disk(manifest))
        found = maintain(lake)
        assert "so nobody can tell which files it names" in kept(found, Kind.EXPIRED)[manifest]
        assert [path.exists() for path in sorted(old)].count(True) == 1
        assert not any(one.exit_code for one in found if one.kind is not Kind.ORPHANS)
        assert gone(maintain(lake), Kind.ORPHANS), "what could not be told is an orphan"
        assert not any(path.exists() for path in old)
        assert lakes.offsets(lake) == [3]

    def test_c26_of_a_missing_manifest_list_the_rest_goes_and_it_is_named(self, lake: Lake, old: set[Path]) -> None:
        lake.set_properties(TABLE, {"firn.maintenance": "manifests,orphans,snapshots"})
        listed = first_of(lake).manifest_list
        on_disk(listed).unlink()
        assert listed in kept(maintain(lake), Kind.EXPIRED)
        maintain(lake)
        assert not any(path.exists() for path in old)

    @pytest.mark.parametrize("harm", [Path.unlink, torn, garbled])
    def test_c29_where_a_kept_manifest_is_missing_nothing_is_deleted(
        self, lake: Lake, old: set[Path], harm: Callable[[Path], None]
    ) -> None:
        snapshot = lake.table(TABLE).current_snapshot()
        assert snapshot is not None
        for manifest in snapshot.manifests(lake.table(TABLE).io):
            harm(on_disk(manifest.manifest_path))
        found = expire(lake)
        (failed,) = (one for one in found if one.kind is Kind.EXPIRED)
        assert (failed.goes, failed.exit_code) == (False, UnavailableError.exit_code)
        assert all(path.exists() for path in old)

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
        maintain(lake)
        assert not any(path.exists() for path in old)

    def test_c26_without_permission_to_delete_everything_stays_and_is_named(
        self, lake: Lake, old: set[Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def delete_file(files: FileSystem, path: str) -> None:
            raise PermissionError(13, "Permission denied", path)

        before = lakes.table_files(lake)
        monkeypatch.setattr(PyArrowLocalFileSystem, "delete_file", delete_file, raising=False)
        found = expire(lake)
        assert before <= lakes.table_files(lake)
        assert set(map(str, old)) <= {one.name for one in found if one.exit_code}
        assert not [one for one in found if one.kind is Kind.EXPIRED and one.goes]
        assert lakes.offsets(lake) == [3]
