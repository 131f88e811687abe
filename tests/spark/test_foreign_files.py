"""What other writers put into a table: files listed twice, and levels of their own (C13, C20, C24)."""

import pytest

from tests.spark.topics import NOW, Topic, updates
from tests.unit.foreign import append_again

KAFKA_NAMES = ("a.segment.bytes", "__stage_x", "a.b-c_D", "-", "t" * 249)
"""Kafka allows letters, digits, `.`, `_` and `-`, up to 249 of them; `.` and `..` alone it does not."""
OTHER_NAMES = ("..", "a/../../b", "50%", "größe é", 'it\'s "so"', "x=y&z", "{{ name }}", "<b>", "`t`")


def listed_again(topic: Topic) -> None:
    """Every live file of the topic once more."""
    for segment in topic.segments():
        append_again(topic.lake, segment.path, identifier=topic.table)


def assert_balanced(topic: Topic) -> None:
    """C24: what the books say went in and came out is what the table lost and has."""
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
    (books,) = topic.clean("full", NOW + 1, force=True)
    assert (books.records_in, books.records_out, books.repeated) == (before, 3, before // 2)
    assert topic.offsets() == [1, 2, 3]
    assert_balanced(topic)


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
