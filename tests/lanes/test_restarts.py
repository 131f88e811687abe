"""C33: a topic whose offsets restart waits as a whole until somebody says whether it was made again or late."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from firnlake import clock
from firnlake.errors import ConflictError, RefusedError
from firnlake.inspect.status.gather import status_of
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.certify import certify
from firnlake.lanes.reset import BEFORE, accept_late, former_of, reset
from firnlake.run import run
from firnlake.table.topic_partition import TopicPartition
from tests.support.erasing import erasures, request
from tests.support.in_process import Firn, command_on, refused
from tests.support.topics import DAY, Record, Topic

NOW = clock.now_ms()
FIRST = f"{BEFORE}1"


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


def begin_anew(topic: Topic, as_of: int | None = None) -> str:
    return reset(topic.lake, former_of(topic.lake, topic.table, topic.name, as_of))


def test_all_partitions_wait_and_say_what_to_do(again: Topic) -> None:
    before = head(again)
    again.run(NOW, force=True)
    assert head(again) == before
    for why in blockers(again).values():
        assert "`firn topic reset TABLE orders`" in why[0]
        assert "`firn topic late TABLE orders`" in why[0]


def test_other_topics_do_not_wait(again: Topic) -> None:
    other = replace(again, name="others")
    other.land([old(5, b"a", b"1"), old(6, b"a", b"2")])
    other.run(NOW, force=True)
    rows = [(row["topic"], row["offset"]) for row in again.rows()]
    assert ("others", 5) not in rows
    assert ("orders", 0) in rows


def test_after_a_reset_the_new_topic_is_cleaned_and_a_branch_keeps_the_former_one(again: Topic) -> None:
    assert begin_anew(again) == FIRST
    assert (again.offsets(), again.offsets(1), again.removed_tombstones()) == ([0, 1], [], [])
    table = again.lake.table(again.table)
    kept = table.scan(snapshot_id=table.metadata.refs[FIRST].snapshot_id).to_arrow()
    assert sorted(kept["offset"].to_pylist()) == [0, 1, 7, 100, 102]
    again.land([new(2, b"a", b"newer")])
    again.run(NOW, force=True)
    assert again.offsets() == [1, 2]
    assert not any(blockers(again).values())


def test_a_second_reset_has_a_branch_of_its_own(again: Topic) -> None:
    begin_anew(again)
    again.clean("full", NOW - DAY // 2, force=True)
    again.land([Record(0, b"a", b"third", timestamp_ms=NOW)])
    assert begin_anew(again) == f"{BEFORE}2"
    assert [record.value for record in again.seen()] == [b"third"]


def test_a_rollback_brings_the_former_topic_back_with_its_memory(again: Topic) -> None:
    before = head(again)
    assert before is not None
    begin_anew(again)
    table = again.lake.table(again.table)
    table.manage_snapshots().set_current_snapshot(before).commit()
    assert again.offsets() == [0, 1, 100, 102]
    assert [row["offset"] for row in again.removed_tombstones()] == [101]
    assert all(blockers(again).values())


def test_a_partition_that_only_the_new_topic_has_stays(again: Topic) -> None:
    again.land([new(3, b"z", b"new", 2)])
    begin_anew(again)
    assert (again.offsets(1), again.offsets(2)) == ([], [3])


def test_a_partition_that_goes_on_behind_former_records_is_the_former_topics(topic: Topic) -> None:
    """Its last record is days newer than the partition that restarts later ever was."""
    topic.land([old(100, b"a", b"old"), old(7, b"a", b"old", 1)])
    topic.land([Record(8, b"a", b"old", 1, timestamp_ms=NOW - 5 * DAY)])
    topic.land([new(0, b"a", b"new")])
    begin_anew(topic)
    assert (topic.offsets(0), topic.offsets(1)) == ([0], [])


def test_late_data_are_cleaned_as_such_and_a_later_restart_blocks_again(again: Topic) -> None:
    assert accept_late(again.lake, again.table, again.name) == 1
    again.run(NOW, force=True)
    assert [(one.offset, one.value) for one in again.seen() if one.key == b"a"] == [(100, b"old")]
    again.land([Record(50, b"a", b"third", timestamp_ms=NOW)])
    assert all(blockers(again).values())
    assert accept_late(again.lake, again.table, again.name) == 1
    assert accept_late(again.lake, again.table, again.name) == 0


def test_late_keeps_to_a_setting_that_is_there(again: Topic) -> None:
    name = "firn.topic.orders.offsets.restart"
    again.lake.set_properties(again.table, {name: "block"})
    accept_late(again.lake, again.table, again.name)
    assert again.lake.table(again.table).properties[name].startswith("late:")
    assert not any(blockers(again).values())


def test_where_nothing_restarts_people_say_what_the_former_topic_was(topic: Topic) -> None:
    topic.land([old(0, b"a", b"old"), old(1, b"b", b"old")])
    last = head(topic)
    topic.land([new(2, b"a", b"new")])
    with pytest.raises(RefusedError, match="allowed: --as-of ID"):
        begin_anew(topic)
    with pytest.raises(RefusedError, match="has no snapshot 7"):
        begin_anew(topic, 7)
    begin_anew(topic, last)
    assert topic.offsets() == [2]
    with pytest.raises(RefusedError, match="no segment of topic orders on main is from before"):
        begin_anew(topic, last)


@pytest.mark.parametrize("answer", [former_of, accept_late])
def test_an_unknown_topic_is_refused(again: Topic, answer: Callable[..., object]) -> None:
    with pytest.raises(RefusedError, match="has no topic payments; found: orders"):
        answer(again.lake, again.table, "payments")


def test_what_changed_since_it_was_shown_is_a_conflict(again: Topic) -> None:
    shown = former_of(again.lake, again.table, again.name)
    again.lake.table(again.table).delete("partition = 1")
    before = head(again)
    with pytest.raises(ConflictError, match="not live"):
        reset(again.lake, shown)
    assert head(again) == before
    assert FIRST not in again.lake.table(again.table).metadata.refs


def test_c30_requests_are_about_the_former_topic(again: Topic) -> None:
    asked = request(again, b"a", now=NOW)
    begin_anew(again)
    done = list(run(again.lake, again.table, NOW + DAY, again.engines, (Lane.ERASE,)))
    assert not any(lane.publications for lane in done)
    assert [one.value for one in again.seen()] == [b"new", b"new"]
    assert asked.id
    known = erasures(again)
    assert all(known.is_done(row) for row in known.rows_of(asked.id))
    assert not certify(again.lake, again.table, NOW + DAY, again.engine).issued

    later = request(again, b"a", now=NOW)
    assert later.below == {TopicPartition("orders", 0): 2}
    again.land([new(2, b"b", b"new")])
    again.clean("erase", NOW + DAY, force=True)
    assert again.offsets() == [1, 2]
    assert erasures(again).of(TopicPartition("orders", 0))[0].id == later.id


def test_the_command_shows_what_goes_and_asks(firn: Firn, again: Topic) -> None:
    before = head(again)
    shown = firn("topic", "reset", again.table, "orders")
    assert shown.code != 0
    assert "orders-0: 2 records of the former topic up to offset 102; 2 records stay" in shown.out
    assert head(again) == before
    assert FIRST in firn("topic", "reset", again.table, "orders", "--yes").out
    assert again.offsets() == [0, 1]
    refused(firn("topic", "reset", again.table, "orders", "--yes"), "--as-of ID")
    assert "nothing was suspected" in firn("topic", "late", again.table, "orders").out


def test_the_command_accepts_late_data(firn: Firn, again: Topic) -> None:
    assert "taken as late data: 1 segment" in firn("topic", "late", again.table, "orders").out
    assert not any(blockers(again).values())
