"""States of a topic partition, made of segments."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from firnlake.job.lane import Lane
from firnlake.lanes.due import Due, due
from firnlake.table.partition import PartitionState
from firnlake.table.policies import Policies
from firnlake.table.policy import Policy
from firnlake.table.segment import LANDED, Segment, Segments
from firnlake.table.topic_partition import TopicPartition
from firnlake.table.transactions import NO_TRANSACTIONS, Transactions
from tests.support.lakes import NOW, TOPIC_PARTITION, segment


def state(*segments: Segment, **policy: Any) -> PartitionState:
    ordered = tuple(sorted(segments, key=lambda one: one.order))
    return PartitionState(TOPIC_PARTITION, ordered, Policy(**policy), NOW)


def series(count: int, level: int = LANDED, start: int = 0, **facts: Any) -> list[Segment]:
    """``count`` segments of ten records each, one after the other."""
    bases = range(start, start + 10 * count, 10)
    return [segment(f"L{level}-{base:05}", base, base + 9, level, **facts) for base in bases]


def names(segments: tuple[Segment, ...]) -> list[str]:
    return [one.path for one in segments]


def of(lane: Lane, at: PartitionState, force: bool = False) -> Due:
    found = due(lane, at, force)
    assert found is not None
    return found


def sense(
    segments: Segments,
    policies: Policies,
    now_ms: int,
    removed_tombstones: Mapping[TopicPartition, tuple[Segment, ...]] = MappingProxyType({}),
    transactions: Mapping[TopicPartition, Transactions] = MappingProxyType({}),
) -> list[PartitionState]:
    """The state of every topic partition, the one with the highest dirty ratio first (C12).

    ``removed_tombstones`` holds the segments of removed tombstones by topic partition; ``transactions`` is the result
    of ``transactions_of`` for the same ``segments``.
    """
    states = [
        PartitionState(
            topic_partition,
            own,
            policies.of(topic_partition.topic),
            now_ms,
            segments.strays_of(topic_partition),
            removed_tombstones.get(topic_partition, ()),
            transactions.get(topic_partition, NO_TRANSACTIONS),
        )
        for topic_partition, own in segments.by_partition.items()
    ]
    return sorted(states, key=lambda state: (-state.dirty_ratio, state.topic_partition))
