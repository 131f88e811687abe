"""What arrives in a table, as far as the metadata of its landed segments tell."""

from typing import TypedDict

from pipeline.segments import Segments
from pipeline.segments.segment import LANDED, TAIL


class Observed(TypedDict, total=False):
    """Fields of ``Workload``; what can't be told is missing."""

    partitions: int
    rate: float
    records_per_segment: int
    record_bytes: int
    keys: int


def observed(segments: Segments) -> Observed:
    """The arrivals of a table, from the records that are still at level 0 and the keys of its tail.

    The rate is that of the topic partitions with landed segments, between their oldest and newest timestamp.
    """
    found = Observed()
    if segments.by_partition:
        found["partitions"] = len(segments.by_partition)
    landed = [one for one in segments if one.level == LANDED and one.records]
    if landed:
        records = sum(one.records for one in landed)
        found["records_per_segment"] = max(1, round(records / len(landed)))
        found["record_bytes"] = max(1, round(sum(one.bytes for one in landed) / records))
        span_ms = max(one.newest_ms for one in landed) - min(one.oldest_ms for one in landed)
        if span_ms > 0:
            found["rate"] = 1000 * records / span_ms
    tails = [sum(one.records for one in own if one.level == TAIL) for own in segments.by_partition.values()]
    if any(tails):
        # A tail holds one record per key.
        found["keys"] = max(1, round(sum(tails) / sum(1 for tail in tails if tail)))
    return found
