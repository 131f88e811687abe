"""The arrivals in a table, derived from the metadata of its segments."""

from collections.abc import Sequence
from typing import TypedDict

from pipeline.sense import PartitionState
from pipeline.sense.arrivals import arrivals_of


class Observed(TypedDict, total=False):
    """Fields of ``Workload``; a field that can't be derived is missing."""

    partitions: int
    rate: float
    records_per_segment: int
    record_bytes: int
    keys: int


def observed(states: Sequence[PartitionState]) -> Observed:
    """The arrivals in a table with these topic partitions: the mean of those with figures stands for all.

    The number of keys is the number of records in the tail, which holds one per key.
    """
    result = Observed()
    if states:
        result["partitions"] = len(states)
    telling = [arrivals for state in states if (arrivals := arrivals_of(state))]
    segments = sum(arrivals.segments for arrivals in telling)
    records = sum(arrivals.records for arrivals in telling)
    if segments and records:
        result["rate"] = records / len(telling) * len(states)
        result["records_per_segment"] = max(1, round(records / segments))
        result["record_bytes"] = max(1, round(sum(arrivals.bytes for arrivals in telling) / records))
    tails = [records for state in states if (records := sum(one.records for one in state.tail))]
    if tails:
        result["keys"] = round(sum(tails) / len(tails))
    return result
