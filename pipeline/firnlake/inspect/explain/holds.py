"""Prospects of a segment: the lanes that would take the segment now, or the reason why no lane would.

Both come from the functions that plan the lanes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firnlake.job.failures import FailedPlan, waiting
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.lanes.answer import Reason, Waits
from firnlake.lanes.look import look
from firnlake.plan.make import plan_partition
from firnlake.table.arrays import Segments
from firnlake.table.segment import TAIL, UnassignedFile
from firnlake.table.state import State
from firnlake_expectations.wording import count


@dataclass(frozen=True)
class Prospects:
    """The plans that are due now in one topic partition, by lane, and the plan of `full` without thresholds."""

    state: State
    due: Mapping[Lane, Plan]
    full: Plan | None
    failed: Mapping[Lane, FailedPlan]
    """Lanes whose plan failed on the same segments before. These plans wait until their segments change (C20)."""
    left: frozenset[Lane]
    """Lanes that leave their plan to `full`, which takes all its segments in the same run."""

    @classmethod
    def of(cls, segments: Segments, state: State, failed: Sequence[FailedPlan]) -> "Prospects":
        """Plan every lane for ``state`` and write nothing. ``failed`` are the table's plans that failed before."""
        plans = [plan for lane in Lane if (plan := plan_partition(lane, segments, state))]
        full = plan_partition(Lane.FULL, segments, state, force=True)
        again = {plan.lane: marker for plan, marker in waiting(failed, [*plans, *([full] if full else [])])}
        due = {plan.lane: plan for plan in plans if plan.lane not in again}
        last = due.get(Lane.FULL)
        left = frozenset(lane for lane, plan in due.items() if last and last.takes(plan))
        return cls(state, {lane: plan for lane, plan in due.items() if lane not in left}, full, again, left)

    def not_due(self, lane: Lane) -> Reason:
        """The reason why ``lane`` takes no segment of the topic partition now."""
        if lane in self.failed:
            return Reason("C20", str(self.failed[lane]))
        if lane in self.left:
            return Reason(lane.traits.rule, f"left to lane {Lane.FULL}, which takes the segments in the same run")
        answer = look(lane, self.state)
        return answer if isinstance(answer, Waits) else Reason(lane.traits.rule, "there is nothing that it can change")

    def held(self, path: str) -> Reason | None:
        """The reason why lane `full`, even if due, would leave out the segment at ``path``; None if it would not do so.

        The text is the rest of a sentence that begins with "the segment".
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
            return Reason("C10", f"waits, like the whole tail: {state.undecided}")
        if state.held and segment in state.head and segment not in state.cleanable:
            place = "is" if state.held.segment == segment else f"comes after segment {state.held.segment}, which is"
            return Reason(state.held.rule, f"{place} {state.held.why}", state.held.until_ms)
        return self._waiting()

    def _waiting(self) -> Reason:
        """The reason why the plan of lane `full` ends before a cleanable segment (C17)."""
        left = [segment for segment in self.state.cleanable if segment.path not in taken(self.full)]
        if left and (too_large := self.state.too_large(left[0])):
            return Reason("C17", f"waits because an older segment is too large: {'; '.join(too_large)}")
        fitting = len(self.state.cleanable) - len(left)
        return Reason("C17", f"exceeds the budgets of a plan, which takes {count(fitting, 'older segment')} first")


def never_taken(stray: UnassignedFile) -> Reason:
    """The reason why no plan takes a data file whose metadata does not show its topic partition (C20)."""
    return Reason("C20", f"{stray.problem}: no plan takes this file")


def taken(plan: Plan | None) -> frozenset[str]:
    """Paths of the segments that ``plan`` takes; empty if there is no plan."""
    return frozenset(segment.path for segment in plan.inputs) if plan else frozenset()
