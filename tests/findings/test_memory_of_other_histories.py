"""R3, R14: what Firn remembers of a history that main has left still counts."""

from collections.abc import Callable

import pytest

from firnlake.inspect.erasures import status
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.ask import ask
from firnlake.run import run
from tests.support.erasing import HOUR, request
from tests.support.other_lives import head, replace, roll_back
from tests.support.topics import DAY, NOW, Topic, foreign_rows, updates

LATER = NOW + DAY
NEW = [*updates("a=new", start=1), *updates("d=1", start=9)]
"""A new load of other records: its first is below the removed tombstone, its log end is not."""


def deleted(topic: Topic) -> int:
    """Delete key ``a`` at offset 3 and remove its tombstone; the snapshot from before all of its records."""
    topic.land(updates("z=1"))
    before = head(topic)
    topic.land(updates("a=1", "b=1", "a=", "c=1", start=1))
    for now in (NOW, LATER):
        topic.clean("full", now, force=True)
    return before


def delete_and_load(topic: Topic) -> None:
    topic.lake.table(topic.table).delete()
    topic.append(NEW)


def overwrite(topic: Topic) -> None:
    topic.lake.table(topic.table).overwrite(foreign_rows(topic.arrow(NEW)))


def create_or_replace(topic: Topic) -> None:
    replace(topic)
    topic.append(NEW)


@pytest.mark.parametrize("anew", [create_or_replace, overwrite, delete_and_load])
def test_r3_a_table_that_begins_anew_forgets_removed_tombstones(topic: Topic, anew: Callable[[Topic], None]) -> None:
    deleted(topic)
    anew(topic)
    topic.run(LATER, force=True)
    assert topic.seen() == NEW


def test_r3_no_offset_gets_two_records(topic: Topic) -> None:
    deleted(topic)
    topic.lake.table(topic.table).delete()
    topic.append(updates("a=new", "b=new", "c=new", "e=1", "f=1"))
    list(run(topic.lake, topic.table, LATER, topic.engines, tuple(Lane), force=True))
    assert topic.offsets() == sorted(set(topic.offsets()))


def test_r3_no_topic_partition_is_refused_for_ever(topic: Topic) -> None:
    deleted(topic)
    topic.lake.table(topic.table).delete()
    topic.append(updates("a=new", "d=1"))
    failures = [lane.failures for lane in run(topic.lake, topic.table, LATER, topic.engines, tuple(Lane), force=True)]
    assert [one for one in failures if one] == []


@pytest.fixture
def visible_again(topic: Topic) -> Topic:
    """Key ``a`` was erased, and a rollback has brought it back."""
    topic.land(updates("a=1", "b=1"))
    before = head(topic)
    request(topic, b"a")
    topic.clean(Lane.ERASE, NOW + HOUR)
    roll_back(topic, before)
    return topic


def test_r14_a_key_that_a_rollback_brought_back_is_erased_again(visible_again: Topic) -> None:
    visible_again.run(NOW + 2 * HOUR)
    assert visible_again.offsets() == [1]


def test_r14_status_does_not_say_erased(visible_again: Topic) -> None:
    (told,) = status(visible_again.lake, visible_again.table, NOW + 2 * HOUR)
    assert told.state(NOW + 2 * HOUR) == "open"


def test_r14_nor_does_a_new_request_change_nothing(visible_again: Topic) -> None:
    ask(visible_again.lake, visible_again.table, [(b"a",)], NOW + 2 * HOUR)
    visible_again.run(NOW + 4 * HOUR)
    assert visible_again.offsets() == [1]
