"""quarantine lists, exports and clears (C5)."""

import io
from pathlib import Path

import pytest

from firnlake.iceberg.branches import QUARANTINE, QUARANTINED
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.quarantine import as_of_now
from firnlake.ingest.quarantine import records as records_in_quarantine
from firnlake.table import records
from tests.support import lakes
from tests.support.in_process import Firn, Ran, refused
from tests.support.lakes import TABLE, Fates, append, only_plan, ready, row
from tests.support.publishing import publish


@pytest.fixture
def job(lake: Lake) -> str:
    """The job that moved the records without a key at offsets 0 and 1 of orders-0 to the quarantine."""
    records.create(lake, TABLE, {})
    lost = [row(0, key=None, value=b"who \x00am I"), row(1, key=None, value=None)]
    append(lake, [*lost, row(2)])
    moved = [one | {"level": QUARANTINED} for one in lost]
    return publish(lake, ready(lake, only_plan(lake), [*moved, row(2)], Fates(quarantined=2)).identifier).plan_id


def test_without_a_quarantine_it_says_so(firn: Firn, landed: str) -> None:
    assert firn("quarantine", landed) == Ran(0, f"{landed}: no record is quarantined\n", "")
    assert firn("quarantine", landed, "--json").json == []
    assert firn("quarantine", landed, "--export", "x.jsonl").out == f"{landed}: nothing to export\n"


def test_batches_say_where_why_and_by_which_job(firn: Firn, job: str) -> None:
    batch = {
        "topic": "orders", "partition": 0, "reason": "null key", "job": job,
        "records": 2, "base_offset": 0, "last_offset": 1,
    }  # fmt: skip
    assert firn("quarantine", TABLE, "--json").json == [batch]
    assert firn("quarantine", TABLE, "--json", "--job", "other").json == []
    assert firn("quarantine", TABLE, "--json", "--partition", "orders-0").json == [batch]
    assert all(text in firn("quarantine", TABLE).out for text in ("orders-0", "null key", job))


def test_records_show_how_their_values_begin_where_reports_may(firn: Firn, job: str, lake: Lake) -> None:
    kept_back, _ = firn("quarantine", TABLE, "--records", "--json").json
    assert (kept_back["value_bytes"], kept_back["value"]) == (9, None)
    lake.set_properties(TABLE, {"firn.report.samples": "full"})
    first, second = firn("quarantine", TABLE, "--records", "--json").json
    assert (first["offset"], first["timestamp"], first["job"]) == (0, "2023-11-14T22:12:20.000Z", job)
    assert (first["value_bytes"], first["value"]) == (9, "who \\x00am I")
    assert (second["offset"], second["value_bytes"], second["value"]) == (1, None, None)
    shown = firn("quarantine", TABLE, "--records", "--limit", "1").out
    assert "who \\x00am I" in shown
    assert "1 of 2 records" in shown


def test_records_are_exported(firn: Firn, job: str, lake: Lake, tmp_path: Path) -> None:
    head = lake.table(TABLE).metadata.refs[QUARANTINE].snapshot_id
    ran = firn("quarantine", TABLE, "--export", tmp_path / "lost.parquet", "--job", job)
    wrote, then = ran.out.splitlines()
    assert (ran.code, wrote) == (0, f"wrote 2 records to {tmp_path / 'lost.parquet'}")
    assert then == f"after the records have landed: firn quarantine {TABLE} --clear --as-of {head} --job {job}"
    refused(firn("quarantine", TABLE, "--export", tmp_path / "lost.parquet"), "already exists; allowed: a new file")


def clearing(lake: Lake, *options: object) -> tuple[object, ...]:
    """The arguments that clear what is in quarantine now."""
    return ("quarantine", TABLE, "--clear", "--as-of", as_of_now(lake, TABLE).as_of, *options)


@pytest.mark.usefixtures("job")
def test_c5_it_is_cleared_with_yes(firn: Firn, lake: Lake) -> None:
    command = clearing(lake, "--yes")
    assert firn(*command) == Ran(0, f"{TABLE}: 2 records removed from quarantine\n", "")
    assert firn("quarantine", TABLE, "--json").json == []
    assert firn(*command).out == f"{TABLE}: 0 records removed from quarantine\n"
    assert lakes.offsets(lake) == [2]


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 0), ("n", 1, 2), ("", 1, 2)])
@pytest.mark.usefixtures("job")
def test_c5_without_yes_it_asks(
    firn: Firn, lake: Lake, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: int
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n" if answer else ""))
    ran = firn(*clearing(lake))
    assert (ran.code, f"{TABLE}: remove 2 records from quarantine?" in ran.out) == (code, True)
    assert len(records_in_quarantine(lake, TABLE, 10)) == left


def test_c5_only_what_is_selected_is_cleared(firn: Firn, job: str, lake: Lake) -> None:
    for options in (("--partition", "orders-1"), ("--job", "0" * 16)):
        ran = firn(*clearing(lake, *options))
        assert (ran.code, ran.out) == (0, f"{TABLE}: 0 records removed from quarantine\n"), "there is nothing to ask"
    ran = firn(*clearing(lake, "--yes", "--partition", "orders-0", "--job", job))
    assert ran.out == f"{TABLE}: 2 records removed from quarantine\n"
