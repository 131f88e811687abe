"""C1, C6, C12, C16, C27 at size: huge keys and any names stay as they are, the footers of small files count in no
ratio, and of a tail with deletes only what is hidden goes."""

import os

import pyarrow.parquet as pq
import pytest

from infra.foreign.files import on_disk
from tests.support.foreign import rename
from tests.support.records import Record, rows_of
from tests.support.scenario import Scenario


def records(start: int, end: int, size: int = 512) -> str:
    """Records of so many bytes, which no codec makes less."""
    return " ".join(f"k{number:03}=0x{os.urandom(size).hex()}@{number}" for number in range(start, end))


def land(scenario: Scenario, *records: Record) -> None:
    if not scenario.made:
        scenario.answer("create")
    path = scenario.landing_file(records)
    assert pq.read_metadata(path).num_rows == len(records)
    scenario.table.land(path)


@pytest.mark.nightly
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
        scenario.play(f"land a={number}", "files")
        path = rename(scenario.opened.lake, scenario.named[-1], f"{name}.parquet", scenario.name)
        assert on_disk(path).exists()
    assert scenario.answer("full!") == ["5 to 1 segments, 5 to 1 records; superseded 4"]


@pytest.mark.nightly
def test_many_small_files_are_as_dirty_as_their_records(scenario: Scenario) -> None:
    """By the sizes of files, a head of a fifth of the records would be two thirds of the table."""
    scenario.play(
        "create full.interval.ms=-1",
        f"land {records(0, 800, 100)}",
        "full!",
        "append " + " | ".join(records(start, start + 5, 100) for start in range(800, 1000, 5)),
    )
    sizes = [row["file_size_in_bytes"] for row in scenario.loaded().inspect.data_files().to_pylist()]
    assert sum(sizes) - max(sizes) > 0.65 * sum(sizes)
    (part,) = scenario.table.status().partitions
    assert part.dirty_ratio < 0.5
    assert scenario.answer("full") == ["nothing due"]


def offsets(scenario: Scenario) -> list[int]:
    return [row["offset"] for row in scenario.rows()]


def test_c16_c27_places_are_right_where_row_groups_of_the_tail_are_skipped(scenario: Scenario) -> None:
    scenario.play(
        "create",
        "property write.parquet.row-group-size-bytes=4096",
        f"land {records(0, 300)}",
        "full!",
        "delete 5 150 151 290",
        "land k152=new k150=new k291=",
        "at 1d",
        "full!",
    )
    assert offsets(scenario) == [one for one in range(303) if one not in {5, 150, 151, 152, 290, 291}]
    assert scenario.answer("deletes") == ["position 0, equality 0"]


def test_c16_c27_tail_segments_with_deletes_do_not_stay_in_place(scenario: Scenario) -> None:
    scenario.play("create segment.bytes=1024", f"land {records(0, 20)} | {records(20, 40)}", "full!")
    before = {path for _, path in scenario.data_files()}
    scenario.play("delete 0", "land new=new", "at 1d", "full!")
    after = {path for _, path in scenario.data_files()}
    assert before & after
    assert before - after
    assert offsets(scenario) == [*range(1, 41)]
    assert scenario.answer("deletes") == ["position 0, equality 0"]


def test_transactions_are_decided_among_more_keys_than_memory_holds(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firnlake.compact.survey.KEY_BYTES", 0)
    scenario.answer("log a=0 1>a=1 1>b=1 1>abort c=1")
    assert scenario.answer("full!") == ["1 to 1 segments, 5 to 3 records; aborted 2"]
