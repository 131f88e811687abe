"""Cost follows garbage: segments of the tail that lose nothing stay where they are (C16, C24)."""

from pathlib import Path

import numpy as np

from tests.support.topics import Record, Topic

PER_SEGMENT = 20
VALUE = bytes(range(256)) * 2


def with_tail(topic: Topic, segments: int, **properties: str) -> Topic:
    """A tail of ``segments`` segments of PER_SEGMENT keys each: k000 to k019, k020 to k039 and so on."""
    records = [Record(offset, b"k%03d" % offset, b"%d" % offset + VALUE) for offset in range(segments * PER_SEGMENT)]
    batches = [records[start : start + PER_SEGMENT] for start in range(0, len(records), PER_SEGMENT)]
    topic.create(segment_bytes="1024", **properties).land(*batches)
    topic.clean("full")
    assert topic.levels() == [3] * segments
    return topic


def update(topic: Topic, *keys: int) -> None:
    start = topic.segments()[-1].last_offset + 1
    topic.land([Record(start + n, b"k%03d" % key, b"new" + VALUE) for n, key in enumerate(keys)])


def paths(topic: Topic) -> dict[int, str]:
    return {segment.base_offset: segment.path for segment in topic.segments() if segment.level == 3}


def test_segments_whose_bounds_exclude_the_heads_keys_are_not_read(topic: Topic) -> None:
    """A file that is gone can't be read: the plan is compacted all the same."""
    with_tail(topic, 4)
    gone = paths(topic)[60]
    update(topic, 5, 6)
    (plan,) = topic.plans("full", force=True)
    Path(gone.removeprefix("file:")).unlink()
    topic.compacted(plan)


def test_a_composite_or_typed_key_is_told_apart_as_well(topic: Topic) -> None:
    """More keys than are looked up one by one: the hull of the head's keys prunes, the join decides."""
    with_tail(topic, 3)
    start = topic.segments()[-1].last_offset + 1
    many = [Record(start + n, b"k%03d!%d" % (n % 20, n), VALUE) for n in range(1_200)]
    topic.land([*many, Record(start + len(many), b"k007", VALUE)])
    before = paths(topic)
    topic.clean("full", force=True)
    assert 7 not in topic.offsets()
    assert {path for base, path in paths(topic).items() if base in (20, 40)} == {before[20], before[40]}


def test_segments_of_which_little_is_left_are_put_together(topic: Topic) -> None:
    """A task reads as much as fills a segment: packed by what it reads, it would write a tenth of one."""
    segments, value = 10, 400
    noise = np.random.default_rng(1)
    records = [Record(n, b"k%03d" % n, noise.bytes(value)) for n in range(segments * PER_SEGMENT)]
    batches = [records[start : start + PER_SEGMENT] for start in range(0, len(records), PER_SEGMENT)]
    topic.create(segment_bytes=str(value * PER_SEGMENT * 5 // 3)).land(*batches)
    topic.clean("full")
    assert topic.levels() == [3] * segments
    end = len(records)
    updated = [one.key for one in records if one.offset % PER_SEGMENT > 1]
    topic.land(*([Record(end + n, updated[n], noise.bytes(value)) for n in part] for part in halves(len(updated))))
    topic.clean("full", force=True)
    of_tail = [one for one in topic.segments() if one.base_offset < end]
    assert len(of_tail) <= segments / 4
    assert topic.offsets() == [n for n in range(end) if n % PER_SEGMENT < 2] + [end + n for n in range(len(updated))]


def halves(count: int) -> tuple[range, range]:
    return range(count // 2), range(count // 2, count)
