"""A topic that nobody writes to any more loses its tombstones all the same, and comes to rest (C12, C25)."""

from firnlake.job.lane import Lane
from tests.support.topics import DAY, NOW, Topic, updates


def work(topic: Topic, now: int) -> list[Lane]:
    """Run everything until nothing is due; the lanes that published."""
    return [done.lane for done in topic.run(now, until_idle=True) for _ in done.publications]


def test_c12_an_idle_topic_loses_its_tombstones(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "a=", "c=1"))
    assert work(topic, NOW) == [Lane.FULL]
    assert topic.offsets() == [1, 2, 3]
    assert work(topic, NOW + DAY - 1) == []
    assert work(topic, NOW + DAY) == [Lane.FULL]
    assert topic.offsets() == [1, 3]
    assert work(topic, NOW + 9 * DAY) == []


def test_c4_a_tombstone_at_the_log_end_is_not_asked_for_again_and_again(topic: Topic) -> None:
    topic.create(delete_retention_ms="0").land(updates("a=1", "b=1", "a="))
    assert work(topic, NOW) == [Lane.FULL]
    # Metadata does not tell that the one tombstone is the log end: it is looked at once.
    assert work(topic, NOW + 1) == [Lane.FULL]
    assert [work(topic, NOW + day * DAY) for day in range(1, 4)] == [[], [], []]
    assert topic.offsets() == [1, 2]


def test_c12_the_interval_cleans_what_the_ratio_never_would(topic: Topic) -> None:
    topic.create(min_cleanable_dirty_ratio="1")
    topic.land(updates(*(f"k{n}=1" for n in range(50)))).clean("full", force=True)
    topic.land(updates("k0=2", start=50))
    assert work(topic, NOW + DAY) == []
    assert work(topic, NOW + DAY + 1) == [Lane.FULL]
    assert topic.offsets() == [*range(1, 50), 50]
