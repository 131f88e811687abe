"""Requests to erase keys of a topic under test, and what is known of them."""

from pyiceberg.table import Table

from firnlake.iceberg.branches import ERASURES
from firnlake.iceberg.side_branches import file_of
from firnlake.lanes.erasure.ask import Asked, ask
from firnlake.lanes.erasure.memory import read_erasures
from firnlake.lanes.erasure.requests import Erasures, SearchProgress
from firnlake.table.topic_partition import TopicPartition
from tests.support.topics import DAY, NOW, Topic

HOUR = 3_600_000


def request(topic: Topic, *keys: bytes, now: int = NOW, within_ms: int = 30 * DAY) -> Asked:
    """Request that ``keys`` are erased from ``topic``."""
    return ask(topic.lake, topic.table, [(key,) for key in keys], now, topic.name, within_ms)


def location_of(table: Table) -> str | None:
    """Location of the file that holds the requests of ``table``; None when none was ever made."""
    head = table.snapshot_by_name(ERASURES)
    return None if head is None else file_of(table, head.snapshot_id)


def erasures(topic: Topic) -> Erasures:
    """What the table knows about erasures now."""
    return read_erasures(topic.lake.table(topic.table))


def progress(topic: Topic, partition: int = 0) -> SearchProgress:
    """How far a partition was searched; it must have been."""
    found = erasures(topic).progress_of(TopicPartition(topic.name, partition))
    assert found is not None
    return found
