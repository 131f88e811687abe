"""A wrong value of one topic's property stops that topic only (C21)."""

from firnlake.clock import from_ms
from firnlake.inspect.status.gather import status_of
from tests.support.lakes import NOW, append, row
from tests.support.topics import Topic


def test_c21_a_wrong_value_of_one_topic_stops_that_topic_only(topic: Topic) -> None:
    """Not even the table's own retention applies: nobody knows what the topic's owner meant to keep."""
    topic.create(cleanup_policy="compact,delete", retention_ms="1000")
    old = from_ms(1_000)
    for offset in range(3):  # a segment each, because the one with the log end stays
        append(topic.lake, [row(offset, topic=name, timestamp=old) for name in ("a", "b")], topic.table)
    topic.lake.set_properties(topic.table, {"firn.topic.a.retention.ms": "7 years"})
    topic.run(until_idle=True, force=True)
    assert [one["offset"] for one in topic.rows() if one["topic"] == "a"] == [0, 1, 2]
    assert len(topic.rows()) < 6, "the other topic's old records go"
    status = status_of(topic.lake, topic.table, NOW)
    assert "property firn.topic.a.retention.ms is '7 years'; allowed: milliseconds" in str(status.waiting())
    topic.lake.set_properties(topic.table, {"firn.topic.a.retention.ms": "-1"})
    topic.run(until_idle=True, force=True)
    assert [one["offset"] for one in topic.rows() if one["topic"] == "a"] == [2]
