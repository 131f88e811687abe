"""Publishing the memory of lane `mask` (C28): it moves with the commit that hides the superseded records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table

from pipeline.errors import ConflictError, FirnError, RefusedError
from pipeline.lake.branches import HAS_SIDE_BRANCHES, MASKS, has_side_branches
from pipeline.masks.memory import Compared, Hidden, Masks
from pipeline.masks.stored import read_masks
from pipeline.plan import Plan
from pipeline.sense import Lane
from pipeline.staging.result import ComparedSegments


@dataclass(frozen=True)
class ComparedPlan:
    """A plan of lane `mask` and its findings (``seen``), from its judged result."""

    plan: Plan
    seen: ComparedSegments

    def compared(self, snapshot_id: int) -> Compared:
        """How far the topic partition is compared once main is at ``snapshot_id``."""
        plan = self.plan
        return Compared(
            topic=plan.topic,
            partition=plan.partition,
            sequence_number=plan.known_through,
            before=plan.compares.before,
            snapshot_id=snapshot_id,
            end=self.seen.end,
            end_path=self.seen.end_path,
        )

    @property
    def hidden(self) -> list[Hidden]:
        """The segments with hidden records."""
        return [Hidden(self.plan.topic, self.plan.partition, *one) for one in self.seen.hidden.items()]


def with_masks(known: Masks, plans: Sequence[ComparedPlan], snapshot_id: int) -> Masks:
    """``known`` with what ``plans`` have compared, which the commit of ``snapshot_id`` publishes.

    Raises ConflictError when one of them no longer fits.
    """
    for one in plans:
        if problem := overtaken(known, one.plan):
            raise ConflictError(problem)
    return known.after([one.compared(snapshot_id) for one in plans], [own for one in plans for own in one.hidden])


def mask_conflicts(current: Table, plans: Sequence[Plan]) -> Mapping[str, FirnError]:
    """The conflicts of ``plans`` of lane `mask` with the memory of ``current``, by plan id; none for other lanes."""
    masks = [plan for plan in plans if plan.lane is Lane.MASK]
    if not masks:
        return {}
    if not has_side_branches(current.properties):
        problem = (
            f"table {masks[0].table} can't remember what was compared: it has no branch {MASKS} "
            f"({HAS_SIDE_BRANCHES} is false); allowed: firn.mask.max.lag.ms = -1"
        )
        return {plan.id: RefusedError(problem) for plan in masks}
    known = read_masks(current)
    problems = ((plan, overtaken(known, plan)) for plan in masks)
    return {plan.id: ConflictError(problem) for plan, problem in problems if problem}


def overtaken(known: Masks, plan: Plan) -> str | None:
    """The conflict of ``plan`` with a later comparison that was published; None without one."""
    now = known.compared_in(plan.topic_partition)
    if now and now.sequence_number > plan.known_through:
        return f"plan {plan.id} ({plan.title}): a later mask was published in snapshot {now.snapshot_id}; plan again"
    return None
