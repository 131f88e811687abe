"""What `firn land` stores is what the file says, or the file is refused by name (C1, C26)."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firnlake.clock import from_ms
from firnlake.errors import RefusedError
from firnlake.ingest.land import land
from tests.support.landing_files import with_column
from tests.support.log_segments import ENTRIES, batch, segment
from tests.support.topics import Topic

BEYOND_DOUBLES = 2**53 + 1
LINE = {"key": "k", "value": "v", "topic": "orders", "partition": 0, "offset": BEYOND_DOUBLES, "timestamp": 1}


def json_lines(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(LINE | line) + "\n" for line in lines))
    return path


def landed(topic: Topic) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of every record in the table."""
    return [(row["topic"], row["partition"], row["offset"]) for row in topic.rows()]


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("offset", 1.0, "double"),
        ("offset", 1e3, "double"),
        ("offset", True, "bool"),
        ("offset", "5", "string"),
        ("offset", "2026-01-01", "date32"),
        ("partition", 1.0, "double"),
        ("partition", True, "bool"),
        ("timestampType", True, "bool"),
        ("producer_id", 5.0, "double"),
        ("producer_epoch", True, "bool"),
        ("is_control", 2, "int64"),
        ("is_transactional", "true", "string"),
    ],
)
def test_r11_json_lines_hold_integers_where_kafka_does(
    topic: Topic, tmp_path: Path, column: str, value: object, kind: str
) -> None:
    path = json_lines(tmp_path / "records.jsonl", {column: value})
    with pytest.raises(RefusedError, match=rf"file {path}: column {column} is {kind}.*; allowed: ") as refused:
        land(topic.create().lake, topic.table, [path])
    assert "\n" not in str(refused.value)
    assert topic.rows() == []


def test_r11_one_fraction_changes_no_other_integer(topic: Topic, tmp_path: Path) -> None:
    path = json_lines(tmp_path / "records.jsonl", {}, {"offset": 2.0})
    with pytest.raises(RefusedError, match="column offset holds values of several types"):
        land(topic.create().lake, topic.table, [path])
    assert topic.rows() == []


@pytest.mark.parametrize("value", [1.0, True])
def test_r11_timestamps_are_integers_or_text(topic: Topic, tmp_path: Path, value: object) -> None:
    path = json_lines(tmp_path / "records.jsonl", {"timestamp": value})
    with pytest.raises(RefusedError, match=rf"file {path}: column timestamp is .*; allowed: "):
        land(topic.create().lake, topic.table, [path])
    assert topic.rows() == []


def test_r11_integers_beyond_doubles_land_exactly(topic: Topic, tmp_path: Path) -> None:
    land(topic.create().lake, topic.table, [json_lines(tmp_path / "records.jsonl", {}, {"offset": 2**63 - 1})])
    assert landed(topic) == [("orders", 0, BEYOND_DOUBLES), ("orders", 0, 2**63 - 1)]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("offset", pa.array([7.0])),
        ("offset", pa.array([True])),
        ("offset", pa.array([7.0]).dictionary_encode()),
        ("partition", pa.array([0.0], pa.float32())),
        ("timestampType", pa.array([0.0])),
    ],
)
def test_r11_parquet_files_hold_integers_where_kafka_does(
    topic: Topic, tmp_path: Path, column: str, values: pa.Array
) -> None:
    path = tmp_path / "records.parquet"
    pq.write_table(with_column(column, values), path)
    with pytest.raises(RefusedError, match=rf"file {path}: column {column} is .*; allowed: "):
        land(topic.create().lake, topic.table, [path])
    assert topic.rows() == []


def test_r11_parquet_integers_may_have_any_width(topic: Topic, tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    pq.write_table(with_column("offset", pa.array([7], pa.uint16()).dictionary_encode()), path)
    land(topic.create().lake, topic.table, [path])
    assert landed(topic) == [("orders", 0, 7)]


def test_r11_milliseconds_may_be_dictionary_encoded(topic: Topic, tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    pq.write_table(with_column("timestamp", pa.array([5_000]).dictionary_encode()), path)
    land(topic.create().lake, topic.table, [path])
    assert [row["timestamp"] for row in topic.rows()] == [from_ms(5_000)]


LOG = "00000000000000000000.log"


def test_r11_a_link_to_a_log_of_another_topic_partition_is_refused(topic: Topic, tmp_path: Path) -> None:
    real = segment(tmp_path / "payments-0", batch(*ENTRIES))
    (tmp_path / "orders-0").mkdir()
    link = tmp_path / "orders-0" / LOG
    link.symlink_to(real)
    topic.create()
    with pytest.raises(RefusedError, match=rf"file {link} .*orders-0.* link .*payments-0.*; allowed: "):
        land(topic.lake, topic.table, [link])
    land(topic.lake, topic.table, [link], topic="orders", partition=0)
    assert {where[:2] for where in landed(topic)} == {("orders", 0)}


def test_r11_a_link_names_the_topic_partition_where_its_target_names_none(topic: Topic, tmp_path: Path) -> None:
    real = segment(tmp_path / "objects", batch(*ENTRIES))
    (tmp_path / "orders-3").mkdir()
    link = tmp_path / "orders-3" / LOG
    link.symlink_to(real)
    land(topic.create().lake, topic.table, [link])
    assert {where[:2] for where in landed(topic)} == {("orders", 3)}


def test_r11_a_linked_folder_that_names_no_topic_partition_is_refused(topic: Topic, tmp_path: Path) -> None:
    segment(tmp_path / "orders-0", batch(*ENTRIES))
    (tmp_path / "newest").symlink_to("orders-0")
    with pytest.raises(RefusedError, match="is in folder 'newest'; allowed: a folder named <topic>-<partition>"):
        land(topic.create().lake, topic.table, [tmp_path / "newest" / LOG])


@pytest.mark.parametrize("name", ["orders-0/../orders-0", "elsewhere/../orders-0", "linked/orders-0"])
def test_r11_other_paths_to_the_same_folder_are_fine(topic: Topic, tmp_path: Path, name: str) -> None:
    segment(tmp_path / "orders-0", batch(*ENTRIES))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path)
    land(topic.create().lake, topic.table, [tmp_path / name / LOG])
    assert {where[:2] for where in landed(topic)} == {("orders", 0)}
