"""Files of other writers in a table: listed twice, with their own levels, any topic, huge keys (C20, C26)."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from firnlake.compact.compact import compact
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.run import run
from firnlake.table import records
from firnlake.table.policies import Policies
from firnlake.validate.validate import build_reports
from firnlake_expectations.wording import file_name
from infra.foreign.files import on_disk
from tests.support.clocks import judging_late
from tests.support.foreign import append_again, rename
from tests.support.topics import NOW, Record, Topic, updates

KAFKA_NAMES = ("a.segment.bytes", "__stage_x", "a.b-c_D", "-", "t" * 249)
"""Kafka allows letters, digits, `.`, `_` and `-`, up to 249 of them; `.` and `..` alone it does not."""
OTHER_NAMES = ("..", "a/../../b", "50%", "größe é", 'it\'s "so"', "x=y&z", "{{ name }}", "<b>", "`t`")


def listed_again(topic: Topic) -> None:
    """Every live file of the topic once more."""
    for segment in topic.segments():
        append_again(topic.lake, segment.path, identifier=topic.table)


def assert_balanced(topic: Topic) -> None:
    """C24: what the counts say went in and came out is what the table lost and has."""
    snapshot = topic.lake.table(topic.table).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    said = {name: snapshot.summary[name] for name in ("firn.records-in", "firn.records-out")}
    assert said == {
        "firn.records-in": snapshot.summary["deleted-records"],
        "firn.records-out": snapshot.summary["total-records"],
    }


@pytest.mark.parametrize("level", [0, 3])
def test_c1_c24_a_file_that_is_listed_twice_leaves_one_copy(topic: Topic, level: int) -> None:
    """A sink that repeats a commit: Kafka Connect after a lost answer."""
    topic.land(updates("a=1", "b=1", "a=2", "c="))
    if level == 3:
        topic.clean("full")
    listed_again(topic)
    assert topic.levels() == [level]
    before = len(topic.rows())
    assert before == (8 if level == 0 else 6)
    (counts,) = topic.clean("full", NOW + 1, force=True)
    assert (counts.records_in, counts.records_out, counts.repeated) == (before, 3, before // 2)
    assert topic.offsets() == [1, 2, 3]
    assert_balanced(topic)


@pytest.mark.parametrize("lane", ["merge", "full"])
def test_c26_a_segment_without_row_groups_is_refused_if_its_manifest_tells_records(topic: Topic, lane: str) -> None:
    topic.create().land(updates("a=1", "b=1"), updates("a=2", start=2))
    path = on_disk(topic.segments()[0].path)
    schema = pq.read_schema(path)
    pq.ParquetWriter(path, schema).close()
    (outcome,) = compact(topic.lake, topic.plans(lane, force=True), topic.engine)
    assert isinstance(outcome.error, RefusedError)
    assert f"{path.name} has a record count of 0; allowed: 2, as in the table's manifest" in str(outcome.error)


def test_c13_merge_copies_both_listings_and_clean_keeps_one(topic: Topic) -> None:
    topic.create(merge_segments="2", clean_segments="1").land(updates("a=1", "b=1"), updates("a=2", start=2))
    listed_again(topic)
    topic.clean("merge")
    assert topic.offsets() == [0, 0, 1, 1, 2, 2]
    assert_balanced(topic)
    topic.clean("clean")
    assert topic.offsets() == [1, 2]
    assert_balanced(topic)


def test_c3_a_level_that_another_writer_claims_decides_nothing(topic: Topic) -> None:
    """Tail and run of a stranger hold two records of one key each: the next full cleaning keeps the newest."""
    topic.create()
    topic.append(updates("a=1", "a=2", "b=1"), level=3)
    topic.append(updates("b=2", "b=3", "c=1", start=3), level=2)
    assert topic.levels() == [3, 2]
    topic.clean("full", force=True)
    assert topic.seen() == [*updates("a=2", start=1), *updates("b=3", "c=1", start=4)]


def test_c11_timestamps_before_the_epoch_and_in_the_year_9999(topic: Topic) -> None:
    """Order is by offset (C1), and a lag waits for the newest timestamp, however far away."""
    future = 253_402_300_799_000
    records_of = [Record(0, b"a", b"1", timestamp_ms=future), Record(1, b"a", b"2", timestamp_ms=-5_000)]
    topic.create(min_compaction_lag_ms="1").land(records_of)
    assert topic.plans("full", force=True) == []
    with judging_late(future):
        topic.clean("full", future + 1)
    assert topic.seen() == [records_of[1]]


def test_c6_keys_of_no_byte_and_of_ten_million(topic: Topic) -> None:
    """Equal but for their last byte, they are two keys; an empty key is a third."""
    stem = os.urandom(10_000_000)
    one, two = stem + b"1", stem + b"2"
    history = [Record(offset, key, b"%d" % offset) for offset, key in enumerate([one, b"", two, one, b"", two])]
    topic.land([*history, Record(6, b"v", os.urandom(50_000_000)), Record(7, None, b"no key"), Record(8, b"z", b"")])
    topic.clean("full")
    assert topic.offsets() == [3, 4, 5, 6, 8]
    assert topic.seen()[:3] == history[3:]


def test_c1_ten_thousand_headers_of_one_record_stay_in_their_order(topic: Topic) -> None:
    headers = tuple((f"h{number % 7}", b"%d" % number) for number in range(10_000))
    topic.land(
        [Record(0, b"a", b"old"), Record(1, b"a", b"new", headers=headers), Record(2, b"b", b"", headers=headers)]
    )
    topic.clean("full")
    assert topic.seen() == [Record(1, b"a", b"new", headers=headers), Record(2, b"b", b"", headers=headers)]


def test_c26_messages_show_a_part_of_a_huge_key(topic: Topic) -> None:
    key = b"k" * 10_000_000
    topic.land([Record(0, key, b"1")], [Record(0, key, b"2")])
    (outcome,) = compact(topic.lake, topic.plans("full"), topic.engine)
    assert isinstance(outcome.error, RefusedError)
    assert "offset 0" in str(outcome.error)
    assert len(str(outcome.error)) < 1_000


def test_segments_may_have_any_name(topic: Topic) -> None:
    """Names are literal: a percent sign in one is no escape, a question mark begins no query."""
    names = ("50% é.parquet", "a%20b.parquet", "q?x=1#y.parquet", "it's [0-9]* {a,b}.parquet", "-.parquet")
    for number, name in enumerate(names):
        topic.land(updates(f"a={number}", start=number))
        newest = max(topic.segments(), key=lambda segment: segment.base_offset)
        rename(topic.lake, newest.path, name, identifier=topic.table)
    (counts,) = topic.clean("full")
    assert (counts.records_in, counts.superseded, topic.offsets()) == (5, 4, [4])


def test_c26_any_topic_name_goes_all_the_way(topic: Topic, lake: Lake) -> None:
    """Through properties, landing, plans, staging, reports, quarantine and publish, and no file lies anywhere else."""
    properties = {f"firn.topic.{name}.segment.bytes": "1000000" for name in KAFKA_NAMES}
    policies = Policies.parse(topic.table, properties)
    assert {policies.of(name).segment_bytes for name in KAFKA_NAMES} == {1_000_000}
    records.create(lake, topic.table, properties)
    topic.made = True
    names = (*KAFKA_NAMES, *OTHER_NAMES)
    around = set(lake.home.parent.iterdir())
    for name in names:
        topic.name = name
        topic.land([*updates("a=1", "a=2"), Record(2, None, b"no key"), *updates("b=1", start=3)])
    done = list(run(lake, topic.table, NOW, topic.engines, (Lane.FULL,)))
    assert [lane.failures for lane in done if lane.failures] == []
    assert {(row["topic"], row["offset"]) for row in topic.rows()} == {
        (name, offset) for name in names for offset in (1, 3)
    }
    assert {row["topic"] for row in topic.quarantined()} == set(names)
    home = on_disk(lake.table(topic.table).location())
    files = {Path(task.file.file_path.removeprefix("file:")) for task in lake.table(topic.table).scan().plan_files()}
    assert len(files) == len(names)
    assert all(home.resolve() in Path(os.path.normpath(file)).parents for file in files)
    assert set(lake.home.parent.iterdir()) == around
    page = build_reports(lake).parent / "tables" / f"{file_name(topic.table)}.html"
    told = page.read_text(encoding="utf-8")
    assert all(name in told for name in KAFKA_NAMES)
    assert "<b>-0" not in told
