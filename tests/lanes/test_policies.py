"""A topic's policy is changed while records go on landing, both ways (C5, C19)."""

from firnlake.job.lane import Lane
from tests.support.publishing import retain
from tests.support.topics import DAY, NOW, Record, Topic, updates


def change(topic: Topic, **properties: str) -> None:
    """Change ``firn.`` properties online, underscores standing for dots."""
    with topic.lake.table(topic.table).transaction() as transaction:
        transaction.set_properties({f"firn.{name.replace('_', '.')}": value for name, value in properties.items()})


def test_c5_c19_from_delete_to_compact(topic: Topic) -> None:
    """Under delete a record without a key is ordinary; the first cleaning after the change quarantines it."""
    topic.create(cleanup_policy="delete", null_keys="fail")
    topic.land(updates("a=1", "b=1"), [Record(2, None, b"no key")], updates("a=2", start=3), updates("a=3", start=4))
    assert [len(done.publications) for done in topic.run(force=True)] == [
        int(lane is Lane.MERGE) for lane in Lane
    ]  # the copy only: records without a key and superseded ones are all there
    assert topic.offsets() == [0, 1, 2, 3, 4]

    change(topic, cleanup_policy="compact", null_keys="quarantine")
    topic.run(until_idle=True)
    assert topic.offsets() == [1, 4]
    assert topic.levels() == [3]
    assert [row["offset"] for row in topic.quarantined()] == [2]


def test_c19_from_compact_to_delete(topic: Topic) -> None:
    """The tail's segments are segments like any others: retention drops them, and duplicates land undisturbed."""
    topic.create().land(updates("a=1", "b=1", "a=2")).clean("full")
    change(topic, cleanup_policy="delete", retention_ms=str(2 * DAY))
    topic.land([Record(3, b"b", b"2", timestamp_ms=NOW)], [Record(4, b"b", b"3", timestamp_ms=NOW)])
    topic.run(force=True)
    assert topic.levels() == [3, 1]
    assert topic.offsets() == [1, 2, 3, 4], "nothing is superseded and nothing is two days old"
    (plan,) = topic.plans("retain", NOW + DAY + 1)
    assert {segment.level for segment in plan.inputs} == {3}
    retain(topic.lake, plan)
    assert topic.offsets() == [3, 4]


def test_c19_compact_delete_cleans_what_retention_leaves(topic: Topic) -> None:
    """The newest record of a key goes with its segment, and its older ones do not come back."""
    topic.create(cleanup_policy="compact,delete", retention_ms=str(2 * DAY))
    topic.land(updates("gone=1", "stays=1", "gone=2"))
    topic.land([Record(3, b"stays", b"2", timestamp_ms=NOW), Record(4, b"z", b"1", timestamp_ms=NOW)])
    topic.run(NOW + DAY + 1, force=True)
    assert topic.offsets() == [3, 4]
    assert topic.levels() == [3]
