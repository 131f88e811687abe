"""Reports and checkpoints after a table was released or dropped, or a snapshot has expired, still tell the truth."""

from pathlib import Path

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.table import records
from firnlake_expectations.table_report import page_of
from tests.support import adopted
from tests.support.in_process import Firn, command_on
from tests.support.lakes import append, row

TABLE = "shop.orders"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of the test's own."""
    return Lake.embedded(tmp_path / "home")


@pytest.fixture
def firn(lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process, on that lake."""
    return command_on(lake, monkeypatch, capsys)


@pytest.mark.parametrize("how", ["released", "released with its columns", "dropped"])
def test_c5_a_table_that_is_no_longer_firns_is_no_trouble(lake: Lake, firn: Firn, how: str) -> None:
    adopted.make(lake, adopted.CDC, adopted.CDC_SCHEMA)
    assert firn("adopt", adopted.CDC, "--key", "id", "--offset", "lsn").code == 0
    assert firn("run", adopted.CDC, "--engine", "local").code == 0
    if how == "dropped":
        lake.catalog.drop_table(adopted.CDC)
    else:
        assert firn("release", adopted.CDC, *(["--drop-columns"] if "columns" in how else [])).code == 0
    for _ in range(2):
        ran = firn("report")
        assert (ran.code, ran.err, ran.out.count("\n")) == (0, "", 1)
    assert (lake.reports_folder / page_of(adopted.CDC)).exists()


def test_c5_a_table_that_can_not_be_read_is_still_named(lake: Lake, firn: Firn) -> None:
    records.create(lake, TABLE, {})
    assert firn("run", TABLE, "--engine", "local").code == 0
    lake.set_properties(TABLE, {"firn.merge.segments": "many"})
    ran = firn("report")
    assert (ran.code, ran.err.count(TABLE) > 0) == (0, True)


@pytest.mark.parametrize("odd", ["two words", "öl"])
def test_c5_one_odd_topic_keeps_no_other_from_the_checkpoint(lake: Lake, firn: Firn, tmp_path: Path, odd: str) -> None:
    records.create(lake, TABLE, {})
    for topic in (odd, "orders"):
        append(lake, [row(5, topic=topic, level=3)], TABLE)
    ran = firn("checkpoint", TABLE)
    assert (ran.code, ran.out) == (1, "0\n1\norders 0 6\n")
    assert ran.err.startswith(
        f"firn: table {TABLE}: topic {odd!r} (partition 0) can't be written to a checkpoint; allowed"
    )
    assert firn("checkpoint", TABLE, "--output", tmp_path / "checkpoint").code == 1
    assert (tmp_path / "checkpoint").read_text() == ran.out


@pytest.mark.parametrize("lane", ["full", "erase"])
def test_c8_a_page_knows_what_published_a_plan_when_the_snapshot_has_expired(lake: Lake, firn: Firn, lane: str) -> None:
    records.create(lake, TABLE, {"history.expire.max-snapshot-age-ms": "0"})
    append(lake, [row(offset, b"ab"[offset % 2 : offset % 2 + 1]) for offset in range(4)], TABLE)
    if lane == "erase":
        assert firn("erase", TABLE, "--key", "a").code == 0
    assert firn("run", TABLE, "--lane", lane, "--force", "--engine", "local").code == 0
    published = lake.table(TABLE).metadata.current_snapshot_id
    append(lake, [row(9)], TABLE)
    assert firn("maintain", TABLE).code == 0
    assert lake.table(TABLE).snapshot_by_id(published or 0) is None
    for _ in range(2):
        assert firn("report").code == 0
        page = (lake.reports_folder / page_of(TABLE)).read_text()
        assert f"<td><code>{published}</code></td>" in page
