"""The order of work, in which a run takes plans as far as the table's budgets allow.

1. Overdue plans come first, and among them the plan that has been overdue longest. A plan is overdue if its topic
   partition is past ``max.compaction.lag.ms``, if it has records below a removed tombstone (readers may see a deleted
   value, C9), or if it has been due for longer than ``PATIENCE_MS``. Time before the lane's last work on the topic
   partition does not count. So no plan starves: an overdue plan waits only for plans that were overdue earlier, and
   once the lane has worked on a topic partition, its next plan moves to the end of the queue.
2. Among all other plans, the plan whose topic partition has the highest dirty ratio comes first (C12).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from firnlake.lanes import Lane
from firnlake.lanes.answer import Work
from firnlake.lanes.look import since
from firnlake.table.policy import DAY_MS
from firnlake.table.segment import TAIL, Segment
from firnlake.table.state import State

PATIENCE_MS: Final = DAY_MS
"""Milliseconds after which a plan that is due, but has had no room in any run, is overdue."""


class Rank(NamedTuple):
    """Rank of a plan; the plan with the smallest rank comes first."""

    in_time: bool
    overdue_since_ms: int
    """Epoch milliseconds; 0 for a plan that is not overdue."""
    minus_dirty_ratio: float
    topic: str
    partition: int


def rank(lane: Lane, work: Work, state: State) -> Rank:
    """The rank of the plan for ``work`` of ``lane`` in ``state``."""
    limit = _limit_ms(lane, work, state)
    overdue = limit < state.now_ms
    return Rank(not overdue, limit if overdue else 0, -state.dirty_ratio, *state.topic_partition)


def _limit_ms(lane: Lane, work: Work, state: State) -> int:
    """The time (epoch milliseconds) after which ``work`` is overdue; the clock of ``state`` or later if it is not."""
    last = _last_work_ms(state, work.inputs)
    limits = []
    # To look at earlier clocks takes time, and can't find a plan overdue whose oldest segment came within the patience.
    if max(min(segment.arrived_ms for segment in state.segments), last) + PATIENCE_MS < state.now_ms:
        limits.append(max(since(lane, state, work.inputs), last) + PATIENCE_MS)
    if state.cleanable:
        oldest = min(segment.oldest_ms for segment in state.cleanable)
        limits.append(max(oldest + state.policy.max_compaction_lag_ms, last))
    if state.late:
        limits.append(max(min(segment.arrived_ms for segment in state.late), last))
    return min(limits, default=state.now_ms)


def _last_work_ms(state: State, inputs: Sequence[Segment]) -> int:
    """The time of Firn's newest commit (epoch milliseconds) above the levels of the head's ``inputs``; 0 if none."""
    highest = max((segment.level for segment in inputs if segment.level != TAIL), default=0)
    worked = (segment for segment in state.segments if segment.level > highest and segment.by_firn)
    return max((segment.committed_ms for segment in worked if segment.committed_ms is not None), default=0)
