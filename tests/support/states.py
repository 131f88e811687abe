"""States of a topic partition, made of segments."""

from typing import Any

from firnlake.job.lane import Lane
from firnlake.lanes.due import Due, due
from firnlake.table.partition import PartitionState
from firnlake.table.policy import Policy
from firnlake.table.segment import LANDED, Segment
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
