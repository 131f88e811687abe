"""`firnlake.open`, the way in from Python, and the home of a lake: a folder's name is text, none of its letters means
anything in an address."""

import tempfile
from pathlib import Path

import pytest

import firnlake
from firnlake.iceberg.catalog import CATALOG_FILE, Lake
from firnlake.table import records
from infra.foreign.files import files_under
from infra.foreign.session import java_properties
from tests.support.commands import command, refused
from tests.support.lakes import append, row
from tests.support.records import NOW, History, rows_of


def landed(folder: Path, text: str) -> Path:
    from pyarrow.parquet import write_table

    path = folder / "part.parquet"
    write_table(rows_of(History().records(text)), path)
    return path


def test_the_embedded_lake_and_a_named_catalog_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRN_HOME", raising=False)
    embedded = firnlake.open(home=tmp_path / "home", now=lambda: NOW)
    orders = embedded.table("db.orders")
    orders.create({"firn.min.cleanable.dirty.ratio": "0.5"})
    assert orders.land(landed(tmp_path, "a=1 b=1 a=2")).records == 3
    assert [(lane.lane, len(lane.publications)) for lane in orders.run("full")] == [("full", 1)]
    named = firnlake.open("lake", home=tmp_path / "other", properties=embedded.lake.properties)
    assert named.tables() == ["db.orders"]
    assert [kept.record.offset for kept in named.table("db.orders").explain_key(b"a").kept] == [2]
    assert all(one.passed for one in named.table("db.orders").verify())


NAMES = (pytest.param("a%20b%3F%2F", marks=pytest.mark.nightly), '100% it\'s "größe" a+b&c;[x]{0}${HOME}')


@pytest.mark.parametrize("name", NAMES)
def test_d3_a_home_is_the_folder_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Catalog, warehouse, reports and temporary files are there and nowhere else."""
    for folder in ("home", "temporary"):
        (tmp_path / folder / name).mkdir(parents=True)
    home = tmp_path / "home" / name
    monkeypatch.setenv("FIRN_HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary" / name))
    assert command("create", "shop.orders").code == 0
    append(Lake.load(), [row(offset) for offset in range(2)], "shop.orders")
    ran = command("run", "shop.orders", "--lane", "full", "--force", "--engine", "local", "--now", NOW)
    assert ran.code == 0, ran.err
    assert command("report", "--data-docs", home / "docs").code == 0
    assert {path.name for path in home.iterdir()} >= {CATALOG_FILE, "warehouse", "reports", "docs"}
    assert {path.relative_to(tmp_path).parts[:2] for path in files_under(tmp_path)} == {("home", name)}
    assert java_properties(Lake.load())["uri"].startswith(f"jdbc:sqlite:{home / CATALOG_FILE}?")


def test_d3_two_names_are_two_lakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records.create(Lake.embedded(tmp_path / "a b"), "shop.orders", {})
    monkeypatch.setenv("FIRN_HOME", str(tmp_path / "a%20b"))
    there = tmp_path / "a%20b" / CATALOG_FILE
    refused(command("status", "shop.orders"), f"table shop.orders does not exist: there is no catalog {there}")
    assert command("create", "shop.orders").code == 0
    assert there.exists()


@pytest.mark.parametrize("name", ["what?", "c#", "a?b%20c"])
def test_d3_a_name_that_no_location_of_a_file_can_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("FIRN_HOME", str(tmp_path / name))
    refused(command("status", "shop.orders"), "can't hold a lake; allowed: a path without ? and # (FIRN_HOME)")
