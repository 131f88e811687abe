"""The effect of each lane on records: copies, runs and tails (C1 to C6, C13, C14, C16, C24)."""

import itertools

import pytest

from firnlake.job.lane import Lane
from firnlake.job.plan import LEVEL_OUT
from tests.support.topics import NOW, Record, Topic, updates

ODD = [
    Record(5, b"", b"an empty key is a key", 0, NOW - 5_000),
    Record(7, b"\x00\xff", b"\x00", 0, NOW - 9_000, (("trace", b"1"), ("trace", b"2"))),
    Record(8, b"", b"", 0, NOW - 20_000),
    Record(11, b"a" * 300 + b"x", b"long keys differ at the end", 0, NOW - 1),
    Record(12, b"a" * 300 + b"y", b"long keys differ at the end", 0, NOW - 2),
    Record(20, b"\x00\xff", None, 0, NOW - 90_000),
]


def test_c13_merge_copies_every_record(topic: Topic) -> None:
    topic.land(ODD[:2], ODD[2:4], ODD[4:5], ODD[5:])
    before = topic.seen()
    counts = topic.clean("merge")
    assert topic.seen() == before == ODD
    assert topic.levels() == [1, 1]
    assert [(one.records_in, one.records_out, one.segments_in, one.segments_out) for one in counts] == [(6, 6, 4, 2)]


def test_c1_c6_full_keeps_what_it_keeps_bit_for_bit(topic: Topic) -> None:
    """Order is by offset though timestamps run backwards; an empty key is a key; keys are compared whole."""
    topic.land(ODD[:3], ODD[3:]).clean("full")
    assert topic.seen() == [ODD[2], ODD[3], ODD[4], ODD[5]]


def test_c14_clean_leaves_one_record_per_key_within_the_run(topic: Topic) -> None:
    topic.land(*(updates("a=1", "b=1", start=2 * part) for part in range(4)))
    topic.clean("merge")
    counts = topic.clean("clean")
    assert topic.offsets() == [6, 7]
    assert topic.levels() == [2]
    assert [(one.superseded, one.records_out) for one in counts] == [(6, 2)]


def test_c14_a_run_does_not_look_beyond_itself(topic: Topic) -> None:
    """The older record of the tail stays until a full clean: one record per key holds within the run only."""
    topic.land(updates("a=1", "b=1")).clean("full")
    topic.land(*(updates(f"a={part}", start=part) for part in range(2, 6)))
    topic.clean("merge")
    topic.clean("clean")
    assert topic.offsets() == [0, 1, 5]
    topic.clean("full", force=True)
    assert topic.offsets() == [1, 5]


def test_c16_tail_and_head_become_the_new_tail(topic: Topic) -> None:
    for start in range(0, 30, 10):
        topic.land(updates(*(f"k{n % 4}={n}" for n in range(10)), start=start))
        topic.clean("full", force=True)
        assert topic.levels() == [3]
    assert topic.offsets() == [26, 27, 28, 29]


def test_c4_a_tombstone_at_the_log_end_stays(topic: Topic) -> None:
    topic.create(delete_retention_ms="0").land(updates("a=1", "b=1", "a="))
    for day in range(4):
        topic.clean("full", NOW + day * 86_400_000, force=True)
        assert topic.offsets() == [1, 2]


def test_partitions_are_cleaned_apart(topic: Topic) -> None:
    """A key in two partitions is two keys."""
    topic.land(updates("a=1", "a=2"), updates("a=3", "b=1", partition=1), updates("a=4", start=2, partition=1))
    assert len(topic.clean("full")) == 2
    assert (topic.offsets(0), topic.offsets(1)) == ([1], [1, 2])


def test_output_segments_are_ranges_in_offset_order(topic: Topic) -> None:
    """One task writes one segment: neighbours in, a range out, at `segment.bytes` each."""
    topic.create(segment_bytes="4000")
    topic.land(
        *([Record(offset, b"%d" % offset, b"x" * 200) for offset in range(n, n + 20)] for n in range(0, 200, 20))
    )
    topic.clean("full")
    ranges = [(segment.base_offset, segment.last_offset) for segment in topic.segments()]
    assert len(ranges) > 1
    assert all(left[1] < right[0] for left, right in itertools.pairwise(ranges))
    assert topic.offsets() == list(range(200))


def test_c24_the_record_counts_are_in_the_snapshot_summary(topic: Topic) -> None:
    topic.land([Record(0, None, b"no key")], updates("a=1", "a=2", "b=1", start=1))
    published = topic.publish("full")[0]
    snapshot = topic.lake.table(topic.table).snapshot_by_id(published.snapshot_id)
    assert snapshot is not None
    assert snapshot.summary is not None
    found = {
        name: snapshot.summary[f"firn.{name}"] for name in ("records-in", "records-out", "superseded", "quarantined")
    }
    assert found == {"records-in": "4", "records-out": "2", "superseded": "1", "quarantined": "1"}
    assert snapshot.summary["firn.topic-partition"] == "orders-0"
    assert snapshot.summary["firn.plan-id"] == published.plan_id


def test_c13_a_run_writes_once_what_its_own_full_takes(topic: Topic) -> None:
    """`merge`, and after it `clean`, are due as well, and leave the segments to `full`; then nothing is due (C25)."""
    topic.land(*(updates("a=1", "b=2", "c=", start=3 * part) for part in range(8)))
    lanes = {done.lane: len(done.publications) for done in topic.run()}
    assert lanes == {
        Lane.RETAIN: 0,
        Lane.ERASE: 0,
        Lane.CONVERT: 0,
        Lane.MERGE: 0,
        Lane.CLEAN: 0,
        Lane.TIER: 0,
        Lane.FULL: 1,
    }
    assert topic.levels() == [3]
    assert topic.offsets() == [21, 22, 23]
    snapshot = topic.lake.table(topic.table).metadata.current_snapshot_id
    assert all(not done.plans for done in topic.run())
    assert topic.lake.table(topic.table).metadata.current_snapshot_id == snapshot


def test_c13_c14_a_run_without_full_goes_through_the_levels(topic: Topic) -> None:
    topic.create(min_cleanable_dirty_ratio="1", full_interval_ms="-1")
    topic.land(*(updates("a=1", "b=2", "c=", start=3 * part) for part in range(8)))
    assert [done.lane for done in topic.run() if done.publications] == [Lane.MERGE, Lane.CLEAN]
    assert topic.levels() == [2]
    assert topic.offsets() == [21, 22, 23]


def test_no_record_at_all_can_be_left(topic: Topic) -> None:
    """A plan whose inputs hold only tombstones that may go publishes no file."""
    topic.create(delete_retention_ms="0", active_segments="1")
    topic.land(updates("a="), updates("b=1", start=1))
    topic.clean("full")
    counts = topic.clean("full", NOW + 1, force=True)
    assert [(one.records_out, one.tombstones_removed, one.segments_out) for one in counts] == [(0, 1, 0)]
    assert topic.offsets() == [1]


@pytest.mark.parametrize("lane", LEVEL_OUT)
def test_topic_names_and_keys_are_data(topic: Topic, lane: Lane) -> None:
    """A hostile topic name is neither SQL nor a path."""
    topic.name = "a.b'; DROP--%2F..\\`$_-"
    topic.land(*(updates("k'=<script>", start=part) for part in range(4)))
    for step in list(LEVEL_OUT)[: list(LEVEL_OUT).index(lane) + 1]:
        topic.clean(step)
    assert topic.offsets() == ([0, 1, 2, 3] if lane is Lane.MERGE else [3])
