"""Make plans from states: pure functions, no I/O but what ``plan_table`` reads of the table and its stages."""

import logging
from collections.abc import Iterable
from datetime import datetime

from pipeline.clock import to_ms
from pipeline.lake import Lake
from pipeline.plan.failure import failed_plans, waiting
from pipeline.plan.plan import Input, Plan
from pipeline.segments import Segment, Segments, TopicPartition
from pipeline.segments.segment import TAIL
from pipeline.sense import Due, Lane, PartitionState, due, sense_table
from pipeline.sense.lanes import ANY_POLICY

log = logging.getLogger(__name__)


def plan_table(
    lake: Lake,
    identifier: str,
    lane: Lane | str,
    now: datetime | int,
    force: bool = False,
    only: Iterable[TopicPartition] = (),
) -> list[Plan]:
    """The plans of ``lane`` for table ``identifier`` as of ``now`` (aware, or epoch milliseconds); the filthiest first.

    ``only`` restricts the work to these topic partitions. A plan that failed on the same segments before is left out,
    with a warning in the log, unless ``force`` asks for another try (C20). Changes nothing. Raises RefusedError for an
    unknown table, a table without the record columns, or a wrong property.
    """
    now_ms = now if isinstance(now, int) else to_ms(now)
    # Whole segments are dropped whatever is in them: no record is looked at for that.
    segments, states = sense_table(lake, identifier, now_ms, tuple(only), look_at_transactions=lane != Lane.RETAIN)
    plans = [plan for state in states if (plan := plan_partition(Lane(lane), segments, state, force))]
    if force or not plans:
        return plans
    held = {}
    for plan, marker in waiting(failed_plans(lake, identifier), plans):
        held[plan.id] = marker
        log.warning("%s: %s", identifier, marker)
    return [plan for plan in plans if plan.id not in held]


def plan_partition(lane: Lane, segments: Segments, state: PartitionState, force: bool = False) -> Plan | None:
    """The plan of ``lane`` for one topic partition, or None when nothing is due."""
    work = due(lane, state, force)
    inputs = _inputs(work, state) if work else ()
    if not work or not inputs or segments.snapshot_id is None:
        return None
    policy = state.policy
    taken = {segment.path for segment in inputs}
    outside = [segment.base_offset for segment in state.segments if segment.path not in taken and segment.records]
    outside += [stray.base_offset for stray in state.strays]
    return Plan(
        table=segments.identifier,
        table_uuid=segments.table_uuid,
        snapshot_id=segments.snapshot_id,
        lane=lane,
        topic=state.topic_partition.topic,
        partition=state.topic_partition.partition,
        now_ms=state.now_ms,
        reason=work.reason,
        inputs=tuple(Input.of(segment) for segment in inputs),
        buried=_buried(lane, state, inputs),
        inputs_per_segment=policy.merge_segments if lane is Lane.MERGE else None,
        segment_bytes=policy.segment_target,
        clean_below=min(outside, default=None),
        log_end_offset=state.log_end_offset,
        delete_retention_ms=policy.delete_retention_ms,
        cleaner_threads=policy.cleaner_threads,
        left_out=work.left_out,
        transactional=lane not in ANY_POLICY and any(segment.transactional or segment.control for segment in inputs),
        markers=() if lane in ANY_POLICY else state.transactions.deciding(inputs),
    ).sealed()


def _inputs(work: Due, state: PartitionState) -> tuple[Segment, ...]:
    """What the plan takes, in offset order: what is due, and with it the tail in a full clean (C16)."""
    taken = work.candidates + state.tail_inputs if work.lane is Lane.FULL else work.candidates
    return tuple(sorted(taken, key=lambda segment: segment.order))


def _buried(lane: Lane, state: PartitionState, inputs: tuple[Segment, ...]) -> tuple[Input, ...]:
    """The removed tombstones that may be newer than a record of the head's inputs; the tail holds none older than them.

    Only `full` brings tombstones back, and it is due as soon as a head reaches below one.
    """
    head = [segment.base_offset for segment in inputs if segment.level != TAIL]
    if lane is not Lane.FULL or not head:
        return ()
    return tuple(Input.of(segment) for segment in state.buried if segment.last_offset > min(head))
