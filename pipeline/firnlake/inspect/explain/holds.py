"""Prospects of a segment: the lanes that would take the segment now, or the reason why no lane would.

Both come from the functions that plan the lanes. With lower thresholds, they also find the figure that a lane reaches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from firnlake.job.failures import FailedPlan, waiting
from firnlake.job.lane import LEVELING, UNBLOCKED, Lane
from firnlake.job.plan import Plan
from firnlake.lanes.due import due
from firnlake.lanes.erasure.look import obstacles
from firnlake.lanes.retention import retention
from firnlake.plan.make import plan_partition
from firnlake.table.budget import excess
from firnlake.table.partition import PartitionState
from firnlake.table.policy import Policy
from firnlake.table.profiles import INT_MAX
from firnlake.table.segment import TAIL, Segments, UnassignedFile
from firnlake_expectations.wording import count


@dataclass(frozen=True)
class Reason:
    """A rule of the contract, a reason in words, and the epoch milliseconds at which the reason ends by itself."""

    rule: str
    text: str
    until_ms: int | None = None


RULES = {
    Lane.RETAIN: "C19",
    Lane.ERASE: "C30",
    Lane.CONVERT: "C27",
    Lane.MERGE: "C13",
    Lane.CLEAN: "C14",
    Lane.TIER: "C15",
    Lane.FULL: "C12",
}
"""Contract rule that defines when each lane is due."""

_COUNTED = {
    Lane.MERGE: ("merge_segments", "adjacent L0 segments"),
    Lane.CLEAN: ("clean_segments", "adjacent cleanable L1 segments"),
    Lane.TIER: ("tier_runs", "adjacent cleanable runs of similar size"),
}
"""Lanes that wait for a number of segments: the policy field of the threshold, and the noun for these segments."""

_IMPOSSIBLE = 1e300


def missing(lane: Lane, state: PartitionState) -> Reason:
    """The reason why ``lane``, if it is not blocked, is not due in ``state``, with the reached and needed figures."""
    if lane is Lane.RETAIN:
        past = retention(state)
        kept = past.kept if past else "the topic has no retention (cleanup.policy = compact)"
        return Reason(RULES[lane], kept or "the topic partition holds no record")
    if lane is Lane.ERASE:
        return _nothing_to_erase(state)
    if lane is Lane.CONVERT:
        return _nothing_to_convert(state)
    if not state.policy.compacts and lane is not Lane.MERGE:
        return Reason("C19", "the topic is not compacted (cleanup.policy = delete)")
    if lane in _COUNTED:
        field, what = _COUNTED[lane]
        needed = getattr(state.policy, field)
        if needed >= INT_MAX:
            name = Policy.model_fields[field].alias
            return Reason(RULES[lane], f"no number of segments makes the lane due (firn.{name} = {needed})")
        return Reason(RULES[lane], f"{_most(lane, field, state)} of {needed} {what}")
    if not state.cleanable:
        if state.held:
            return Reason(state.held.rule, f"nothing may be cleaned: segment {state.held.segment} is {state.held.why}")
        stamped = any(segment.first_horizon_ms is not None for segment in state.tail)
        kept = ", and tombstones of the tail are kept until their delete horizon" if stamped else ""
        return Reason(RULES[lane], f"the head is empty{kept}")
    needed = state.policy.min_cleanable_dirty_ratio
    return Reason(RULES[lane], f"dirty ratio {state.dirty_ratio:.3f}, needed: more than {needed}")


def _nothing_to_erase(state: PartitionState) -> Reason:
    """The reason why lane `erase` is not due in ``state``."""
    if state.requested is None:
        return Reason(RULES[Lane.ERASE], "there is no request to erase a key")
    for obstacle in obstacles(state):
        return Reason(obstacle.rule, f"requests to erase keys wait: {obstacle.why}", obstacle.until_ms)
    if state.requested.due_ms is not None:
        return Reason(RULES[Lane.ERASE], "requests to erase keys wait for more requests", state.requested.due_ms)
    return Reason(RULES[Lane.ERASE], "all requests to erase a key are served")


def _nothing_to_convert(state: PartitionState) -> Reason:
    """The reason why lane `convert` is not due in ``state``."""
    for segment in state.segments:
        if segment.equality_deletes and (problem := next(iter(excess(segment, state.policy)), None)):
            return Reason("C18", problem)
    most = max((one.equality_deletes for one in state.segments), default=0)
    if not most and any(one.holding_deletes for one in state.segments):
        return Reason(RULES[Lane.CONVERT], "each equality delete file applies to a data file that no plan takes")
    needed = count(state.policy.convert_equality_deletes, "equality delete file")
    return Reason(RULES[Lane.CONVERT], f"{most} of {needed}")


def _most(lane: Lane, field: str, state: PartitionState) -> int:
    """The highest threshold in ``field`` at which ``lane`` would be due; 0 if no threshold makes it due."""
    most = min(getattr(state.policy, field), len(state.head))
    for threshold in range(most, 0, -1):
        # The other trigger of `clean` does not count segments, so it is off here.
        eased = {field: threshold, "clean_tail_fraction": _IMPOSSIBLE}
        if due(lane, replace(state, policy=state.policy.model_copy(update=eased))):
            return threshold
    return 0


@dataclass(frozen=True)
class Prospects:
    """The plans that are due now in one topic partition, by lane, and the plan of `full` without thresholds."""

    state: PartitionState
    due: Mapping[Lane, Plan]
    full: Plan | None
    failed: Mapping[Lane, FailedPlan]
    """Lanes whose plan failed on the same segments before. These plans wait until their segments change (C20)."""
    left: frozenset[Lane]
    """Lanes that leave their plan to `full`, which takes all its segments in the same run."""

    @classmethod
    def of(cls, segments: Segments, state: PartitionState, failed: Sequence[FailedPlan]) -> "Prospects":
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
        if self.state.blockers and lane not in UNBLOCKED:
            return Reason("C20", self.state.blockers[0])
        if lane in LEVELING and (asked := self.state.requested) and asked.mixed:
            return Reason("C30", f"segment {asked.mixed} must first be read for a new request to erase keys")
        if lane in self.left:
            return Reason(RULES[lane], f"left to lane {Lane.FULL}, which takes the segments in the same run")
        return missing(lane, self.state)

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
