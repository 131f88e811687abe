"""Admission of plans to one run of a lane: in the order of work, as many as the table's budgets allow."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pipeline.plan.job import Job, Packing
from pipeline.plan.plan import Plan
from pipeline.policy import Policy


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
