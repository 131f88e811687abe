"""``firn quarantine --clear`` takes what an export held, and nothing that came later."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table

from firnlake.iceberg.catalog import Lake
from tests.support.in_process import Firn, Ran, command_on, refused
from tests.support.topics import NOW, Record, Topic


class Meddled(SqlCatalog):
    """A real SQL catalog in which somebody else does something before the next commit arrives."""

    first: ClassVar[Callable[[], None] | None] = None

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        first, Meddled.first = Meddled.first, None
        if first:
            first()
        return super().commit_table(table, requirements, updates)


@pytest.fixture
def firn(lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process, on the lake of the tests."""
    monkeypatch.setenv(f"PYICEBERG_CATALOG__{lake.name.upper()}__PY_CATALOG_IMPL", f"{__name__}.Meddled")
    return command_on(lake, monkeypatch, capsys)


def quarantined(topic: Topic, offset: int) -> None:
    """Land a record without a key at ``offset`` and one with a key behind it, and clean."""
    topic.land([Record(offset, None, b"lost"), Record(offset + 1, b"%d" % offset, b"kept")])
    topic.clean("full", NOW + offset, force=True)


def exported(firn: Firn, topic: Topic, path: Path, *selection: str) -> list[str]:
    """Export the quarantine to ``path``; the command that the export prints for clearing what the file holds."""
    ran = firn("quarantine", topic.table, "--export", path, *selection)
    assert ran.code == 0, ran
    return shlex.split(ran.out.partition("firn ")[2])


def left(topic: Topic) -> list[int]:
    return [row["offset"] for row in topic.quarantined()]


def test_r10_clear_takes_nothing_when_nobody_says_what_was_seen(firn: Firn, topic: Topic, tmp_path: Path) -> None:
    quarantined(topic, 0)
    exported(firn, topic, tmp_path / "lost.parquet")
    quarantined(topic, 10)
    ran = firn("quarantine", topic.table, "--clear", "--yes")
    assert left(topic) == [0, 10]
    refused(ran, f"table {topic.table}: --clear needs --as-of ID")
    assert f"which `firn quarantine {topic.table} --export FILE` prints" in ran.err


def test_r10_what_was_quarantined_after_the_export_stays(firn: Firn, topic: Topic, tmp_path: Path) -> None:
    quarantined(topic, 0)
    clear = exported(firn, topic, tmp_path / "lost.parquet")
    quarantined(topic, 10)
    for count in ("1 record", "0 records"):
        assert firn(*clear, "--yes") == Ran(0, f"{topic.table}: {count} removed from quarantine\n", "")
        assert left(topic) == [10]


def test_r10_a_lost_race_takes_no_more(
    firn: Firn, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantined(topic, 0)
    clear = exported(firn, topic, tmp_path / "lost.parquet")
    monkeypatch.setattr(Meddled, "first", lambda: quarantined(topic, 10))
    assert firn(*clear, "--yes").out == f"{topic.table}: 1 record removed from quarantine\n"
    assert left(topic) == [10]
    assert topic.offsets() == [1, 11]


def test_r10_the_command_that_an_export_prints_clears_what_it_selected(
    firn: Firn, topic: Topic, tmp_path: Path
) -> None:
    topic.land([Record(0, None, b"lost"), Record(1, b"a", b"kept")])
    topic.land([Record(0, None, b"lost", partition=1), Record(1, b"a", b"kept", partition=1)])
    topic.clean("full", force=True)
    clear = exported(firn, topic, tmp_path / "lost.parquet", "--partition", "orders-1")
    assert firn(*clear, "--yes").out == f"{topic.table}: 1 record removed from quarantine\n"
    assert [row["partition"] for row in topic.quarantined()] == [0]


def test_r10_only_a_snapshot_of_the_quarantine_says_what_was_seen(firn: Firn, topic: Topic) -> None:
    quarantined(topic, 0)
    on_main = topic.lake.table(topic.table).metadata.current_snapshot_id
    for unknown in (on_main, 4711):
        ran = firn("quarantine", topic.table, "--clear", "--yes", "--as-of", unknown)
        refused(ran, f"table {topic.table}: branch firn_quarantine has no snapshot {unknown}; allowed:")
    assert left(topic) == [0]
