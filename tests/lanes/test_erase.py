"""C30: lane `erase` takes the records of requested keys out of every segment, and changes nothing else."""

import hashlib

import pytest

from firnlake.errors import RefusedError
from firnlake.job.lane import Lane
from firnlake.publish.publish_jobs import publish_stages
from firnlake.run import run
from infra.foreign.files import on_disk
from tests.support.erasing import HOUR, erasures, location_of, progress, request
from tests.support.lakes import snapshot
from tests.support.topics import NOW, Record, Topic, updates


def test_c30_a_key_goes_from_every_level_and_everything_else_stays(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "c=1")).clean("full")
    topic.land(
        updates("a=2", "d=1", start=3), updates("b=2", start=5), updates("a=3", start=6), updates("e=1", start=7)
    )
    topic.clean("merge")
    topic.land(updates("a=4", "f=1", start=8))
    before, levels = topic.seen(), topic.levels()
    request(topic, b"a")
    (counts,) = topic.clean("erase", force=True)
    assert topic.seen() == [record for record in before if record.key != b"a"]
    assert topic.levels() == levels
    assert (counts.erased, counts.records_in, counts.records_out) == (4, len(before), len(before) - 4)
    assert progress(topic).before is None


def test_c30_only_segments_with_the_key_are_written_anew(topic: Topic) -> None:
    topic.land(updates("a=1"), updates("b=1", start=1), updates("c=1", start=2))
    before = {segment.path for segment in topic.segments()}
    request(topic, b"b")
    (counts,) = topic.clean("erase", force=True)
    left = {segment.path for segment in topic.segments()}
    assert (len(before - left), len(left - before)) == (1, 0)
    assert (counts.segments_in, counts.segments_out, counts.segments_in_place) == (1, 0, 2)


def test_c30_every_destroyed_file_is_told_with_its_checksum(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("a=2", "c=1", start=2))
    content = {one.path: on_disk(one.path).read_bytes() for one in topic.segments()}
    request(topic, b"a")
    topic.clean("erase", force=True)
    told = {one.path: one for one in erasures(topic).destroyed}
    assert told.keys() == content.keys()
    for path, one in told.items():
        assert (one.sha256, one.bytes, one.records) == (
            hashlib.sha256(content[path]).hexdigest(),
            len(content[path]),
            1,
        )
        assert one.snapshot_id == progress(topic).snapshot_id == snapshot(topic.lake, topic.table)


def test_c30_requests_are_served_together_after_a_while(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "c=1"))
    request(topic, b"a")
    request(topic, b"b", now=NOW + HOUR // 2)
    assert topic.plans("erase", NOW + HOUR - 1) == []
    topic.clean("erase", NOW + HOUR)
    assert [record.key for record in topic.seen()] == [b"c"]
    assert topic.plans("erase", NOW + 9 * HOUR) == []


def test_c30_a_request_with_little_time_waits_a_quarter_of_it(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    request(topic, b"a", within_ms=4_000)
    assert topic.plans("erase", NOW + 999) == []
    assert topic.plans("erase", NOW + 1_000) != []


def test_c30_a_key_that_nobody_knows_is_searched_for_once(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    before = topic.rows()
    request(topic, b"never seen")
    (counts,) = topic.clean("erase", force=True)
    assert (counts.erased, counts.segments_in, counts.segments_in_place) == (0, 0, 1)
    assert topic.rows() == before
    assert progress(topic).before is None
    assert topic.plans("erase", NOW + HOUR) == []


def test_c30_every_partition_is_searched(topic: Topic) -> None:
    topic.land([Record(0, b"a", b"1", 0), Record(0, b"a", b"1", 1), Record(1, b"b", b"1", 0), Record(1, b"b", b"1", 1)])
    request(topic, b"a")
    topic.clean("erase", force=True)
    assert [(record.partition, record.key) for part in (0, 1) for record in topic.seen(part)] == [(0, b"b"), (1, b"b")]


class TestLogEnd:
    """C4: the record with the highest offset stays, requested or not, until a newer one has landed."""

    def test_c4_the_log_end_stays_and_blocks(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1", "a=2"))
        request(topic, b"a")
        topic.clean("erase", force=True)
        assert topic.offsets() == [1, 2]
        assert (progress(topic).before, progress(topic).log_end_kept) == (2, True)
        assert topic.plans("erase", NOW + HOUR, force=True) == []

    def test_c4_it_goes_when_a_newer_record_has_landed(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1", "a=2"))
        request(topic, b"a")
        topic.clean("erase", force=True)
        topic.land(updates("c=1", start=3))
        topic.clean("erase")
        assert topic.offsets() == [1, 3]
        assert (progress(topic).before, progress(topic).log_end_kept) == (None, False)

    def test_c30_what_lands_under_the_key_after_the_request_is_new_data(self, topic: Topic) -> None:
        topic.land(updates("a=1", "b=1"))
        request(topic, b"a")
        topic.land(updates("a=2", "c=1", start=2))
        topic.clean("erase", force=True)
        assert topic.offsets() == [1, 2, 3]


class TestLateArrivals:
    """C30: a record that lands later with a lower offset goes as well, for ever."""

    def test_c30_it_goes_at_once(self, topic: Topic) -> None:
        topic.land(updates("b=1", "c=1", start=5))
        request(topic, b"a", b"b")
        topic.clean("erase", force=True)
        topic.append(updates("a=1", "d=1", start=1))
        assert [plan.lane for plan in topic.plans("erase")] == [Lane.ERASE]
        topic.clean("erase")
        assert topic.offsets() == [2, 6]
        assert topic.plans("erase", NOW + HOUR, force=True) == []

    def test_c30_no_other_lane_takes_it_first(self, topic: Topic) -> None:
        topic.land(updates("b=1", "c=1", start=5))
        request(topic, b"a")
        topic.clean("erase", force=True)
        topic.append(updates("a=1", "d=1", start=1))
        topic.append(updates("e=1", start=3))
        assert [plan for lane in ("merge", "clean", "full") for plan in topic.plans(lane, force=True)] == []
        topic.run(force=True, until_idle=True)
        assert b"a" not in {record.key for record in topic.seen()}

    def test_c30_a_merge_that_was_made_before_the_search_was_published_is_made_again(self, topic: Topic) -> None:
        topic.land(updates("b=1", "c=1", start=5))
        request(topic, b"a")
        (search,) = topic.plans("erase", force=True)
        topic.append(updates("a=1", "d=1", start=1))
        topic.append(updates("e=1", start=3))
        (merge,) = topic.plans("merge", force=True)
        stages = topic.validated([search]) + topic.validated([merge])
        done = publish_stages(topic.lake, {stage: [] for stage in stages})
        assert [one.plan_id for one in done.publications] == [search.id]
        assert "published a search for keys to erase; plan again" in str(done.failures)
        topic.run(force=True, until_idle=True)
        assert topic.offsets() == [2, 3, 5, 6]

    def test_c30_what_a_merge_made_of_searched_segments_is_searched(self, topic: Topic) -> None:
        topic.land(updates("b=1"), updates("c=1", start=1), updates("d=1", start=2))
        request(topic, b"a")
        topic.clean("erase", force=True)
        topic.clean("merge", force=True)
        topic.clean("full", force=True)
        assert topic.plans("erase", NOW + HOUR, force=True) == []


class TestBlocked:
    """C30: what is in the way of one record is in the way of all past it, so that no older value shows up."""

    def test_c11_what_is_too_young_waits(self, topic: Topic) -> None:
        topic.create(min_compaction_lag_ms="60000")
        topic.land(updates("a=1", "b=1"))
        topic.land([Record(2, b"a", b"2", timestamp_ms=NOW), Record(3, b"c", b"1", timestamp_ms=NOW)])
        request(topic, b"a")
        topic.clean("erase", force=True)
        assert topic.offsets() == [1, 2, 3]
        assert progress(topic).before == 2
        assert topic.plans("erase", NOW + 59_999, force=True) == []
        topic.clean("erase", NOW + 60_000)
        assert topic.offsets() == [1, 3]

    def test_c11_a_tombstone_past_what_is_too_young_stays(self, topic: Topic) -> None:
        """Were it erased, the younger segment's value of a lower offset would be there again."""
        topic.create(min_compaction_lag_ms="60000")
        topic.append([Record(0, b"a", b"0"), Record(5, b"a", None)])
        topic.append([Record(3, b"a", b"1", timestamp_ms=NOW), Record(9, b"c", b"1", timestamp_ms=NOW)])
        request(topic, b"a")
        topic.clean("erase", force=True)
        assert topic.offsets() == [3, 5, 9]
        topic.clean("erase", NOW + 60_000)
        assert topic.offsets() == [9]

    def test_c11_nothing_is_done_where_all_is_too_young(self, topic: Topic) -> None:
        topic.create(min_compaction_lag_ms="60000")
        topic.land([Record(0, b"a", b"0", timestamp_ms=NOW), Record(1, b"b", b"0", timestamp_ms=NOW)])
        request(topic, b"a")
        assert topic.plans("erase", force=True) == []


def test_c19_a_topic_that_is_not_compacted_is_searched_too(topic: Topic) -> None:
    topic.create(cleanup_policy="delete")
    topic.land(updates("a=1", "a=2", "b=1"))
    request(topic, b"a")
    topic.clean("erase", force=True)
    assert topic.offsets() == [2]


def test_c1_a_segment_that_is_listed_twice_loses_both_copies(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "c=1"))
    (segment,) = topic.segments()
    topic.lake.table(topic.table).add_files([segment.path], check_duplicate_files=False)
    request(topic, b"a")
    (counts,) = topic.clean("erase", force=True)
    assert topic.offsets() == [1, 1, 2, 2]
    assert (counts.erased, counts.records_in) == (2, 6)


def test_c12_an_erasure_is_no_full_clean(topic: Topic) -> None:
    """Neither its interval nor its look at tombstones counts from it."""
    topic.create(delete_retention_ms="1000", tombstone_fraction="0")
    topic.land([*updates("a=1", "b=1"), Record(2, b"b", None), *updates("c=1", start=3)])
    topic.clean("full")
    request(topic, b"a")
    topic.clean("erase", NOW + 5_000, force=True)
    topic.clean("full", NOW + 6_000)
    assert topic.offsets() == [3]


@pytest.mark.parametrize("level", [2, 3])
def test_c16_a_strangers_tail_is_not_trusted_because_it_was_searched(topic: Topic, level: int) -> None:
    topic.create().append([*updates("a=1", "b=1", "b=2", "c=1")], level=level)
    request(topic, b"a")
    topic.clean("erase", force=True)
    assert topic.levels() == [2]
    topic.land(updates("d=1", start=4))
    topic.clean("full", force=True)
    assert topic.offsets() == [2, 3, 4]


def test_c20_requests_that_are_gone_stop_no_other_lane(topic: Topic) -> None:
    topic.land(updates("a=1"), updates("a=2", start=1))
    request(topic, b"a")
    location = location_of(topic.lake.table(topic.table))
    assert location is not None
    on_disk(location).unlink()
    done = {one.lane: one for one in run(topic.lake, topic.table, NOW, topic.engines, force=True)}
    assert "is gone; allowed: the file as Firn wrote it" in str(done[Lane.ERASE].failures)
    assert len(done[Lane.FULL].publications) == 1
    with pytest.raises(RefusedError, match="is gone"):
        topic.plans("erase", force=True)
