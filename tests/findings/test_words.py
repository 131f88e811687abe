"""What the commands say where nothing is wrong, or something else than it seems."""

import json
from pathlib import Path

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.lanes.erasure.requests import erasures_of
from firnlake.table import records
from tests.support.in_process import Firn, command_on, refused


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of the test's own."""
    return Lake.embedded(tmp_path / "home")


@pytest.fixture
def firn(lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process, on that lake."""
    return command_on(lake, monkeypatch, capsys)


def test_r30_a_folder_is_called_a_folder(firn: Firn, lake: Lake, tmp_path: Path) -> None:
    records.create(lake, "shop.orders", {})
    refused(firn("land", "shop.orders", tmp_path), f"file {tmp_path} is a folder; allowed: a file with suffix .parquet")


def test_r30_what_lands_nothing_says_so(firn: Firn, lake: Lake, tmp_path: Path) -> None:
    records.create(lake, "shop.orders", {})
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    before = lake.table("shop.orders").metadata_location
    ran = firn("land", "shop.orders", empty)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "shop.orders: nothing to land, 1 file without a record\n"
    assert firn("land", "shop.orders", empty, "--json").json["records"] == 0
    assert lake.table("shop.orders").metadata_location == before


def test_r30_verify_refuses_before_spark_starts(
    firn: Firn, lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    records.create(lake, "shop.orders", {})
    # Whoever starts a JVM here fails.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ran = firn("verify", "shop.orders", "--engine", "spark")
    refused(ran, "table shop.orders has no commit to verify")


def test_r30_the_front_page_lists_a_certificate_as_soon_as_there_is_one(firn: Firn, lake: Lake, tmp_path: Path) -> None:
    assert firn("create", "shop.orders", "--property", "history.expire.max-snapshot-age-ms=0").code == 0
    path = tmp_path / "orders.jsonl"
    lines = [
        {"topic": "orders", "partition": 0, "offset": offset, "timestamp": offset, "key": key, "value": "v"}
        for offset, key in enumerate(["a", "b", "a", "c"])
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for arguments in (
        ("land", "shop.orders", path),
        ("erase", "shop.orders", "--key", "a"),
        ("run", "shop.orders", "--lane", "erase", "--force"),
        ("maintain", "shop.orders"),
        ("erase", "shop.orders", "--certify", "--engine", "local"),
    ):
        ran = firn(*arguments)
        assert ran.code == 0, ran
    front = (lake.reports_folder / "index.html").read_text(encoding="utf-8")
    (asked,) = erasures_of(lake.table("shop.orders"))
    assert f"erasures/shop.orders/request-{asked.request.id}.html" in front
