"""`firn maintain` removes what nothing needs any more; a dry run shows it."""

import os
from pathlib import Path

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import data_folder
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.in_process import Firn
from tests.support.lakes import append_file, only_plan, row


@pytest.fixture
def orphan(landed: str, lake: Lake) -> Path:
    path = on_disk(data_folder(lake.table(landed))) / ("0" * 16) / "lost.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1")
    os.utime(path, (0, 0))
    return path


def test_it_shows_what_would_go_and_why(firn: Firn, landed: str, lake: Lake, orphan: Path) -> None:
    stage = lakes.opened(lake, only_plan(lake)).identifier
    ran = firn("maintain", landed, "--dry-run")
    assert ran.code == 0
    assert "unreferenced; older than" in ran.out.replace("\n", " ")
    assert f"{landed}: 1 file, 4 bytes; a dry run changes nothing" in ran.out
    assert stage in ran.out
    assert "Firn's home: nothing to remove" in ran.out
    assert orphan.exists()


def test_the_command_in_a_long_reason_can_be_copied(
    firn: Firn, landed: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused plan's stage stays, with the refusal as the reason."""
    append_file(lake, [row(0, value=b"other")])
    assert firn("run", landed, "--force", "--engine", "local").code == 1
    monkeypatch.setenv("COLUMNS", "80")
    lines = firn("maintain", landed, "--dry-run").out.splitlines()
    assert any(line.endswith("see below") for line in lines)
    where = "topic = 'orders' AND partition = 0 AND offset = 0 AND <the wrong value>"
    assert any(line.endswith(f": DELETE FROM {landed} WHERE {where}") for line in lines)  # noqa: S608  # not run


def test_c25_it_goes_once(firn: Firn, landed: str, orphan: Path) -> None:
    (gone,) = firn("maintain", landed, "--json").json
    assert (gone["table"], gone["kind"], gone["bytes"], gone["removed"]) == (landed, "data files", 4, True)
    assert not orphan.exists()
    assert firn("maintain", landed, "--json").json == []
    assert f"{landed}: nothing to remove" in firn("maintain", landed).out


def test_plan_files_are_of_all_tables(firn: Firn, landed: str, lake: Lake) -> None:
    path = only_plan(lake).write(lake.plans_folder)
    os.utime(path, (0, 0))
    (shown,) = firn("maintain", landed, "--dry-run", "--json").json
    assert (shown["table"], shown["kind"], shown["removed"]) == (None, "plan", False)
    assert path.exists()
    assert "Firn's home: removed" in firn("maintain", landed).out
    assert not path.exists()


def test_c20_a_table_that_is_refused_does_not_keep_the_others(firn: Firn, landed: str, orphan: Path) -> None:
    ran = firn("maintain", "no.table", landed, "--json")
    assert (ran.code, len(ran.json)) == (1, 1)
    assert "table no.table does not exist" in ran.err
    assert not orphan.exists()
