"""Prospects of a segment: the lane that would take it now, or what holds it back, by asking the code that senses and
plans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.explain.missing import missing
from pipeline.explain.reason import Reason
from pipeline.plan import Plan
from pipeline.plan.failure import FailedPlan, waiting
from pipeline.plan.make import plan_partition
from pipeline.segments import Segments, Stray
from pipeline.segments.segment import TAIL
from pipeline.sense import Lane, PartitionState
from pipeline.sense.lanes import LEVELING, UNBLOCKED
from pipeline.sense.searches import late


@dataclass(frozen=True)
class Prospects:
    """The plans that are due now in one topic partition, by lane, and the plan of `full` regardless of thresholds."""

    state: PartitionState
    due: Mapping[Lane, Plan]
    full: Plan | None
    failed: Mapping[Lane, FailedPlan]
    """Lanes whose plan failed on the same segments before; it waits for a change (C20)."""

    @classmethod
    def of(cls, segments: Segments, state: PartitionState, failed: Sequence[FailedPlan]) -> "Prospects":
        """Plan every lane for ``state``; nothing is written. ``failed`` are the table's plans that failed before."""
        plans = [plan for lane in Lane if (plan := plan_partition(lane, segments, state))]
        full = plan_partition(Lane.FULL, segments, state, force=True)
        again = {plan.lane: marker for plan, marker in waiting(failed, [*plans, *([full] if full else [])])}
        due = {plan.lane: plan for plan in plans if plan.lane not in again}
        return cls(state, due, full, again)

    def not_due(self, lane: Lane) -> Reason:
        """The reason why ``lane`` takes nothing of the topic partition now."""
        if lane in self.failed:
            return Reason("C20", str(self.failed[lane]))
        if self.state.blockers and lane not in UNBLOCKED:
            return Reason("C20", self.state.blockers[0])
        landed = late(self.state)
        if landed and lane in LEVELING:
            return Reason("C30", f"segment {landed[0]} has to be searched for keys to erase first")
        return missing(lane, self.state)

    def held(self, path: str) -> Reason | None:
        """The reason why `full` would not take the segment at ``path`` even if it were due; None when it would.

        The text continues "the segment".
        """
        if path in taken(self.full):
            failed = self.failed.get(Lane.FULL)
            return Reason("C20", f"is in a plan that failed: {failed}") if failed else None
        for stray in self.state.strays:
            if stray.path == path:
                return never_taken(stray)
        state = self.state
        segment = next(segment for segment in state.segments if segment.path == path)
        if not state.policy.compacts:
            return Reason(
                "C19", f"belongs to a topic that is not compacted (cleanup.policy = {state.policy.cleanup_policy})"
            )
        if state.blockers:
            return Reason("C20", f"waits because its topic partition can't be cleaned: {state.blockers[0]}")
        if not segment.records:
            return Reason("C17", "holds no record")
        if too_large := state.too_large(segment):
            return Reason("C17", f"is too large: {'; '.join(too_large)}")
        if segment.level == TAIL and state.tail_is_held:
            return Reason("C10", f"waits with the whole tail: {state.undecided}")
        if state.held and segment in state.head and segment not in state.cleanable:
            place = "is" if state.held.segment == segment else f"lies past {state.held.segment}, which is"
            return Reason(state.held.rule, f"{place} {state.held.why}", state.held.until_ms)
        return self._waiting()

    def _waiting(self) -> Reason:
        """The reason for a cleanable segment that the plan ends before (C17)."""
        left = [segment for segment in self.state.cleanable if segment.path not in taken(self.full)]
        if left and (too_large := self.state.too_large(left[0])):
            return Reason("C17", f"waits behind a segment that is too large: {'; '.join(too_large)}")
        fitting = len(self.state.cleanable) - len(left)
        return Reason("C17", f"exceeds the budgets of a plan that takes the {fitting} older segments first")


def never_taken(stray: Stray) -> Reason:
    """The reason why a data file is left alone when metadata does not show its topic partition (C20)."""
    return Reason("C20", f"{stray.problem}: it is never an input")


def taken(plan: Plan | None) -> frozenset[str]:
    """Paths of the segments that ``plan`` takes."""
    return frozenset(segment.path for segment in plan.inputs) if plan else frozenset()
