"""`firnlake.open`, the way in from Python: catalogs by name and properties, the clock, and a table from creation on."""

from pathlib import Path

import pytest

import firnlake
from tests.support.records import DAY, NOW, History, rows_of


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


def test_the_clock_decides_what_is_due(tmp_path: Path) -> None:
    at = [NOW]
    orders = firnlake.open(home=tmp_path, now=lambda: at[0]).table("db.orders")
    orders.create({"firn.min.compaction.lag.ms": str(2 * DAY)})
    orders.land(landed(tmp_path, "a=1 a=2"))
    assert not any(lanes.plans for lanes in orders.plan().values())
    at[0] += DAY
    assert [lane for lane, work in orders.plan().items() if work.plans] == ["full"]
