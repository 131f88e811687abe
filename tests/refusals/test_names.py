"""C26: names are text. No path below a table contains one, and a terminal sees lines of text."""

import re

import pyarrow.parquet as pq
import pytest

from infra.foreign.files import files_under, on_disk
from tests.support.commands import command
from tests.support.examples import HOSTILE_NAMES
from tests.support.records import Record, rows_of
from tests.support.scenario import Scenario


@pytest.mark.nightly
def test_no_path_contains_a_topic_and_a_terminal_sees_text(scenario: Scenario) -> None:
    scenario.table.create()
    home = scenario.opened.lake.home
    around = {*home.parent.iterdir(), *scenario.folder.iterdir()}
    path = scenario.folder / "records.parquet"
    for start in (0, 2):
        offsets = range(start, start + 2)
        pq.write_table(rows_of(Record(one, b"k", b"v", topic=name) for name in HOSTILE_NAMES for one in offsets), path)
        scenario.table.land(path)
    path.unlink()
    for line in ("status {table}", "plan {table} --lane full --force", "explain {table} --key k"):
        words = scenario.filled(line).split()
        code, out, err = command(*words, "--limit", 1000, lake=scenario.opened.lake)
        assert code == 0, err
        assert all(letter.isprintable() or letter == "\n" for letter in out + err)
    for lane in ("merge", "clean", "full"):
        scenario.answer(f"{lane}!")
    assert {row["topic"] for row in scenario.rows()} == set(HOSTILE_NAMES)
    assert {*home.parent.iterdir(), *scenario.folder.iterdir()} == around
    location = on_disk(scenario.loaded().location())
    names = {part for path in files_under(location) for part in path.relative_to(location).parts}
    assert all(re.fullmatch(r"[0-9A-Za-z._-]+", name) for name in names)


@pytest.mark.parametrize("name", ["o`r", "drop table", "a-b"])
def test_a_table_may_be_called_what_sql_would_quote(scenario: Scenario, name: str) -> None:
    scenario.name = f"db.{name}"
    scenario.table = scenario.opened.table(scenario.name)
    scenario.answer("land a=1 | a=2")
    scenario.answer("run!")
    assert scenario.answer("read") == ["a=2@1"]
