"""A folder's name is text: none of its letters means anything in an address."""

import tempfile
from pathlib import Path

import pytest

from firnlake.iceberg.catalog import CATALOG_FILE, Lake
from firnlake.table import records
from infra.foreign.files import files_under
from infra.foreign.java_catalog import java_properties
from tests.support.in_process import Firn, command, refused
from tests.support.lakes import NOW, append, row

NAMES = ("a%20b", "%3F%2F", "100%", "a b", 'it\'s "größe"', "a+b&c;[x]{0}", "${HOME}")


@pytest.fixture
def firn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process."""
    return command(monkeypatch, capsys)


@pytest.mark.parametrize("name", NAMES)
def test_d3_a_home_is_the_folder_of_its_name(
    tmp_path: Path, firn: Firn, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Catalog, warehouse, reports and temporary files are there and nowhere else."""
    for folder in ("home", "temporary"):
        (tmp_path / folder / name).mkdir(parents=True)
    home = tmp_path / "home" / name
    monkeypatch.setenv("FIRN_HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary" / name))
    assert firn("create", "shop.orders").code == 0
    append(Lake.load(), [row(offset) for offset in range(2)], "shop.orders")
    ran = firn("run", "shop.orders", "--lane", "full", "--force", "--engine", "local", "--now", NOW)
    assert ran.code == 0, ran.err
    assert firn("report", "--data-docs", home / "docs").code == 0
    assert {path.name for path in home.iterdir()} >= {CATALOG_FILE, "warehouse", "reports", "docs"}
    assert {path.relative_to(tmp_path).parts[:2] for path in files_under(tmp_path)} == {("home", name)}
    assert java_properties(Lake.load())["uri"].startswith(f"jdbc:sqlite:{home / CATALOG_FILE}?")


def test_d3_two_names_are_two_lakes(tmp_path: Path, firn: Firn, monkeypatch: pytest.MonkeyPatch) -> None:
    records.create(Lake.embedded(tmp_path / "a b"), "shop.orders", {})
    monkeypatch.setenv("FIRN_HOME", str(tmp_path / "a%20b"))
    there = tmp_path / "a%20b" / CATALOG_FILE
    refused(firn("status", "shop.orders"), f"table shop.orders does not exist: there is no catalog {there}")
    assert firn("create", "shop.orders").code == 0
    assert there.exists()


@pytest.mark.parametrize("name", ["what?", "c#", "a?b%20c"])
def test_d3_a_name_that_no_location_of_a_file_can_have_is_refused(
    tmp_path: Path, firn: Firn, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("FIRN_HOME", str(tmp_path / name))
    refused(firn("status", "shop.orders"), "can't hold a lake; allowed: a path without ? and # (FIRN_HOME)")
