"""Lane `erase`: rewrites the segments that hold a record of a requested key, and leaves all others in place (C30).

The lane's commit also publishes the lane's progress. A plan of another lane is refused if requested records may have
landed during a search, and the plan could write these records into a segment that counts as searched.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc
from pyiceberg.table import Table

from firnlake.compact.attempt import Attempt, ByPlan
from firnlake.compact.inputs import InputSegment, PlanInputs
from firnlake.compact.marks import Marks
from firnlake.compact.rewrite import Target, rewrite
from firnlake.compact.tasks import WHOLE_BYTES, Result
from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.branches import ERASURES
from firnlake.iceberg.files import job_of
from firnlake.iceberg.keys import Flags
from firnlake.job.lane import LEVELING, Lane
from firnlake.job.plan import Plan
from firnlake.job.result import DestroyedFile, PlanResult
from firnlake.lanes.erasure.memory import ReadOnce, read_erasures
from firnlake.lanes.erasure.requests import Destroyed, Erasures, Matcher, SearchProgress, key_bytes

CONTROL = "is_control"
"""The column that is true for control records, which have no user key (C10)."""


@dataclass(frozen=True)
class EraseTask:
    """Search some segments of a plan, and rewrite those that lose a record."""

    inputs: PlanInputs
    matcher: Matcher = field(repr=False)
    target: Target

    def __call__(self) -> Result:
        parts = [self._searched(segment) for segment in self.inputs.segments]
        return _together(parts)

    def _searched(self, segment: InputSegment) -> Result:
        requested, log_end_kept = self._requested(segment)
        if not requested.any():
            return Result((), Counter(), 0, frozenset({segment.path}), (), log_end_kept)
        source, hidden = segment.source, self.inputs.hidden(segment)
        sha256 = self.inputs.files.sha256(source)
        # Records that row-level deletes hide are not written, whether requested or not (C27).
        erased = requested if hidden is None else requested[~hidden]
        written = rewrite(self.inputs, [(segment, Marks(len(erased), taken_out=erased))], self.target)
        records = int(np.count_nonzero(requested)) * segment.facts.copies
        gone = DestroyedFile(path=source.path, bytes=source.bytes, sha256=sha256, records=records)
        return Result(
            tuple(written.files), written.counts, written.fingerprint, frozenset[str](), (gone,), log_end_kept
        )

    def _requested(self, segment: InputSegment) -> tuple[Flags, bool]:
        """Flags of the records to erase from the file, hidden records included, and whether a requested record stays.

        A requested record stays if it is the log end (C4).
        """
        plan, columns = self.inputs.plan, self.inputs.columns
        before = plan.searched.before
        names = [*columns.key, columns.offset, *([CONTROL] if plan.transactional else [])]
        parts, log_end_kept = [np.zeros(0, dtype=np.bool_)], False
        for batch in self.inputs.files.batches(segment.source, list(dict.fromkeys(names))):
            offsets = self.inputs.offsets(batch, segment)
            requested = self.matcher.matches(key_bytes(batch, columns.key), offsets)
            if before is not None:
                requested &= offsets < before
            if plan.transactional:
                requested &= ~pc.fill_null(batch.column(CONTROL), fill_value=False).to_numpy(zero_copy_only=False)
            if not segment.removed_before:
                end = requested & (offsets == plan.log_end_offset)
                log_end_kept = log_end_kept or bool(end.any())
                requested &= ~end
            parts.append(requested)
        return np.concatenate(parts), log_end_kept


def erased(attempt: Attempt) -> ByPlan[Result]:
    """Compact plans of lane `erase`."""
    erasures = read_erasures(attempt.table)
    tasks = [task for one in attempt.plans for task in _tasks(one, erasures, attempt.target)]
    parts, failed = attempt.run("erase", tasks)
    return {plan_id: _together(own) for plan_id, own in parts.items()}, failed


def _tasks(inputs: PlanInputs, erasures: Erasures, target: Target) -> Iterator[EraseTask]:
    """The tasks of a plan: each has one segment, or several of at most WHOLE_BYTES together."""
    plan = inputs.plan
    own = (one for one in erasures.of(plan.topic_partition) if one.id <= plan.searched.through)
    matcher = Matcher(erasures.secret, own)
    group: list[InputSegment] = []
    for segment in inputs.segments:
        if group and sum(one.source.bytes for one in (*group, segment)) > WHOLE_BYTES:
            yield EraseTask(inputs.only(group), matcher, target)
            group = []
        group.append(segment)
    yield EraseTask(inputs.only(group), matcher, target)


def _together(parts: Sequence[Result]) -> Result:
    first, *others = parts
    counts = first.counts.copy()
    for part in others:
        counts.update(part.counts)
    return Result(
        tuple(file for part in parts for file in part.files),
        counts,
        sum(part.fingerprint for part in parts),
        frozenset[str]().union(*(part.in_place for part in parts)),
        tuple(one for part in parts for one in part.destroyed),
        any(part.log_end_kept for part in parts),
    )


@dataclass(frozen=True)
class Searched:
    """A plan of lane `erase` and its judged result."""

    plan: Plan
    result: PlanResult

    def progress(self, snapshot_id: int) -> SearchProgress:
        """How far the topic partition has been searched once main is at ``snapshot_id``."""
        plan, search = self.plan, self.plan.searched
        kept = self.result.log_end_kept
        return SearchProgress(
            topic=plan.topic,
            partition=plan.partition,
            through=search.through,
            before=plan.log_end_offset if kept else search.before,
            sequence_number=search.sequence_number,
            snapshot_id=snapshot_id,
            log_end_kept=kept,
        )

    def destroyed(self, snapshot_id: int) -> list[Destroyed]:
        """The data files that the plan removes from the table, because they hold requested records."""
        plan, through = self.plan, self.plan.searched.through
        return [
            Destroyed(plan.topic, plan.partition, through, snapshot_id, one.path, one.bytes, one.sha256, one.records)
            for one in self.result.destroyed
        ]


def with_searches(known: Erasures, searched: Sequence[Searched], snapshot_id: int) -> Erasures:
    """``known`` updated with the plans ``searched``, which the commit of ``snapshot_id`` publishes.

    Raises ConflictError when a later search has overtaken one of the plans.
    """
    for one in searched:
        if problem := overtaken(known, one.plan):
            raise ConflictError(problem)
    progress = [one.progress(snapshot_id) for one in searched]
    return known.with_progress(progress, [gone for one in searched for gone in one.destroyed(snapshot_id)])


def erasure_conflicts(current: Table, plans: Sequence[Plan], erasures: ReadOnce) -> Mapping[str, ConflictError]:
    """The conflicts of ``plans`` with the requests of ``current`` and the searches for them, by plan id.

    A plan of lane `erase` is in conflict if another search was published first. A plan of another lane is in conflict
    if a search that the plan did not know may have missed an input of the plan, because the plan's output would count
    as searched.
    """
    if ERASURES not in current.metadata.refs:
        return {}
    try:
        known = erasures.of(current)
    except RefusedError as error:
        # Without the requests no record counts as erased, so only lane `erase` has to wait.
        return {plan.id: ConflictError(str(error)) for plan in plans if plan.lane is Lane.ERASE}
    conflicts = {}
    for plan in plans:
        snapshot = current.snapshot_by_id(plan.snapshot_id)
        made = snapshot.sequence_number if snapshot else None
        problem = overtaken(known, plan) if plan.lane is Lane.ERASE else None
        if plan.lane in LEVELING:  # lanes that write position deletes leave their inputs in place, to be searched there
            problem = unsearched(known, plan, made)
        if problem:
            conflicts[plan.id] = ConflictError(problem)
    return conflicts


def overtaken(known: Erasures, plan: Plan) -> str | None:
    """The conflict of ``plan`` with a later search that was published first; None without such a search."""
    now, search = known.progress_of(plan.topic_partition), plan.searched
    if now and (now.through > search.through or now.sequence_number > search.sequence_number):
        return f"plan {plan.id} ({plan.title}): a later search was published in snapshot {now.snapshot_id}; plan again"
    return None


def unsearched(known: Erasures, plan: Plan, made: int | None) -> str | None:
    """The reason why ``plan``, which is of another lane, may have an input that the last search missed.

    None if the plan has no such input. The plan can have one only if the search was under way when the plan was made.
    ``made`` is the sequence number of the snapshot on which the plan was made; None if that snapshot has expired. Then
    nobody can tell which searches came before the plan.
    """
    progress = known.progress_of(plan.topic_partition)
    if progress is None:
        return None
    if made is not None and not progress.sequence_number < made < progress.committed:
        return None
    end = known.searched_below(plan.topic_partition)
    for one in plan.inputs:
        if one.base_offset < end and job_of(one.path) is None:
            return (
                f"plan {plan.id} ({plan.title}): segment {one.path} may have landed after snapshot "
                f"{progress.snapshot_id} published a search for keys to erase; plan again"
            )
    return None
