"""Retention of a topic partition: drops whole segments, a prefix in offset order, from metadata alone (C19).

The commit only removes files from the table. No JVM.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.errors import ConflictError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.commit import Change, SnapshotCommit
from firnlake.iceberg.manifests import Manifests
from firnlake.job.inputs import CheckedInputs
from firnlake.job.job import Job
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.publish.attempts import PublishResult, Throttle, commit, repeated
from firnlake.table.partition import PartitionState
from firnlake.table.policies import Policies
from firnlake.table.published_plans import RecordCounts, published
from firnlake.table.segment import Segment, Segments
from firnlake.table.segments import read
from firnlake.table.summaries import summary


class Limit(StrEnum):
    """The config because of which a segment may go."""

    AGE = "retention.ms"
    SIZE = "retention.bytes"


@dataclass(frozen=True)
class Retention:
    """``dropped`` may go, oldest first, for ``reason``; ``kept`` says which is the next one and what keeps it.

    ``dropped`` and ``reason`` are empty when nothing may go, ``kept`` without a record.
    """

    dropped: tuple[Segment, ...]
    reason: str
    kept: str


def retention(state: PartitionState) -> Retention | None:
    """The decision of retention on ``state``; None under a policy that does not delete.

    A segment may go when its newest record (``aged_from_ms``) is more than retention.ms old, or when what remains
    without it is still at least retention.bytes (Kafka's ``deleteRetentionMsBreachedSegments``,
    ``deleteRetentionSizeBreachedSegments``). The first that may not go ends the prefix and keeps what overlaps it: a
    segment goes only if every one that stays starts past its last offset, else an older value could come to light.

    Row-level deletes on what goes are no obstacle, as they are to a cleaning: their rows go as well.
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
    """The clock, epoch milliseconds, from which the age of the newest record in ``segment`` counts; None: unknown.

    A record without a timestamp (-1; Kafka takes all before the epoch for that) counts from its landing: the later of
    the commit that added its file and the file's time of writing, as far as they are known. Kafka falls back to the
    time of its file (LogSegment.largestTimestamp). A rewrite is a later landing: nothing goes too early (C19).
    """
    if segment.oldest_ms >= 0:
        return segment.newest_ms
    landed = [time for time in (segment.committed_ms, segment.written_ms) if time is not None]
    return max(segment.newest_ms, *landed) if landed else None


def _obstacle(state: PartitionState, segment: Segment) -> str | None:
    """Why ``segment`` stays whatever its age and size; None when nothing holds it."""
    if segment.problem:
        # Without offsets it comes first, so nothing goes: it may hold records older than any other.
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
    """By which config ``segment`` may go when ``left`` bytes remain without it."""
    since = aged_from_ms(segment)
    if since is not None and 0 <= state.policy.retention_ms < state.now_ms - since:
        return Limit.AGE
    return Limit.SIZE if 0 <= state.policy.retention_bytes <= left else None


def _reason(state: PartitionState, causes: Sequence[Limit]) -> str:
    """The limits that were crossed, and by how much."""
    policy = state.policy
    aged, oversize = causes.count(Limit.AGE), causes.count(Limit.SIZE)
    parts = [f"{aged} segments older than {Limit.AGE} {policy.retention_ms}"] if aged else []
    parts += [f"{oversize} segments beyond {Limit.SIZE} {policy.retention_bytes}"] if oversize else []
    return ", ".join(parts)


def _waiting(state: PartitionState, segment: Segment, left: int) -> str:
    """Distance of ``segment`` from its limits. A timestamp in the future keeps it: the text must show that."""
    since = aged_from_ms(segment)
    if since is None:
        moment = "has no timestamp, and neither a snapshot nor the store tells when it landed"
    else:
        age = state.now_ms - since
        moment = f"is {age} ms old" if age >= 0 else f"lies {-age} ms in the future"
    return (
        f"its newest record {moment} ({Limit.AGE} {state.policy.retention_ms}), {left} bytes would remain "
        f"({Limit.SIZE} {state.policy.retention_bytes})"
    )


def _kept(first: Segment, ending: Segment, why: str) -> str:
    """Name the oldest segment that stays, and the one that ends the prefix where that is another."""
    return f"{ending}: {why}" if first is ending else f"{first}: it reaches into {ending}, which stays: {why}"


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
