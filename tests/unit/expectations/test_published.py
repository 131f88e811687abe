"""The suite that anybody can run on a published table: it passes on what Firn wrote, and names each planted fault."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import great_expectations as gx
import pytest

from firnlake.validate.published import published_suite
from firnlake_expectations.claim import JudgedColumns
from firnlake_expectations.published import published
from tests.support.commands import firn
from tests.support.topics import Record, Topic, updates

LONG_AGO_MS = 1_577_836_800_000
ONE_KEY, ONE_OFFSET = "Every key has one record in the tail.", "Every offset has one record in the tail."
HORIZONS = "Only tombstones and markers have a delete horizon."
KEYS = "Every record in the tail has a key, except the last one."
OVERDUE = "No tombstone stays in the tail longer than 86400 s past its delete horizon."


@pytest.fixture
def cleaned(topic: Topic) -> Topic:
    """A topic with a tail, and records that are not cleaned yet: one of a key of the tail, one without a key, one that
    landed twice."""
    topic.land(updates("a=1", "b=1", "a=2", "c="), [Record(50, b"z", b"1")])
    topic.clean("full", force=True)
    topic.append([Record(60, b"a", b"3"), Record(61, None, b"x"), Record(61, None, b"x"), Record(62, b"q", b"")])
    return topic


def found(topic: Topic) -> dict[str, list[Mapping[str, Any]]]:
    """The unexpected rows by sentence, as DuckDB finds them."""
    rows = topic.lake.table(topic.table).scan().to_arrow()
    with duckdb.connect() as database:
        database.register("records_of_the_table", rows)
        by_sentence = {}
        for one in published_suite(topic.lake, topic.table)["expectations"]:
            query = one["kwargs"]["unexpected_rows_query"].format(batch="records_of_the_table")
            if unexpected := database.sql(query).to_arrow_table().to_pylist():
                by_sentence[one["description"]] = unexpected
    return by_sentence


def tail_again(topic: Topic) -> None:
    topic.lake.table(topic.table).append(topic.lake.table(topic.table).scan("level = 3").to_arrow())


FAULTS: dict[str, tuple[Callable[[Topic], None], dict[str, list[int]]]] = {
    "second record of a key": (lambda topic: topic.append([Record(20, b"b", b"9")], level=3), {ONE_KEY: [1]}),
    "repeated offset": (lambda topic: topic.append([Record(1, b"x", b"9")], level=3), {ONE_OFFSET: [1]}),
    "horizon on a value": (lambda topic: topic.append([Record(20, b"x", b"9")], 3, LONG_AGO_MS), {HORIZONS: [20]}),
    "overdue tombstone": (lambda topic: topic.append([Record(20, b"x", None)], 3, LONG_AGO_MS), {OVERDUE: [20]}),
    "record without a key": (lambda topic: topic.append([Record(20, None, b"9")], level=3), {KEYS: [20]}),
    "tail file appended twice": (tail_again, {ONE_KEY: [1, 2, 3, 50], ONE_OFFSET: [1, 2, 3, 50]}),
}


def test_what_firn_wrote_passes(cleaned: Topic) -> None:
    assert found(cleaned) == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_is_named_with_its_place(cleaned: Topic, fault: str) -> None:
    plant, expected = FAULTS[fault]
    plant(cleaned)
    rows = found(cleaned)
    places = {
        sentence: sorted(row.get("first_offset", row.get("offset")) for row in own) for sentence, own in rows.items()
    }
    assert places == expected
    assert all((row["topic"], row["partition"]) == ("orders", 0) for own in rows.values() for row in own)
    assert not any("key" in row or "value" in row for own in rows.values() for row in own)


def test_great_expectations_reads_it_without_firns_classes(topic: Topic, tmp_path: Path) -> None:
    topic.land(updates("a=1", "b=1"))
    file = tmp_path / "suite.json"
    firn(topic.lake, "report", "--table", topic.table, "--suite", str(file))
    suite = gx.ExpectationSuite(**json.loads(file.read_text()))
    assert suite.name == f"firn-published-{topic.table}"
    assert {one.expectation_type for one in suite.expectations} == {"unexpected_rows_expectation"}
    assert [one.description for one in suite.expectations] == [ONE_KEY, ONE_OFFSET, HORIZONS, KEYS, OVERDUE]


def test_a_segment_that_no_lane_takes_is_left_out(cleaned: Topic) -> None:
    FAULTS["second record of a key"][0](cleaned)
    cleaned.lake.set_properties(cleaned.table, {"firn.max.input.bytes": "1", "firn.segment.bytes": "1"})
    assert found(cleaned) == {}


def test_a_name_that_engines_read_differently_is_refused() -> None:
    with pytest.raises(ValueError, match="column 'a b'; allowed: names of ASCII letters, digits and underscores"):
        published("db.t", JudgedColumns(key=("a b",)), [], overdue_ms=None)


def test_options_that_belong_together(topic: Topic, tmp_path: Path) -> None:
    ran = firn(topic.lake, "report", "--suite", str(tmp_path / "suite.json"))
    assert ran.returncode != 0
    assert "--suite and --table belong together" in ran.stderr
