"""The condition that a lane is waiting for, measured by asking the lane itself under lower thresholds.

Every figure comes from the code that decides: a threshold is lowered until the lane is due.
"""

from dataclasses import replace
from math import inf

from pipeline.explain.reason import Reason
from pipeline.policy.policy import Policy
from pipeline.policy.profiles import INT_MAX
from pipeline.sense import Lane, PartitionState, due, retention
from pipeline.sense.budget import excess
from pipeline.sense.comparing import comparison, due_from_ms
from pipeline.sense.comparing import obstacles as in_the_way
from pipeline.sense.searches import obstacles

RULES = {
    Lane.RETAIN: "C19",
    Lane.ERASE: "C30",
    Lane.MASK: "C28",
    Lane.LIGHTEN: "C27",
    Lane.MERGE: "C13",
    Lane.CLEAN: "C14",
    Lane.TIER: "C15",
    Lane.FULL: "C12",
}
"""Contract rule that defines when a lane is due."""

_COUNTED = {
    Lane.MERGE: ("merge_segments", "adjacent L0 segments"),
    Lane.CLEAN: ("clean_segments", "adjacent cleanable L1 segments"),
    Lane.TIER: ("tier_runs", "adjacent cleanable runs of similar size"),
}
"""Lanes that wait for a count: the policy field with the threshold, and the noun for what is counted."""

_IMPOSSIBLE = 1e300


def missing(lane: Lane, state: PartitionState) -> Reason:
    """The reason why ``lane``, which is not blocked, is not due in ``state``: the measured and the needed figure."""
    if lane is Lane.RETAIN:
        past = retention(state)
        kept = past.kept if past else "its topic has no retention (cleanup.policy = compact)"
        return Reason(RULES[lane], kept or "it holds no record")
    if lane is Lane.ERASE:
        return _no_search(state)
    if lane is Lane.LIGHTEN:
        return _nothing_to_lighten(state)
    if not state.policy.compacts and lane is not Lane.MERGE:
        return Reason("C19", "its topic is not compacted (cleanup.policy = delete)")
    if lane is Lane.MASK:
        return _nothing_to_mask(state)
    if lane in _COUNTED:
        field, what = _COUNTED[lane]
        needed = getattr(state.policy, field)
        if needed >= INT_MAX:
            name = Policy.model_fields[field].alias
            return Reason(RULES[lane], f"never for their number (firn.{name} = {needed})")
        most = _most(lane, field, state)
        left = f", left to {Lane.FULL}: {_ahead(state)}" if most >= needed else ""
        return Reason(RULES[lane], f"{most} of {needed} {what}{left}")
    if not state.cleanable:
        if state.held:
            return Reason(state.held.rule, f"nothing may be cleaned: {state.held.segment} is {state.held.why}")
        return Reason(RULES[lane], "no head")
    return Reason(RULES[lane], f"dirty ratio {state.dirty_ratio:.3f}, needs > {state.policy.min_cleanable_dirty_ratio}")


def _no_search(state: PartitionState) -> Reason:
    """Why lane ``erase`` has nothing to search in ``state``."""
    if state.erasing is None:
        return Reason(RULES[Lane.ERASE], "no request to erase a key")
    for one in obstacles(state):
        return Reason(one.rule, f"nothing else is to be erased before offset {one.offset}: {one.why}", one.until_ms)
    if state.erasing.waiting:
        return Reason(RULES[Lane.ERASE], "requests to erase a key wait for others", state.erasing.due_ms)
    return Reason(RULES[Lane.ERASE], "all requests to erase a key are served")


def _nothing_to_mask(state: PartitionState) -> Reason:
    """Why lane ``mask`` is not due in ``state``."""
    rule = RULES[Lane.MASK]
    if not state.policy.masks:
        return Reason(rule, "nothing is hidden before it is cleaned (firn.mask.max.lag.ms = -1)")
    for one in in_the_way(state):
        return Reason("C20", one)
    work = comparison(state)
    if work:
        count = len(work.uncompared)
        return Reason(rule, f"{count} segments are not compared with the others yet", due_from_ms(state, work))
    if state.held:
        return Reason(state.held.rule, f"all else is compared: {state.held.segment} is {state.held.why}")
    return Reason(rule, "all segments are compared with each other")


def _nothing_to_lighten(state: PartitionState) -> Reason:
    """Why lane ``lighten`` is not due in ``state``."""
    for segment in state.segments:
        if segment.equality_deletes and (problem := next(iter(excess(segment, state.policy)), None)):
            return Reason("C18", problem)
    most = max((one.equality_deletes for one in state.segments), default=0)
    if not most and any(one.holding_deletes for one in state.segments):
        return Reason(RULES[Lane.LIGHTEN], "each equality delete file reaches a data file that no plan takes")
    return Reason(RULES[Lane.LIGHTEN], f"{most} of {state.policy.lighten_equality_deletes} equality delete files")


def _ahead(state: PartitionState) -> str:
    """The distance to the next `full`, in words."""
    missing_bytes, fraction = state.bytes_until_full, state.policy.leave_to_full_fraction
    if missing_bytes <= 0:
        return "its bytes have landed"
    return f"at least {fraction} of the {missing_bytes:.0f} bytes that it waits for (firn.leave.to.full.fraction)"


def _most(lane: Lane, field: str, state: PartitionState) -> int:
    """The highest threshold in ``field`` at which ``lane`` would be due; 0 when there is none."""
    most = min(getattr(state.policy, field), len(state.head))
    for threshold in range(most, 0, -1):
        # The other trigger of `clean` does not count segments, so it is switched off. Nothing is left to `full`.
        eased = {field: threshold, "clean_tail_fraction": _IMPOSSIBLE, "leave_to_full_fraction": inf}
        if due(lane, replace(state, policy=state.policy.model_copy(update=eased))):
            return threshold
    return 0
