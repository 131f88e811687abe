"""What maintenance deletes and what it leaves, where the trials have seen it do otherwise."""

from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowLocalFileSystem

from firnlake import clock
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.maintain.maintain import maintain_table
from firnlake.table import records
from firnlake.table.policy import DAY_MS
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.expiring import LATER, expire, maintain, replaced
from tests.support.faults import Nth, watched
from tests.support.in_process import command_on
from tests.support.lakes import TABLE, append, row, stored


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with an empty table."""
    lake = Lake.embedded(tmp_path / "home")
    records.create(lake, TABLE, {})
    return lake


def written(folder: Path, offset: int) -> Path:
    """A data file with one record that is in no table yet."""
    path = folder / f"written-{offset}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(stored([row(offset)]), path)
    return path


def test_trials_whatever_a_catalog_answers_maintenance_ends_in_words(lake: Lake) -> None:
    replaced(lake)

    def refuse() -> None:
        raise ValueError("sequence number is taken")

    refusing = Nth(1, refuse, only="before commit")
    with suppress(FirnError):
        maintain_table(watched(lake, refusing), TABLE, clock.now_ms() + LATER, remove=True)
    assert refusing.acted


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="trials: an expiry deletes what add_files took in")
def test_trials_a_file_that_was_added_from_elsewhere_stays_where_it_is(lake: Lake, tmp_path: Path) -> None:
    path = written(tmp_path / "of somebody else", 0)
    lake.table(TABLE).add_files([f"file://{path}"])
    lake.table(TABLE).delete("offset = 0")
    append(lake, [row(1)])
    maintain(lake)
    assert path.exists()


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="trials: a clock ahead deletes a writer's new files")
def test_trials_a_clock_that_is_ahead_makes_no_file_old(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.set_properties(TABLE, {"firn.maintenance": "manifests,orphans,snapshots"})
    append(lake, [row(0)])
    path = written(on_disk(lake.table(TABLE).location()) / "data", 1)
    ahead = clock.now_ms() + 4 * DAY_MS
    monkeypatch.setattr(clock, "now_ms", lambda: ahead)
    command_on(lake, monkeypatch, capsys)("maintain", TABLE)
    assert path.exists()
    lake.table(TABLE).add_files([f"file://{path}"])
    assert lakes.offsets(lake) == [0, 1]


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="trials: what a deletion has left stays for ever")
def test_trials_what_could_not_be_deleted_goes_later(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """No metadata file names it any more by then."""
    kept = {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"}
    lake.set_properties(TABLE, kept)
    files = replaced(lake)

    def refuse(_: FileSystem, path: str) -> None:
        raise OSError(f"the store refuses to delete {path}")

    with monkeypatch.context() as patched:
        patched.setattr(PyArrowLocalFileSystem, "delete_file", refuse, raising=False)
        expire(lake)
    assert all(path.exists() for path in files)
    for offset in (7, 8):
        append(lake, [row(offset)])
    maintain(lake)
    assert not any(path.exists() for path in files)
