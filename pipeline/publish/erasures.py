"""Publishing beside requests to erase keys (C30): the progress of lane `erase`, and what other lanes may not write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table

from pipeline.erase.requests import Destroyed, Erasures, Progress
from pipeline.erase.stored import ReadOnce
from pipeline.errors import ConflictError, RefusedError
from pipeline.lake.branches import ERASURES, REMOVED_TOMBSTONES, on_branch
from pipeline.lake.folders import job_of
from pipeline.plan import Plan
from pipeline.segments.live_inputs import LiveInputs
from pipeline.sense import Lane
from pipeline.sense.lanes import LEVELING
from pipeline.staging.result import PlanResult


@dataclass(frozen=True)
class Searched:
    """A plan of lane `erase` and its judged result."""

    plan: Plan
    result: PlanResult

    def progress(self, snapshot_id: int) -> Progress:
        """How far the topic partition is searched once main is at ``snapshot_id``."""
        plan, search = self.plan, self.plan.searched
        kept = self.result.log_end_kept
        return Progress(
            topic=plan.topic,
            partition=plan.partition,
            through=search.through,
            before=plan.log_end_offset if kept else search.before,
            sequence_number=search.sequence_number,
            snapshot_id=snapshot_id,
            log_end_kept=kept,
        )

    def destroyed(self, snapshot_id: int) -> list[Destroyed]:
        """The data files that left the table because they held requested records."""
        plan, through = self.plan, self.plan.searched.through
        return [
            Destroyed(plan.topic, plan.partition, through, snapshot_id, one.path, one.bytes, one.sha256, one.records)
            for one in self.result.destroyed
        ]


def with_searches(known: Erasures, searched: Sequence[Searched], snapshot_id: int) -> Erasures:
    """``known`` with what plans have ``searched``, which the commit of ``snapshot_id`` publishes.

    Raises ConflictError when one of them no longer fits.
    """
    for one in searched:
        if problem := overtaken(known, one.plan):
            raise ConflictError(problem)
    progress = [one.progress(snapshot_id) for one in searched]
    return known.with_progress(progress, [gone for one in searched for gone in one.destroyed(snapshot_id)])


def erasure_conflicts(current: Table, plans: Sequence[Plan], erasures: ReadOnce) -> Mapping[str, ConflictError]:
    """The conflicts of ``plans`` with the requests of ``current`` and what was searched for them, by plan id.

    Lane `erase`: another search was published first, or a removed tombstone is gone. Other lanes: an input may have
    landed below a search that its plan did not know; what they made of it would count as searched.
    """
    if ERASURES not in current.metadata.refs:
        return {}
    try:
        known = erasures.of(current)
    except RefusedError as error:
        # Then nothing counts as erased, and only lane `erase` has to wait.
        return {plan.id: ConflictError(str(error)) for plan in plans if plan.lane is Lane.ERASE}
    gone = _gone_beside(current, plans)
    conflicts = {}
    for plan in plans:
        snapshot = current.snapshot_by_id(plan.snapshot_id)
        made = snapshot.sequence_number if snapshot else None
        problem = overtaken(known, plan) if plan.lane is Lane.ERASE else None
        if plan.lane in LEVELING:  # what lanes that hide leave in place is searched there
            problem = unsearched(known, plan, made)
        if plan.id in gone:
            problem = f"plan {plan.id} ({plan.title}): {gone[plan.id]} left {REMOVED_TOMBSTONES}; plan again"
        if problem:
            conflicts[plan.id] = ConflictError(problem)
    return conflicts


def overtaken(known: Erasures, plan: Plan) -> str | None:
    """Why a search of ``plan`` is no progress; None when it is."""
    now, search = known.progress_of(plan.topic_partition), plan.searched
    if now and (now.through > search.through or now.sequence_number > search.sequence_number):
        return f"plan {plan.id} ({plan.title}): a later search was published in snapshot {now.snapshot_id}; plan again"
    return None


def unsearched(known: Erasures, plan: Plan, made: int | None) -> str | None:
    """Why ``plan`` of another lane may take what landed below a search that was under way when it was made; else None.

    ``made`` is the sequence number of the snapshot that it was made on. None: that has expired, so nobody can tell what
    the plan knew.
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
                f"plan {plan.id} ({plan.title}): segment {one.path} may have landed after it was searched for keys to "
                f"erase (snapshot {progress.snapshot_id}); plan again"
            )
    return None


def _gone_beside(current: Table, plans: Sequence[Plan]) -> Mapping[str, str]:
    """The first removed tombstone of each plan of lane `erase` that is no longer live, by plan id."""
    wanted = {one.path: plan.id for plan in plans if plan.lane is Lane.ERASE for one in plan.removed_tombstones}
    if not wanted:
        return {}
    live = LiveInputs.find(on_branch(current, REMOVED_TOMBSTONES), list(wanted))
    return {wanted[path]: path for path in reversed(live.gone)}
