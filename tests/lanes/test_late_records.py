"""Records that turn up below what was cleaned never bring a deleted value back (C7, C9)."""

from firnlake.job.collect import discard
from firnlake.job.lane import Lane
from tests.support.erasing import request
from tests.support.publishing import publish
from tests.support.topics import DAY, NOW, Topic, updates

HISTORY = updates("a=1", "b=1", "a=", "c=1")


def deleted(topic: Topic) -> Topic:
    """A topic whose key ``a`` was deleted, and whose tombstone has gone."""
    topic.land(HISTORY).clean("full")
    (counts,) = topic.clean("full", NOW + DAY, force=True)
    assert (counts.tombstones_removed, topic.offsets()) == (1, [1, 3])
    return topic


def test_c9_a_removed_tombstone_is_kept_on_a_branch(topic: Topic) -> None:
    (row,) = deleted(topic).removed_tombstones()
    assert (row["offset"], row["key"], row["value"]) == (2, b"a", None)


def test_c9_a_value_delivered_again_does_not_come_back(topic: Topic) -> None:
    deleted(topic).land(HISTORY[:1])
    (plan,) = topic.plans("full", NOW + DAY)
    assert plan.reason == "1 segment with offsets below a removed tombstone"
    (counts,) = topic.clean("full", NOW + DAY)
    assert topic.offsets() == [1, 2, 3]
    assert topic.horizons() == {2: NOW + 2 * DAY}
    assert (counts.records_in, counts.restored, counts.superseded) == (4, 1, 1)
    assert topic.plans("full", NOW + DAY) == []
    topic.clean("full", NOW + 2 * DAY, force=True)
    assert topic.offsets() == [1, 3]


def test_c9_also_after_it_was_merged_and_cleaned_with_others(topic: Topic) -> None:
    deleted(topic).land(HISTORY[:1], updates("d=1", start=4), updates("e=1", start=5), updates("f=1", start=6))
    for lane in ("merge", "clean", "full"):
        topic.clean(lane, NOW + DAY, force=True)
    assert {record.key for record in topic.seen() if record.value is not None} == {b"b", b"c", b"d", b"e", b"f"}
    assert 0 not in topic.offsets()


def test_c3_a_late_record_of_another_key_stays(topic: Topic) -> None:
    topic.land(updates("b=1", "a=1", "a=", "c=1", start=10)).clean("full")
    topic.clean("full", NOW + DAY, force=True)
    topic.land(updates("x=late", start=3)).clean("full", NOW + DAY)
    assert topic.offsets() == [3, 10, 13]


def test_c9_removed_twice_and_needed_a_third_time(topic: Topic) -> None:
    deleted(topic)
    for times in (1, 2):
        topic.append(HISTORY[:1])
        topic.clean("full", NOW + times * DAY)
        topic.clean("full", NOW + (times + 1) * DAY, force=True)
        assert topic.offsets() == [1, 3]
    assert [row["offset"] for row in topic.removed_tombstones()] == [2, 2, 2]
    topic.append(HISTORY[:1])
    topic.clean("full", NOW + 3 * DAY)
    assert topic.offsets() == [1, 2, 3]


def test_a_new_value_is_not_deleted_by_an_old_tombstone(topic: Topic) -> None:
    deleted(topic).land(updates("a=new", start=4), HISTORY[:1]).clean("full", NOW + DAY)
    assert topic.offsets() == [1, 3, 4]


def test_c25_a_plan_that_is_given_up_removes_no_tombstone(topic: Topic) -> None:
    topic.land(HISTORY).clean("full")
    (name,) = topic.validated(topic.plans("full", NOW + DAY, force=True))
    discard(topic.lake, name)
    assert (topic.removed_tombstones(), topic.offsets()) == ([], [1, 2, 3])


def test_c25_published_twice_is_remembered_once(topic: Topic) -> None:
    topic.land(HISTORY).clean("full")
    (name,) = topic.validated(topic.plans("full", NOW + DAY, force=True))
    publish(topic.lake, name)
    assert publish(topic.lake, name).repeated
    assert [row["offset"] for row in topic.removed_tombstones()] == [2]


def test_c9_main_and_the_branch_move_with_one_commit(topic: Topic) -> None:
    """No reader sees a tombstone on neither side: the table has never been without it."""
    topic.land(HISTORY).clean("full")
    before = topic.lake.table(topic.table).metadata_location
    topic.clean("full", NOW + DAY, force=True)
    table = topic.lake.table(topic.table)
    assert [entry.metadata_file for entry in table.metadata.metadata_log][-1] == before
    assert (topic.offsets(), len(topic.removed_tombstones())) == ([1, 3], 1)


def test_a_topic_in_order_reads_no_removed_tombstones(topic: Topic) -> None:
    deleted(topic).land(updates("d=1", "e=1", start=4))
    (plan,) = topic.plans("full", NOW + DAY)
    assert (plan.lane, plan.removed_tombstones) == (Lane.FULL, ())


def test_c30_a_requested_key_that_lands_late_is_read_before_it_is_cleaned(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("c=1", start=5))
    request(topic, b"x")
    topic.clean(Lane.ERASE, force=True)
    topic.append(updates("x=1", start=3))
    for lane in (Lane.FULL, Lane.ERASE, Lane.FULL):
        topic.clean(lane, force=True)
    assert topic.offsets() == [0, 1, 5]
