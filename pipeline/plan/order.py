"""The order of work: ranks the plans of a run, by metadata and the clock alone.

1. Overdue plans, the longest overdue first: topic partitions past ``max.compaction.lag.ms``, those with records below
   a removed tombstone (readers may see a deleted value, C9), and those due for longer than ``run.max.wait.ms``. Time
   before the lane's last work on a topic partition does not count. So nothing starves: an overdue plan waits only for
   plans that were overdue earlier, and a topic partition that was worked on goes to the back.
2. The filthiest (C12).
3. The most bytes reclaimed per byte rewritten.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pipeline.plan.plan import Plan
from pipeline.segments import Segment
from pipeline.segments.segment import MERGED, RUN, TAIL
from pipeline.sense import Lane, PartitionState
from pipeline.sense.due_since import arrived_ms, due_since

WRITES: Final = {Lane.MERGE: (MERGED, RUN), Lane.CLEAN: (RUN,), Lane.FULL: (TAIL,)}
"""Levels whose segments date a lane's last work on a topic partition. A cleaned run may have absorbed the merged
segments since. Runs do not date `tier`, because `clean` makes them as well: it always waits for as many new ones."""


class Rank(NamedTuple):
    """Rank of a plan; the smallest goes first."""

    in_time: bool
    overdue_since_ms: int
    """Epoch milliseconds; 0 for a plan that is not overdue."""
    minus_dirty_ratio: float
    minus_gain: float
    topic: str
    partition: int


def rank(plan: Plan, state: PartitionState) -> Rank:
    """The rank of ``plan``, which was made from ``state``."""
    inputs = inputs_of(plan, state)
    limit = _limit_ms(plan.lane, state, inputs)
    overdue = limit < state.now_ms
    return Rank(not overdue, limit if overdue else 0, -state.dirty_ratio, -gain(inputs), plan.topic, plan.partition)


def inputs_of(plan: Plan, state: PartitionState) -> list[Segment]:
    """The segments that ``plan`` takes of ``state``."""
    taken = {one.path for one in plan.inputs}
    return [segment for segment in state.segments if segment.path in taken]


def gain(inputs: Sequence[Segment]) -> float:
    """An estimate of the bytes that a cleaning of ``inputs`` reclaims per byte that it writes.

    A group holds one record per key: the tail is one, and each run. A landed or merged segment whose distinct keys are
    unknown counts as one too. The estimate assumes the best case, that the largest group has all the keys:
    (all records - those of the largest) / those of the largest, records being of equal size.
    """
    groups: dict[tuple[int, int | str], int] = {}
    for segment in inputs:
        group: int | str = segment.sequence_number if segment.level == RUN else segment.path
        key = (TAIL, 0) if segment.level == TAIL else (segment.level, group)
        groups[key] = groups.get(key, 0) + (segment.records if segment.keys is None else segment.keys)
    largest = max(groups.values(), default=0)
    return sum(segment.records for segment in inputs) / largest - 1 if largest else 0.0


def _limit_ms(lane: Lane, state: PartitionState, inputs: Sequence[Segment]) -> int:
    """Clock (epoch milliseconds) past which the plan is overdue."""
    policy = state.policy
    worked = [
        segment.committed_ms
        for segment in state.segments
        if segment.level in WRITES.get(lane, ()) and segment.by_firn and segment.committed_ms is not None
    ]
    last = max(worked, default=0)
    limits = [max(due_since(lane, state, inputs), last) + policy.run_max_wait_ms]
    if state.cleanable:
        oldest = min(segment.oldest_ms for segment in state.cleanable)
        limits.append(max(oldest + policy.max_compaction_lag_ms, last))
    if state.late:
        limits.append(max(min(map(arrived_ms, state.late)), last))
    return min(limits)
