"""What people requested of the topic partitions of a table (C30)."""

from collections.abc import Mapping

from pyiceberg.table import Table

from firnlake.lanes.erasure.look import requested_of
from firnlake.lanes.erasure.requests import erasures_of
from firnlake.table.arrays import Arrays
from firnlake.table.segment import Segment
from firnlake.table.state import Requested
from firnlake.table.topic_partition import TopicPartition


def requested_in(
    table: Table, arrays: Arrays, removed_tombstones: Mapping[TopicPartition, tuple[Segment, ...]]
) -> Mapping[TopicPartition, Requested]:
    """The requests of ``table`` by topic partition; ``arrays`` are its segments.

    Raises RefusedError when a request is lost or unreadable, UnavailableError when the store does not answer.
    """
    erasures = erasures_of(table)
    topics = {erasure.request.topic for erasure in erasures}
    requested: dict[TopicPartition, Requested] = {}
    for index in range(len(arrays.topic)) if topics else ():
        owner = arrays.topic_partition(index)
        if owner.topic in topics:
            beside = removed_tombstones.get(owner, ())
            asked = requested_of(erasures, owner, arrays.segments(index), beside)
            if asked:
                requested[owner] = asked
    return requested
