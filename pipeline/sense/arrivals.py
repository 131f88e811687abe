"""The rate of arrivals in a topic partition, from the segments that are still landed or merged."""

from collections.abc import Sequence

from pipeline.policy.feasibility import Arrivals
from pipeline.segments import Segment
from pipeline.segments.segment import LANDED, MERGED
from pipeline.sense.state import PartitionState

FEWEST = 2
"""Fewer segments tell no rate: when the first one began to arrive is not known."""


def arrivals_of(state: PartitionState) -> Arrivals | None:
    """Arrivals per second in ``state``'s topic partition up to its clock; None when its segments don't tell.

    Landed segments by the clocks of their commits, or by their newest timestamps where the table has forgotten them or
    they lie past the state's clock. Without two of them merged segments by their newest timestamps, each of which
    stands for ``merge.segments`` landed ones.
    """
    levels = ([one for one in state.head if one.level == level] for level in (LANDED, MERGED))
    landed, merged = levels
    by_commit = [one.committed_ms for one in landed if one.committed_ms is not None]
    if len(by_commit) == len(landed) >= FEWEST and max(by_commit) <= state.now_ms:
        return _rates(landed, by_commit, 1, state)
    if len(landed) >= FEWEST:
        return _rates(landed, [one.newest_ms for one in landed], 1, state)
    return _rates(merged, [one.newest_ms for one in merged], state.policy.merge_segments, state)


def _rates(landed: Sequence[Segment], clocks: Sequence[int], stands_for: int, state: PartitionState) -> Arrivals | None:
    """Everything but the first of ``landed``, over the time since that came."""
    if len(landed) < FEWEST or min(clocks) >= state.now_ms:
        return None
    first = clocks.index(min(clocks))
    later = [segment for place, segment in enumerate(landed) if place != first]
    seconds = (state.now_ms - clocks[first]) / 1000
    return Arrivals(
        segments=len(later) * stands_for / seconds,
        records=sum(segment.records for segment in later) / seconds,
        bytes=sum(segment.bytes for segment in later) / seconds,
        tail_bytes=state.tail_bytes,
    )
