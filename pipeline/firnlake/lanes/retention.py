"""Retention of a topic partition: drops its oldest segments as a whole, and reads no data file (C19).

The dropped segments are a prefix in offset order. The commit only removes files from the table, without a JVM.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.clock import exact_span, show_span
from firnlake.errors import ConflictError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit
from firnlake.iceberg.manifests import Manifests
from firnlake.job.inputs import CheckedInputs
from firnlake.job.job import Job
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.lanes.answer import Waits, Work
from firnlake.publish.attempts import PublishResult, commit, repeated
from firnlake.table.arrays import Segments
from firnlake.table.partition import PartitionState
from firnlake.table.policies import Policies
from firnlake.table.published_plans import VALIDATION, RecordCounts, published
from firnlake.table.segment import Segment
from firnlake.table.segments import read
from firnlake.table.summaries import summary
from firnlake.validate.retention import refused_drops
from firnlake_expectations.wording import count


class Limit(StrEnum):
    """The Kafka config that allows Firn to drop a segment."""

    AGE = "retention.ms"
    SIZE = "retention.bytes"


@dataclass(frozen=True)
class Retention:
    """The segments that may be ``dropped``, oldest first, with the ``reason``; ``kept`` names the next segment and says
    why that segment stays.

    ``dropped`` and ``reason`` are empty when no segment may be dropped; ``kept``, too, when no segment has a record.
    """

    dropped: tuple[Segment, ...]
    reason: str
    kept: str


def look(state: PartitionState, _force: bool) -> Work | Waits:
    """The segments past retention, and those without a record, which no other lane removes."""
    past = retention(state)
    if past is None:
        return Waits(Lane.RETAIN.traits.rule, "the topic has no retention (cleanup.policy = compact)")
    if not past.dropped:
        return Waits(Lane.RETAIN.traits.rule, past.kept or "the topic partition holds no record")
    empty = tuple(segment for segment in state.segments if not segment.records)
    return Work(Lane.RETAIN, empty + past.dropped, past.reason)


def retention(state: PartitionState) -> Retention | None:
    """Decide which segments of ``state`` retention may drop. Returns None if the policy does not delete.

    A segment may be dropped when its newest record (``aged_from_ms``) is more than retention.ms old, or when at least
    retention.bytes remain without the segment (Kafka's ``deleteRetentionMsBreachedSegments``,
    ``deleteRetentionSizeBreachedSegments``). The first segment that may not be dropped ends the prefix. It also keeps
    the older segments that it overlaps: every segment that stays must start past the last offset of all dropped
    segments, because otherwise readers could see an older value again.

    Row-level deletes on a dropped segment are no obstacle, because the records that they hide are dropped as well.
    """
    if not state.policy.deletes:
        return None
    held = [segment for segment in state.segments if segment.records]
    left = sum(segment.bytes for segment in held)
    causes: list[Limit] = []
    whole = 0
    reach = -1
    for segment in held:
        if segment.base_offset > reach:
            whole = len(causes)
        left -= segment.bytes
        obstacle = _obstacle(state, segment)
        cause = None if obstacle else _cause(state, segment, left)
        if not cause:
            return Retention(
                dropped=tuple(held[:whole]),
                reason=_reason(state, causes[:whole]),
                kept=_kept(held[whole], segment, obstacle or _waiting(state, segment, left)),
            )
        causes.append(cause)
        reach = max(reach, segment.last_offset)
    return Retention((), "", "")


def aged_from_ms(segment: Segment) -> int | None:
    """The time, epoch milliseconds, from which the age of the newest record in ``segment`` counts; None if unknown.

    The age of a record without a timestamp (-1, or any negative number, as in Kafka) counts from its landing. This
    is the time of the commit that added its file, or the time when the file was written (if both are known, the later
    one). Kafka uses the modification time of its log file instead (LogSegment.largestTimestamp). A rewrite counts as a
    later landing, so no segment is dropped too early (C19).
    """
    if segment.oldest_ms >= 0:
        return segment.newest_ms
    landed = [time for time in (segment.committed_ms, segment.written_ms) if time is not None]
    return max(segment.newest_ms, *landed) if landed else None


def _obstacle(state: PartitionState, segment: Segment) -> str | None:
    """Why ``segment`` stays regardless of its age and size; None if only age and size decide."""
    if state.restart:
        return state.restart
    if segment.problem:
        # A segment without known offsets is the first in order, so nothing is dropped: its records may be the oldest.
        return segment.problem
    for stray in state.strays:
        if segment.last_offset >= stray.base_offset:
            return f"segment {stray.path} may hold records from offset {stray.base_offset} on"
    if segment.last_offset >= state.kept_from:
        return "it may hold the log end" if segment.row_deletes else "it holds the log end"
    if segment.path in state.active:
        return f"it is among the newest landed segments (firn.active.segments={state.policy.active_segments})"
    return None


def _cause(state: PartitionState, segment: Segment, left: int) -> Limit | None:
    """The config that allows Firn to drop ``segment`` and so leave ``left`` bytes; None if no config does."""
    since = aged_from_ms(segment)
    if since is not None and 0 <= state.policy.retention_ms < state.now_ms - since:
        return Limit.AGE
    return Limit.SIZE if 0 <= state.policy.retention_bytes <= left else None


def _reason(state: PartitionState, causes: Sequence[Limit]) -> str:
    """The limits that were crossed, and the number of segments beyond each limit."""
    policy = state.policy
    aged, oversize = causes.count(Limit.AGE), causes.count(Limit.SIZE)
    parts = [f"{count(aged, 'segment')} older than {Limit.AGE} = {exact_span(policy.retention_ms)}"] if aged else []
    parts += [f"{count(oversize, 'segment')} beyond {Limit.SIZE} = {policy.retention_bytes}"] if oversize else []
    return ", ".join(parts)


def _waiting(state: PartitionState, segment: Segment, left: int) -> str:
    """How far ``segment`` is from its limits. Shows a timestamp in the future, which keeps the segment longer."""
    since = aged_from_ms(segment)
    if since is None:
        moment = "has no timestamp, and neither a snapshot nor the store says when it landed"
    else:
        age = state.now_ms - since
        moment = f"is {show_span(age)} old" if age >= 0 else f"has a timestamp {show_span(-age)} in the future"
    told = [f"its newest record {moment} ({Limit.AGE} = {exact_span(state.policy.retention_ms)})"]
    if state.policy.retention_bytes >= 0:
        size = f"{Limit.SIZE} = {state.policy.retention_bytes}"
        told.append(f"without this segment, {count(left, 'byte')} would remain ({size})")
    return ", and ".join(told)


def _kept(first: Segment, ending: Segment, why: str) -> str:
    """Message about ``first``, the oldest segment that stays; ``ending`` is the segment that keeps ``first``."""
    return f"{ending}: {why}" if first is ending else f"{first}: it overlaps {ending}, which stays because {why}"


def retain_job(lake: Lake, job: Job) -> PublishResult:
    """Drop the inputs of the plans of ``job`` with one commit, unless the job was published before (C25).

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
    refused, validation = refused_drops(lake, target, [one for one in job if one.id not in unfit], counts)
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
            return f" drops all records up to offset {end}, but segment {segment} with older offsets has landed since"
    return None
