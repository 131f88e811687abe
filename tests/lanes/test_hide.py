"""Lane `hide`: superseded records are hidden by position deletes, nothing else is, and nothing is rewritten (C28)."""

import itertools
from operator import attrgetter

import pytest

from firnlake.engine.engine import Engine
from firnlake.iceberg.branches import HIDDEN, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.job.collect import sweep
from firnlake.lanes.hiding.memory import Compared, read_hide_memory
from firnlake.plan.read_states import sense_table
from firnlake.table.partition import PartitionState
from firnlake.table.topic_partition import TopicPartition
from tests.support.hiding import delete, deletes
from tests.support.publishing import publish
from tests.support.row_deletes import visible_rows
from tests.support.topics import DAY, NOW, Record, Topic, updates

_numbers = itertools.count()
PLACE = TopicPartition("orders", 0)
SECONDS = 1000


@pytest.fixture
def topic(lake: Lake, engine: Engine) -> Topic:
    return new(lake, engine)


def new(lake: Lake, engine: Engine, **properties: str) -> Topic:
    """A topic whose superseded records are hidden ten seconds after something has landed."""
    chosen = {"hide_max_lag_ms": str(10 * SECONDS)} | properties
    return Topic(lake, engine, f"hidden.t{next(_numbers)}").create(**chosen)


def paths(topic: Topic) -> list[str]:
    return [segment.path for segment in topic.segments()]


def state(topic: Topic, now: int = NOW) -> PartitionState:
    _, (only,) = sense_table(topic.lake, topic.table, now)
    return only


def compared(topic: Topic) -> Compared | None:
    return read_hide_memory(topic.lake.table(topic.table)).compared_in(PLACE)


def hidden(topic: Topic) -> list[int]:
    """Hidden records of each segment with some, as lane `hide` remembers them."""
    return sorted(read_hide_memory(topic.lake.table(topic.table)).hidden_in(PLACE).values())


def test_c28_superseded_records_are_hidden_where_they_are(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "a=2"), updates("b=2", "c=1", start=3))
    before = paths(topic)
    (counts,) = topic.clean("hide", force=True)
    assert (counts.records_in, counts.records_out, counts.superseded, counts.deleted) == (5, 3, 2, 0)
    assert topic.seen() == [*updates("a=2", start=2), *updates("b=2", "c=1", start=3)]
    assert paths(topic) == before
    assert len(deletes(topic)) == 1
    assert sorted(row["offset"] for row in visible_rows(topic.lake.table(topic.table))) == [2, 3, 4]


def test_c25_twice_changes_nothing(topic: Topic) -> None:
    topic.land(updates("a=1", "a=2"))
    topic.clean("hide", force=True)
    snapshot = topic.lake.table(topic.table).metadata.current_snapshot_id
    assert topic.plans("hide", force=True) == []
    assert topic.plans("hide", NOW + 100 * DAY) == []
    assert topic.lake.table(topic.table).metadata.current_snapshot_id == snapshot


def test_c28_only_what_landed_since_is_compared_with_the_rest(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("c=1", "d=1", start=2))
    topic.clean("hide", force=True)
    topic.land(updates("b=2", "d=2", start=4))
    (plan,) = topic.plans("hide", force=True)
    assert [one.compared for one in plan.inputs] == [True, True, False]
    assert plan.older == {one.path for one in plan.inputs[:2]}
    topic.clean("hide", force=True)
    assert topic.offsets() == [0, 2, 4, 5]


def test_c28_a_commit_that_hides_nothing_moves_the_memory(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    (counts,) = topic.clean("hide", force=True)
    assert (counts.records_in, counts.superseded, counts.bytes_out) == (2, 0, 0)
    table = topic.lake.table(topic.table)
    assert deletes(topic) == set()
    memory, snapshot = compared(topic), table.current_snapshot()
    assert memory is not None
    assert snapshot is not None
    assert (memory.snapshot_id, memory.committed) == (snapshot.snapshot_id, snapshot.sequence_number)
    assert memory.sequence_number < memory.committed
    assert on_branch(table, HIDDEN).scan().to_arrow().num_rows == 0


def test_c28_late_records_are_superseded_by_what_is_there(topic: Topic) -> None:
    topic.land(updates("a=2", "b=2", start=10))
    topic.clean("full", force=True)
    topic.clean("hide", force=True)
    topic.land(updates("a=1", "c=1", start=3))
    topic.clean("hide", force=True)
    assert topic.offsets() == [4, 10, 11]


def test_c28_null_keys_and_copies_of_the_newest_stay(topic: Topic) -> None:
    topic.land([Record(0, None, b"x"), Record(1, b"a", b"1"), Record(2, None, b"y")], [Record(3, b"a", b"2")])
    topic.land([Record(3, b"a", b"2"), Record(1, b"a", b"1")])
    (counts,) = topic.clean("hide", force=True)
    assert topic.offsets() == [0, 2, 3, 3], "C2: a copy is superseded by a higher offset alone"
    assert counts.superseded == 2


def test_c28_tail_head_and_tombstones(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "c=1"))
    topic.clean("full", force=True)
    topic.land(updates("a=", "b=2", start=3))
    topic.clean("hide", force=True)
    assert topic.seen() == [*updates("c=1", start=2), *updates("a=", "b=2", start=3)]
    assert hidden(topic) == [2]
    assert len(topic.segments()) == 2


class TestWhenItIsDue:
    def test_c21_off_unless_set(self, lake: Lake, engine: Engine) -> None:
        topic = Topic(lake, engine, f"hidden.t{next(_numbers)}").create().land(updates("a=1", "a=2"))
        assert topic.plans("hide", force=True) == []

    def test_c28_after_the_lag(self, topic: Topic) -> None:
        topic.land(updates("a=1", "a=2"))
        (segment,) = topic.segments()
        assert segment.committed_ms is not None
        due = segment.committed_ms + 10 * SECONDS
        assert topic.plans("hide", due - 1) == []
        (plan,) = topic.plans("hide", due)
        assert (
            "1 segment not compared with the others, the oldest landed 10 s ago (hide.max.lag.ms = 10s)" in plan.reason
        )

    def test_c11_what_is_too_young_loses_and_supersedes_nothing(self, lake: Lake, engine: Engine) -> None:
        topic = new(lake, engine, min_compaction_lag_ms="5000")
        topic.land(updates("a=1", "a=2"), [Record(2, b"a", b"3", timestamp_ms=NOW)])
        topic.clean("hide", force=True)
        assert topic.offsets() == [1, 2]
        assert topic.plans("hide", force=True) == []
        topic.clean("hide", NOW + 5 * SECONDS, force=True)
        assert topic.offsets() == [2]

    def test_c11_active_segments(self, lake: Lake, engine: Engine) -> None:
        topic = new(lake, engine, active_segments="1")
        topic.land(updates("a=1"), updates("a=2", start=1), updates("a=3", "a=4", start=2))
        topic.clean("hide", force=True)
        assert topic.offsets() == [1, 2, 3]
        topic.land(updates("b=1", start=4))
        topic.clean("hide", force=True)
        assert topic.offsets() == [3, 4]

    def test_c17_a_plan_within_its_budget(self, lake: Lake, engine: Engine) -> None:
        topic = new(lake, engine, plan_max_records="4")
        topic.land(*(updates("a=1", "a=2", start=start) for start in range(0, 12, 2)))
        seen = []
        while topic.clean("hide", force=True):
            seen.append(topic.offsets())
        assert seen[-1] == [11]
        assert len(seen) == 3

    def test_c20_a_tail_that_is_too_large(self, lake: Lake, engine: Engine) -> None:
        topic = new(lake, engine).land(updates("a=1", "b=1"))
        topic.clean("full", force=True)
        topic.land(updates("a=2", start=2))
        assert len(topic.plans("hide", force=True)) == 1
        (tail,) = [one.bytes for one in topic.segments() if one.level == 3]
        lake.set_properties(topic.table, {"firn.max.input.bytes": str(tail - 1)})
        assert topic.plans("hide", force=True) == []


class TestMemory:
    def test_c28_lost_with_its_file_everything_is_compared_anew(self, topic: Topic) -> None:
        topic.land(updates("a=1", "a=2"), updates("b=1", start=2))
        topic.clean("hide", force=True)
        table = topic.lake.table(topic.table)
        for one in table.metadata.statistics:
            topic.lake.table(topic.table).io.delete(one.statistics_path)
        topic.land(updates("b=2", "a=3", start=3))
        (plan,) = topic.plans("hide", force=True)
        assert [one.compared for one in plan.inputs] == [False, False, False]
        topic.clean("hide", force=True)
        assert topic.offsets() == [3, 4]
        assert hidden(topic) == [1, 2]

    def test_c28_after_a_rollback_everything_is_compared_anew(self, topic: Topic) -> None:
        topic.land(updates("a=1", "a=2"))
        table = topic.lake.table(topic.table)
        before = table.metadata.current_snapshot_id
        assert before is not None
        topic.clean("hide", force=True)
        topic.lake.table(topic.table).manage_snapshots().rollback_to_snapshot(before).commit()
        assert topic.offsets() == [0, 1]
        topic.clean("hide", force=True)
        assert topic.offsets() == [1]

    def test_c28_the_log_end_is_known_to_be_visible(self, topic: Topic) -> None:
        """C4, C27: what lane `hide` hides is no reason to keep a tombstone for ever."""
        topic.land(updates("a=1", "a=2", "b=1"))
        topic.clean("hide", force=True)
        assert state(topic).kept_from == 2
        delete(topic, 2)
        assert state(topic).kept_from == 0, "one of three is still seen"


class TestGarbage:
    def test_c12_c28_what_is_hidden_is_dirty_and_what_was_compared_is_not(self, topic: Topic) -> None:
        topic.land(updates(*(f"k{number}=1" for number in range(10))))
        topic.clean("full", force=True)
        topic.land(updates(*(f"k{number}=2" for number in range(5)), start=10))
        before = state(topic)
        assert before.dirty_bytes == before.cleanable_bytes
        topic.clean("hide", force=True)
        found = state(topic)
        (tail,) = found.tail
        assert found.dirty_bytes == tail.data_bytes // 2
        assert found.dirty_ratio == pytest.approx(tail.data_bytes // 2 / (found.tail_bytes + found.cleanable_bytes))
        topic.land(updates("k9=2", start=15))
        later = state(topic)
        assert later.dirty_bytes == tail.data_bytes // 2 + later.head[-1].data_bytes, "not compared yet"

    def test_c28_full_is_due_for_a_segment_with_too_much_hidden(self, lake: Lake, engine: Engine) -> None:
        topic = new(lake, engine, min_cleanable_dirty_ratio="1", full_interval_ms="-1")
        topic.land(updates(*(f"k{number}=1" for number in range(10))))
        topic.clean("full", force=True)
        topic.land(updates(*(f"k{number}=2" for number in range(9)), start=10))
        topic.clean("hide", force=True)
        assert topic.plans("full") == []
        topic.land(updates("k9=2", start=19))
        topic.clean("hide", force=True)
        (plan,) = topic.plans("full")
        assert "10 hidden records among 10 records of" in plan.reason
        topic.clean("full")
        assert topic.plans("full") == []
        assert topic.offsets() == [*range(10, 20)]
        assert deletes(topic) == set()
        assert max(map(attrgetter("row_deletes"), topic.segments())) == 0


class TestDeleteFiles:
    def test_c28_many_are_merged_and_rows_about_files_that_have_gone_are_left_out(
        self, lake: Lake, engine: Engine
    ) -> None:
        """A tail in several segments: those of which nothing is hidden stay in place, and keep old delete files."""
        topic = new(lake, engine, segment_bytes="1", position_deletes_max="1")
        for start in (0, 10, 20):
            topic.land(updates(*(f"k{start + one}=1" for one in range(10)), start=start))
            topic.clean("full", force=True)
        tail = paths(topic)
        assert len(tail) == 3
        for key, offset in (("k0", 30), ("k10", 31)):
            topic.land(updates(f"{key}=2", start=offset))
        topic.clean("hide", force=True)
        (first,) = deletes(topic)
        topic.clean("full", force=True)
        assert [path in paths(topic) for path in tail] == [False, False, True]
        assert deletes(topic) == {first}, "metadata can't tell that it names no live file"
        topic.land(updates("k20=2", start=40))
        topic.clean("hide", force=True)
        (second,) = deletes(topic) - {first}
        topic.land(updates("k21=2", start=41))
        topic.clean("hide", force=True)
        assert len(deletes(topic) - {first, second}) == 1
        assert deletes(topic).isdisjoint({first, second})
        assert [offset for offset in topic.offsets() if offset < 30] == [*range(1, 10), *range(11, 20), *range(22, 30)]

    def test_c16_what_hides_nothing_stays_in_place(self, lake: Lake, engine: Engine) -> None:
        topic = new(lake, engine, segment_bytes="1")
        for start in (0, 10):
            topic.land(updates(*(f"k{start + one}=1" for one in range(10)), start=start))
            topic.clean("full", force=True)
        topic.land(updates("k0=2", start=20))
        topic.clean("hide", force=True)
        (plan,) = topic.plans("full", force=True)
        assert [one.may_stay for one in plan.inputs] == [False, True, False]


def test_c25_a_stage_that_waits_for_its_publication_is_not_swept(topic: Topic) -> None:
    """Its inputs stay live, before and after: only the history tells whether it was published."""
    topic.land(updates("a=1", "b=1", "a=2"), updates("c=1", start=3))
    (stage,) = topic.validated(topic.plans("hide", force=True))
    assert sweep(topic.lake, topic.table).discarded == {}
    publish(topic.lake, stage)
    assert topic.seen() == [*updates("b=1", "a=2", start=1), *updates("c=1", start=3)]
