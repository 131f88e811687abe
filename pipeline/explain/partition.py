"""Explanation of a topic partition: per lane what is due, what is missing, what blocks it, until when (C11 to C20)."""

from dataclasses import dataclass

from pipeline.errors import RefusedError
from pipeline.explain.holds import Prospects
from pipeline.explain.missing import RULES
from pipeline.explain.reason import Reason
from pipeline.lake import Lake
from pipeline.lake.topic_partition import TopicPartition
from pipeline.plan.failure import failed_plans
from pipeline.sense import Lane, PartitionState, due_at, sense_table


@dataclass(frozen=True)
class LaneOutlook:
    """One lane: the plan that is due, or what is missing; ``next_ms`` is the time when the clock alone makes it due."""

    lane: Lane
    plan: str | None
    segments: int
    reason: Reason
    next_ms: int | None = None


@dataclass(frozen=True)
class PartitionExplanation:
    """One topic partition. Offsets are inclusive, bytes are file sizes."""

    table: str
    topic_partition: TopicPartition
    head_segments: int
    head_bytes: int
    cleanable_bytes: int
    tail_segments: int
    tail_bytes: int
    dirty_ratio: float
    cleaned_through: int | None
    log_end_offset: int
    lanes: tuple[LaneOutlook, ...]
    blockers: tuple[Reason, ...]


def explain_partition(
    lake: Lake, identifier: str, topic_partition: TopicPartition, now_ms: int
) -> PartitionExplanation:
    """Explain ``topic_partition`` of table ``identifier`` at ``now_ms``.

    Raises RefusedError for an unknown table or topic partition.
    """
    segments, states = sense_table(lake, identifier, now_ms, {topic_partition})
    if not states:
        names = ", ".join(sorted(map(str, segments.by_partition))[:20]) or "none"
        raise RefusedError(f"table {identifier} holds no segment of {topic_partition}; found: {names}")
    (state,) = states
    prospects = Prospects.of(segments, state, failed_plans(lake, identifier))
    return PartitionExplanation(
        table=identifier,
        topic_partition=topic_partition,
        head_segments=len(state.head),
        head_bytes=state.cleanable_bytes + state.uncleanable_bytes,
        cleanable_bytes=state.cleanable_bytes,
        tail_segments=len(state.tail),
        tail_bytes=state.tail_bytes,
        dirty_ratio=state.dirty_ratio,
        cleaned_through=state.cleaned_through,
        log_end_offset=state.log_end_offset,
        lanes=tuple(_outlook(lane, prospects) for lane in Lane),
        blockers=tuple(_blockers(state)),
    )


def _outlook(lane: Lane, prospects: Prospects) -> LaneOutlook:
    plan = prospects.due.get(lane)
    if plan:
        return LaneOutlook(lane, plan.id, len(plan.inputs), Reason(RULES[lane], plan.reason))
    next_ms = None if lane in prospects.failed else due_at(prospects.state, [lane])
    return LaneOutlook(lane, None, 0, prospects.not_due(lane), next_ms)


def _blockers(state: PartitionState) -> list[Reason]:
    """Everything that blocks the topic partition now, in any lane."""
    reasons = [Reason("C20", blocker) for blocker in state.blockers]
    reasons += [Reason("C17", oversized) for oversized in state.oversized]
    for stray in state.strays:
        reasons.append(Reason("C7", f"{stray}: tombstones at or past offset {stray.base_offset} stay"))
    if state.held and state.policy.compacts:
        why = f"{state.held.segment} is {state.held.why}: it and everything after it wait"
        reasons.append(Reason(state.held.rule, why, state.held.until_ms))
    return reasons
