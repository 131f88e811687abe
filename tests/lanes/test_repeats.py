"""Offsets that an at-least-once writer wrote more than once (C1, C20)."""

import pytest

from firnlake.compact.compact import compact
from firnlake.errors import RefusedError
from tests.support.topics import DAY, NOW, Record, Topic, updates


@pytest.mark.parametrize("lane", ["clean", "full"])
def test_c1_an_identical_record_is_kept_once(topic: Topic, lane: str) -> None:
    first = updates("a=1", "b=1", "a=2", "c=1")
    topic.create(merge_segments="2", clean_segments="1").land(first, first[1:3], updates("d=1", start=4))
    if lane == "clean":
        topic.clean("merge", force=True)
    (counts,) = topic.clean(lane, force=True)
    assert topic.offsets() == [1, 2, 3, 4]
    assert (counts.records_in, counts.records_out, counts.superseded, counts.repeated) == (7, 4, 3, 2)


def test_c1_within_one_segment_and_without_a_key(topic: Topic) -> None:
    batch = [*updates("a=1", "b=1"), Record(2, None, b"x"), Record(2, None, b"x"), *updates("b=1", "c=1", start=3)]
    (counts,) = topic.land([*batch, batch[-2]]).clean("full")
    assert topic.offsets() == [0, 3, 4]
    assert [row["offset"] for row in topic.quarantined()] == [2]
    assert (counts.records_in, counts.superseded, counts.repeated, counts.quarantined) == (7, 3, 2, 1)


def test_c9_a_tombstone_delivered_again_keeps_its_stamp(topic: Topic) -> None:
    """The same offset is not an older record: nothing starts again."""
    history = updates("a=1", "a=", "b=1")
    topic.land(history).clean("full")
    topic.land(history[1:]).clean("full", NOW + 1, force=True)
    assert topic.offsets() == [1, 2]
    assert topic.horizons() == {1: NOW + DAY}


def test_c13_merge_copies_repeats_as_they_are(topic: Topic) -> None:
    batch = updates("a=1", "b=1")
    topic.land(batch)
    topic.append(batch)
    topic.clean("merge")
    assert topic.offsets() == [0, 0, 1, 1]


@pytest.mark.parametrize("other", [Record(1, b"b", b"2"), Record(1, b"x", b"1"), Record(1, None, b"1")])
def test_c20_different_records_on_one_offset_are_refused_and_shown(topic: Topic, other: Record) -> None:
    topic.create(report_samples="full").land(updates("a=1", "b=1", "b=3"), [other])
    (outcome,) = compact(topic.lake, topic.plans("full"), topic.engine)
    assert isinstance(outcome.error, RefusedError)
    said = str(outcome.error)
    assert f"offset 1 of {topic.name}-0 holds different records" in said
    assert "key='b', value='1'" in said
    assert f"value={other.value.decode()!r}" in said if other.value else True
    assert topic.offsets() == [0, 1, 1, 2]
