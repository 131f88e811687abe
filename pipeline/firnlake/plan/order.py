"""The order of work: ranks the plans of a run, and admits as many in that order as the table's budgets allow.

1. Overdue plans, the longest overdue first: topic partitions past ``max.compaction.lag.ms``, those with records below
   a removed tombstone (readers may see a deleted value, C9), and those due for longer than ``run.max.wait.ms``. Time
   before the lane's last work on a topic partition does not count. So nothing starves: an overdue plan waits only for
   plans that were overdue earlier, and a topic partition that was worked on goes to the back.
2. The filthiest (C12).
3. The most bytes reclaimed per byte rewritten.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from firnlake.job.job import Job, Packing
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.plan.forecast import arrived_ms, due_since
from firnlake.table.partition import PartitionState
from firnlake.table.policy import Policy
from firnlake.table.segment import MERGED, RUN, TAIL, Segment

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


@dataclass(frozen=True)
class RunBudget:
    """Budget of all plans of one run of a lane together: file bytes, records, keys of the head, and jobs."""

    bytes: int
    records: int
    keys: int
    jobs: int

    @classmethod
    def of(cls, policy: Policy) -> "RunBudget":
        """The budget of a run under ``policy``; it is the table's, as topics have none of their own."""
        return cls(policy.run_max_bytes, policy.run_max_records, policy.run_max_keys, policy.run_max_jobs)


@dataclass(frozen=True)
class Candidate:
    """A due plan, and the number of keys of the head that it has to compare."""

    plan: Plan
    keys: int


@dataclass(frozen=True)
class Postponed:
    """A due plan without room in this run."""

    plan: Plan
    reason: str
    too_large: bool
    """True when it fits into no run at all."""

    def __str__(self) -> str:
        """Message: the plan that waits, the budget it waits for, and what ends the wait."""
        until = "until it is allowed more" if self.too_large else "for the next run"
        return f"{self.plan.topic_partition} {self.plan.lane} waits {until}: it {self.reason}"


@dataclass(frozen=True)
class Admission:
    """The plans that a run takes, in the order of work, their jobs, and the plans that wait."""

    plans: list[Plan] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    postponed: list[Postponed] = field(default_factory=list)


def admit(candidates: Iterable[Candidate], budget: RunBudget) -> Admission:
    """Take ``candidates``, which are in the order of work, as long as they fit ``budget``.

    One that does not fit the rest of the budget waits while smaller ones pass it: the next run has room for it if it
    comes first there. One larger than the whole budget is never taken (C17).
    """
    taken = Admission()
    packing = Packing()
    left = budget
    for candidate in candidates:
        plan = candidate.plan
        needed = RunBudget(plan.bytes, plan.records, candidate.keys, 0 if packing.has_room(plan) else 1)
        reason = _over(needed, left, budget)
        if reason:
            too_large = _over(replace(needed, jobs=1), budget, budget) is not None
            taken.postponed.append(Postponed(plan, reason, too_large))
            continue
        packing.add(plan)
        taken.plans.append(plan)
        left = RunBudget(
            left.bytes - needed.bytes,
            left.records - needed.records,
            left.keys - needed.keys,
            left.jobs - needed.jobs,
        )
    return replace(taken, jobs=packing.jobs)


def _over(needed: RunBudget, left: RunBudget, budget: RunBudget) -> str | None:
    """The part of the ``budget`` with too little ``left`` for ``needed``; None when there is enough."""
    for name, unit in (("bytes", "bytes"), ("records", "records"), ("keys", "keys"), ("jobs", "more jobs")):
        wanted, available, whole = (getattr(one, name) for one in (needed, left, budget))
        if wanted > available:
            return f"needs {wanted} {unit}; available: {available} of {whole} (firn.run.max.{name})"
    return None
