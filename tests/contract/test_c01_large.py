"""C1, C6: keys, headers and names of files of any size and letters are kept and compared as they are."""

import os

import pyarrow.parquet as pq

from infra.foreign.files import on_disk
from tests.support.foreign import rename
from tests.support.records import Record, rows_of
from tests.support.scenario import Scenario


def land(scenario: Scenario, *records: Record) -> None:
    if not scenario.made:
        scenario.answer("create")
    path = scenario.landing_file(records)
    assert pq.read_metadata(path).num_rows == len(records)
    scenario.table.land(path)


def test_keys_of_no_byte_and_of_ten_million(scenario: Scenario) -> None:
    """Equal but for their last byte, they are two keys; an empty key is a third."""
    stem = os.urandom(10_000_000)
    one, two = stem + b"1", stem + b"2"
    history = [Record(offset, key, b"%d" % offset) for offset, key in enumerate([one, b"", two, one, b"", two])]
    land(scenario, *history, Record(6, b"v", os.urandom(50_000_000)), Record(7, None, b"no key"), Record(8, b"z", b""))
    scenario.answer("full!")
    rows = scenario.rows()
    assert [row["offset"] for row in rows] == [3, 4, 5, 6, 8]
    assert [(row["key"], row["value"]) for row in rows[:3]] == [(row.key, row.value) for row in history[3:]]


def test_messages_show_a_part_of_a_huge_key(scenario: Scenario) -> None:
    scenario.answer("create report.samples=full")
    for value in (b"1", b"2"):
        land(scenario, Record(0, b"k" * 10_000_000, value))
    (said,) = scenario.answer("full!")
    assert "offset 0" in said
    assert len(said) < 3_000


def test_ten_thousand_headers_of_one_record_stay_in_their_order(scenario: Scenario) -> None:
    headers = tuple((f"h{number % 7}", b"%d" % number) for number in range(10_000))
    kept = [Record(1, b"a", b"new", headers=headers), Record(2, b"b", b"", headers=headers)]
    land(scenario, Record(0, b"a", b"old"), *kept)
    scenario.answer("full!")
    assert [row["headers"] for row in scenario.rows()] == rows_of(kept)["headers"].to_pylist()


def test_segments_may_have_any_name(scenario: Scenario) -> None:
    """Names are literal: a percent sign in one is no escape, a question mark begins no query."""
    for number, name in enumerate(("50% é", "a%20b", "q?x=1#y", "it's [0-9]* {a,b}", "-")):
        scenario.answer(f"land a={number}")
        scenario.answer("files")
        path = rename(scenario.opened.lake, scenario.named[-1], f"{name}.parquet", scenario.name)
        assert on_disk(path).exists()
    assert scenario.answer("full!") == ["5 to 1 segments, 5 to 1 records; superseded 4"]
