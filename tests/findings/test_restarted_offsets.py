"""R2: a topic is deleted and made again, and its new records have lower offsets than the old ones."""

from firnlake import clock
from tests.support.topics import DAY, Record, Topic

NOW = clock.now_ms()


def values(topic: Topic, key: bytes) -> list[bytes | None]:
    """The values of ``key`` that readers see, in offset order."""
    return [record.value for record in topic.seen() if record.key == key]


def old(offset: int, key: bytes, value: bytes | None) -> Record:
    return Record(offset, key, value, timestamp_ms=NOW - 20 * DAY)


def new(offset: int, key: bytes, value: bytes) -> Record:
    return Record(offset, key, value, timestamp_ms=NOW - DAY)


def test_r2_records_of_a_topic_that_was_made_again_are_not_superseded(topic: Topic) -> None:
    topic.land([old(100, b"a", b"old"), old(101, b"b", b"old")]).clean("full", NOW - 10 * DAY, force=True)
    topic.land([new(0, b"a", b"new"), new(1, b"c", b"new")])
    topic.run(NOW, force=True)
    assert b"new" in values(topic, b"a")


def test_r2_records_of_a_topic_that_was_made_again_are_not_deleted_by_its_former_tombstones(topic: Topic) -> None:
    topic.land([old(100, b"a", b"old"), old(101, b"a", None), old(102, b"b", b"old")])
    for days in (10, 8):
        topic.clean("full", NOW - days * DAY, force=True)
    topic.land([new(0, b"a", b"new"), new(1, b"c", b"new")])
    topic.run(NOW, force=True)
    assert b"new" in values(topic, b"a")
