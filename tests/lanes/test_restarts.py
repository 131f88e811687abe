"""C33: a topic whose offsets restart waits as a whole until somebody says that its records are late."""

import re
import shlex
from dataclasses import replace

import pytest

from firnlake import clock
from firnlake.inspect.status.gather import status_of
from tests.support.in_process import Firn, command_on
from tests.support.topics import DAY, Record, Topic

NOW = clock.now_ms()


def old(offset: int, key: bytes, value: bytes | None, partition: int = 0) -> Record:
    return Record(offset, key, value, partition, timestamp_ms=NOW - 20 * DAY)


def new(offset: int, key: bytes, value: bytes | None, partition: int = 0) -> Record:
    return Record(offset, key, value, partition, timestamp_ms=NOW - DAY)


@pytest.fixture
def again(topic: Topic) -> Topic:
    """Two partitions of the former topic, with a removed tombstone in the first, which alone has begun anew."""
    topic.land([old(100, b"a", b"old"), old(101, b"c", None), old(102, b"b", b"old"), old(7, b"a", b"old", 1)])
    for days in (10, 8):
        topic.clean("full", NOW - days * DAY, force=True)
    assert [row["offset"] for row in topic.removed_tombstones()] == [101]
    topic.land([new(0, b"a", b"new"), new(1, b"c", b"new")])
    return topic


@pytest.fixture
def firn(again: Topic, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    return command_on(again.lake, monkeypatch, capsys)


def head(topic: Topic) -> int | None:
    return topic.lake.table(topic.table).metadata.current_snapshot_id


def blockers(topic: Topic) -> dict[int, tuple[str, ...]]:
    found = status_of(topic.lake, topic.table, NOW)
    return {part.partition: part.blockers for part in found.partitions}


def say_late(firn: Firn, topic: Topic) -> None:
    """Run the command that the status of the first partition names."""
    (command,) = re.findall("`firn (.*?)`", blockers(topic)[0][0])
    assert firn(*shlex.split(command.replace("TABLE", topic.table))).code == 0


def test_all_partitions_wait_and_say_what_to_do(again: Topic) -> None:
    before = head(again)
    again.run(NOW, force=True)
    assert head(again) == before
    for why in blockers(again).values():
        assert re.search("`firn config set TABLE offsets.restart=late:[0-9]+ --topic orders` if the records", why[0])
        assert "if the topic was made again, a new table, or a new name of the topic" in why[0]


def test_other_topics_do_not_wait(again: Topic) -> None:
    other = replace(again, name="others")
    other.land([old(5, b"a", b"1"), old(6, b"a", b"2")])
    other.run(NOW, force=True)
    rows = [(row["topic"], row["offset"]) for row in again.rows()]
    assert ("others", 5) not in rows
    assert ("orders", 0) in rows


def test_late_data_are_cleaned_as_such_and_a_later_restart_blocks_again(firn: Firn, again: Topic) -> None:
    say_late(firn, again)
    again.run(NOW, force=True)
    assert [(one.offset, one.value) for one in again.seen() if one.key == b"a"] == [(100, b"old")]
    again.land([Record(50, b"a", b"third", timestamp_ms=NOW)])
    assert all(blockers(again).values())
    say_late(firn, again)
    assert not any(blockers(again).values())


def test_what_every_partition_has_landed_so_far_is_said_to_be_late_at_once(firn: Firn, again: Topic) -> None:
    again.land([new(2, b"a", b"newer")])
    again.land([new(0, b"a", b"new", 1)])
    say_late(firn, again)
    assert not any(blockers(again).values())


def test_the_command_keeps_to_a_setting_that_is_there(firn: Firn, again: Topic) -> None:
    name = "firn.topic.orders.offsets.restart"
    again.lake.set_properties(again.table, {name: "block"})
    say_late(firn, again)
    assert again.lake.table(again.table).properties[name].startswith("late:")
    assert not any(blockers(again).values())
