"""Drop the segments of plans of lane ``retain``: one commit that only removes files from a table (C19). No JVM.

There is no stage and no verdict: the lane reads and writes only metadata. In place of the verdict, the policy is
checked on the very snapshot that is committed on, so a plan is never older than the state that it changes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from pipeline.errors import ConflictError
from pipeline.history.commit_summary import summary
from pipeline.history.published_plans import published
from pipeline.history.record_counts import RecordCounts
from pipeline.lake import Lake
from pipeline.lake.manifests import Manifests
from pipeline.lake.snapshot_commit import Change, SnapshotCommit
from pipeline.plan import Job, Plan
from pipeline.policy import Policies
from pipeline.publish.optimistic_commit import Publication, PublishResult, commit, repeated
from pipeline.publish.throttle import Throttle
from pipeline.segments import Segments, read
from pipeline.sense import Lane, PartitionState, retention
from pipeline.staging.inputs import CheckedInputs


def retain(lake: Lake, plan: Plan) -> Publication:
    """Carry out one plan; like ``retain_job``, but raises the plan's failure."""
    return retain_job(lake, Job((plan,))).only()


def retain_job(lake: Lake, job: Job, throttle: Throttle | None = None) -> PublishResult:
    """Drop the inputs of the plans of ``job`` with one commit; plans that were carried out before are left alone (C25).
    Commits that belong together share a ``throttle``.

    Names the plans under which the table moved on, each with a ConflictError: an input is gone, an older record landed,
    or the policy now keeps an input. Raises RefusedError for a plan of another lane or table; OutcomeUnknownError when
    the catalog did not report the commit's outcome.
    """
    for plan in job:
        plan.of_lane(Lane.RETAIN)
    target = lake.table(job.table)
    before = published(target, job.id)
    if before is not None:
        return repeated(target, job.id, before, [plan.id for plan in job])
    counts = {plan.id: _counts_of(plan) for plan in job}
    return commit(lake, target, _Dropping(job, counts), counts, throttle or Throttle(lake))


@dataclass(frozen=True)
class _Dropping:
    """The plans of a job of lane ``retain``, as work for a commit."""

    job: Job
    counts: Mapping[str, RecordCounts]

    @property
    def table(self) -> str:
        return self.job.table

    @property
    def job_id(self) -> str:
        return self.job.id

    @property
    def planned_on(self) -> Collection[int]:
        return {plan.snapshot_id for plan in self.job}

    def prepare(self, target: Table, plans: Collection[str]) -> SnapshotCommit:
        chosen = self._chosen(plans)
        removed = [segment.path for plan in chosen for segment in plan.inputs]
        told = summary(target, self.job_id, chosen, self.counts)
        return SnapshotCommit(target, {MAIN_BRANCH: Change(removed=removed, summary=told)})

    def conflicts(self, current: Table, plans: Collection[str], manifests: Manifests) -> Mapping[str, ConflictError]:
        chosen = self._chosen(plans)
        # Records that row-level deletes removed go with their segment.
        problems = dict(CheckedInputs.find(current, chosen, manifests, row_deletes=True).conflicts)
        policies, segments = Policies.parse(self.table, current.properties), read(current, self.table, manifests)
        for plan in chosen:
            if plan.id not in problems and (problem := _problem(policies, segments, plan)):
                problems[plan.id] = ConflictError(f"plan {plan.id} ({plan.title}){problem}; plan again")
        return problems

    def _chosen(self, plans: Collection[str]) -> list[Plan]:
        return [plan for plan in self.job if plan.id in plans]


def _counts_of(plan: Plan) -> RecordCounts:
    """Every record of the inputs has expired (C24)."""
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
    """Reason why the current policy keeps an input in the current table, or an older segment would stay; else None.

    The clock is the plan's: time alone never makes a segment younger. The check includes that the log end stays (C4).
    """
    policy = policies.of(plan.topic)
    own = segments.by_partition.get(plan.topic_partition, ())
    strays = segments.strays_of(plan.topic_partition)
    past = retention(PartitionState(plan.topic_partition, own, policy, plan.now_ms, strays))
    may_go = {segment.path for segment in (past.dropped if past else ())}
    may_go |= {segment.path for segment in own if not segment.records}
    taken = {segment.path for segment in plan.inputs}
    if not taken <= may_go:
        why = past.kept if past else f"the policy of topic {plan.topic} is {policy.cleanup_policy}"
        return f": segment {min(taken - may_go)} has to stay now ({why})"
    end = max(segment.last_offset for segment in plan.inputs)
    for segment in own:
        if segment.path not in taken and segment.records and segment.base_offset <= end:
            return f" drops everything up to offset {end}, but segment {segment} with older offsets has landed since"
    return None
