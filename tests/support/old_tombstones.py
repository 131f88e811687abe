"""A topic under `firn.erase.max.ms`, its old tombstones, and what care requests of them."""

import pyarrow as pa

from pipeline.care import Garbage, Part, care_table
from pipeline.erase.digests import digests_of
from pipeline.erase.requests import Erasures
from tests.support.erasing import erasures
from tests.support.topics import DAY, NOW, Record, Topic

MAX = 40 * DAY
OLD = NOW - 13 * DAY
"""A tombstone with this timestamp is old: a quarter of the time has passed, and a step."""
YOUNG = NOW - 9 * DAY
PARTS = frozenset({Part.REQUESTS})


def record(offset: int, key: bytes, value: bytes | None = None, at: int = OLD, partition: int = 0) -> Record:
    return Record(offset, key, value, partition, at)


def care(topic: Topic, now: int = NOW, *, remove: bool = True) -> list[Garbage]:
    return care_table(topic.lake, topic.table, now, remove=remove, parts=PARTS)


def asked(topic: Topic) -> list[tuple[int, int, int, int]]:
    """Id, partition, offset and deadline of every row."""
    return [(one.id, one.partition, one.below, one.deadline_ms) for one in erasures(topic).requests]


def digest(known: Erasures, key: bytes) -> bytes:
    (found,) = digests_of(pa.array([key], pa.large_binary()), known.secret)
    assert found
    return found
