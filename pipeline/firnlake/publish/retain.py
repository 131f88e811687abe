"""Publishes plans of lane `retain` (C19): the commit only removes files from the table, and no data file is read."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.errors import ConflictError, FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit
from firnlake.iceberg.manifests import Manifests
from firnlake.job.inputs import CheckedInputs
from firnlake.job.job import Job
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.lanes.retention import retention
from firnlake.publish.attempts import PublishResult, commit, repeated
from firnlake.table.arrays import Segments
from firnlake.table.policy import Policies
from firnlake.table.published_plans import VALIDATION, RecordCounts, published
from firnlake.table.segments import read
from firnlake.table.state import State
from firnlake.table.summaries import summary

Judge: TypeAlias = Callable[
    [Lake, Table, Sequence[Plan], Mapping[str, RecordCounts]], tuple[Mapping[str, FirnError], str]
]
"""What judges plans of the lane before they are published: `validate.retention.refused_drops`."""


def retain_job(lake: Lake, job: Job, judge: Judge) -> PublishResult:
    """Drop the inputs of the plans of ``job`` with one commit, unless ``judge`` refuses them or the job was published
    before (C25).

    The result has a ConflictError for each plan that no longer fits the table, because an input is gone, an older
    record landed, or the policy now keeps an input; and a RefusedError for each plan that fails validation. Raises
    RefusedError for a plan of another lane or table, and OutcomeUnknownError when the catalog did not report the
    commit's outcome.
    """
    for plan in job:
        plan.of_lane(Lane.RETAIN)
    target = lake.table(job.table)
    before = published(target, job.id)
    if before is not None:
        return repeated(target, job.id, before, [plan.id for plan in job])
    counts = {plan.id: _counts_of(plan) for plan in job}
    unfit = _Dropping(job, counts).conflicts(target, counts, Manifests(target.io))
    refused, validation = judge(lake, target, [one for one in job if one.id not in unfit], counts)
    failures = {**unfit, **refused}
    fit = {plan_id: own for plan_id, own in counts.items() if plan_id not in failures}
    done = commit(lake, target, _Dropping(job, fit, validation), fit)
    return PublishResult(done.publications, {**failures, **done.failures})


@dataclass(frozen=True)
class _Dropping:
    """The plans of a job of lane ``retain``, as the work of a commit."""

    job: Job
    counts: Mapping[str, RecordCounts]
    validation: str = ""
    """Name of Great Expectations' run that judged the plans; empty before that."""

    @property
    def table(self) -> str:
        return self.job.table

    @property
    def job_id(self) -> str:
        return self.job.id

    def prepare(self, target: Table, plans: Collection[str]) -> Commit:
        chosen = self._chosen(plans)
        removed = [segment.path for plan in chosen for segment in plan.inputs]
        told = summary(target, self.job_id, chosen, self.counts) | {VALIDATION: self.validation}
        return Commit(target, [(MAIN_BRANCH, Change(removed=removed, summary=told))])

    def conflicts(self, current: Table, plans: Collection[str], manifests: Manifests) -> Mapping[str, ConflictError]:
        chosen = self._chosen(plans)
        # Row-level deletes are no conflict: the records that they hide are dropped with their segment.
        problems = dict(CheckedInputs.find(current, chosen, manifests, row_deletes=True).conflicts)
        policies, segments = Policies.parse(self.table, current.properties), read(current, self.table, manifests)
        for plan in chosen:
            if plan.id not in problems and (problem := _problem(policies, segments, plan)):
                problems[plan.id] = ConflictError(f"plan {plan.id} ({plan.title}){problem}; plan again")
        return problems

    def _chosen(self, plans: Collection[str]) -> list[Plan]:
        return [plan for plan in self.job if plan.id in plans]


def _counts_of(plan: Plan) -> RecordCounts:
    """The record counts of ``plan``: every record of its inputs has expired (C24)."""
    return RecordCounts(
        records_in=plan.records,
        records_out=0,
        superseded=0,
        tombstones_removed=0,
        expired=plan.records,
        quarantined=0,
        bytes_in=plan.bytes,
        bytes_out=0,
        segments_in=len(plan.inputs),
        segments_out=0,
    ).check(f"plan {plan.id}")


def _problem(policies: Policies, segments: Segments, plan: Plan) -> str | None:
    """Why ``plan`` must not be published (the policy keeps an input, or an older segment would stay); None if it may.

    The check uses the time of the plan, because a segment never gets younger. It also makes sure that the log
    end stays (C4).
    """
    policy = policies.of(plan.topic)
    if policy.problem:
        return f": {policy.problem}"
    own = segments.by_partition.get(plan.topic_partition, ())
    strays = segments.strays_of(plan.topic_partition)
    past = retention(State(plan.topic_partition, own, policy, plan.now_ms, strays))
    may_go = {segment.path for segment in (past.dropped if past else ())}
    may_go |= {segment.path for segment in own if not segment.records}
    taken = {segment.path for segment in plan.inputs}
    if not taken <= may_go:
        why = past.kept if past else f"the policy of topic {plan.topic} is {policy.cleanup_policy}"
        return f": segment {min(taken - may_go)} has to stay now ({why})"
    end = max(segment.last_offset for segment in plan.inputs)
    for segment in own:
        if segment.path not in taken and segment.records and segment.base_offset <= end:
            return f" drops all records up to offset {end}, but segment {segment} with older offsets has landed since"
    return None
