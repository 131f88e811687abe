"""Gather the status of tables from metadata: no JVM, nothing changed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any

from pipeline.clock import show_ms
from pipeline.errors import RefusedError
from pipeline.lake import Lake, records
from pipeline.lake.mapping import COLUMNS
from pipeline.lake.topic_partition import TopicPartition
from pipeline.plan import FailedPlan, failed_plans, plan_partition, waiting
from pipeline.plan.plan import STAGE_INFIX
from pipeline.policy import Policies
from pipeline.quarantine import quarantine
from pipeline.segments import Segments
from pipeline.sense import Lane, PartitionState, due, due_at, retention, sense_table
from pipeline.status.feasible import doubts, doubts_at_rate
from pipeline.tombstones import tombstones


@dataclass(frozen=True)
class LevelStatus:
    """One level of a topic partition. Bytes are file sizes, offsets inclusive, None without a record."""

    level: int
    segments: int
    records: int
    bytes: int
    tombstones: int | None
    """None where only the records tell."""
    base_offset: int | None
    last_offset: int | None


class Condition(StrEnum):
    """Where a topic partition stands; the first that fits, in this order."""

    UNCLEANABLE = "uncleanable"
    """Something in it can't be cleaned, whoever tries (C20)."""
    REFUSED = "refused"
    """What is due was tried and refused; it waits until its segments change (C20)."""
    DUE = "due"
    WAITING = "waiting"
    """Something is left alone for now: by a lag, an active segment, a transaction, a stray file (C7, C10, C11)."""
    IDLE = "idle"
    """Nothing is due and nothing is in the way."""


@dataclass(frozen=True)
class PartitionStatus:
    """One topic partition: its levels, the dirty ratio (C12), and what is due, or what is in the way (C20)."""

    topic_partition: TopicPartition
    condition: Condition
    levels: tuple[LevelStatus, ...]
    dirty_ratio: float
    lag_ms: int | None
    """How long the oldest cleanable record has waited; None when nothing is cleanable."""
    cleanable_bytes: int
    uncleanable_bytes: int
    cleaned_through: int | None
    first_dirty_offset: int | None
    """Where a cleaning begins, as Kafka counts it; None without a record."""
    due: dict[str, str]
    due_in_ms: int | None
    """Until a lane is due by the clock alone, 0 when one is; None when only new data can make one due."""
    blockers: tuple[str, ...]
    retained: str | None
    """The oldest segment that retention leaves, and what keeps it; None where the policy does not delete (C19)."""
    waiting: tuple[str, ...]
    """What is left alone for now, and until when (C11)."""


@dataclass(frozen=True)
class Status:
    """One table as of its current snapshot; None while it has none."""

    table: str
    snapshot_id: int | None
    partitions: tuple[PartitionStatus, ...]
    strays: tuple[str, ...]
    """Live files that belong to no topic partition, or to nobody knows which, each with what is allowed (C20)."""
    doubts: tuple[str, ...]
    """Declared lags that the thresholds can't hold, by themselves or at what arrives now, and what would (C21)."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready names and values; a topic partition is its topic and its partition."""
        return asdict(self) | {
            "partitions": [
                asdict(part) | {"topic_partition": None} | part.topic_partition._asdict() for part in self.partitions
            ]
        }


def status_of(lake: Lake, identifier: str | None, now_ms: int) -> list[Status]:
    """The status of table ``identifier``, or of every table of records in the catalog, at ``now_ms``.

    Raises RefusedError for a named table that does not exist or is no table of records.
    """
    if identifier is not None:
        return [_status(lake, identifier, now_ms)]
    names = (name for namespace in lake.namespaces() for name in lake.tables(namespace))
    return [_status(lake, name, now_ms) for name in names if _is_table_of_records(lake, name)]


def _is_table_of_records(lake: Lake, identifier: str) -> bool:
    if STAGE_INFIX in identifier or identifier.endswith((quarantine.SUFFIX, tombstones.SUFFIX)):
        return False
    table = lake.table(identifier)
    try:
        records.check(table, identifier)
    except RefusedError:
        return COLUMNS in table.properties
    return True


def _status(lake: Lake, identifier: str, now_ms: int) -> Status:
    segments, states = sense_table(lake, identifier, now_ms)
    policies = Policies.parse(identifier, lake.table(identifier).properties)
    ordered = sorted(states, key=lambda state: state.topic_partition)
    failed = failed_plans(lake, identifier)
    return Status(
        identifier,
        segments.snapshot_id,
        tuple(_partition(state, _waiting(state, segments, failed)) for state in ordered),
        tuple(str(stray) for stray in segments.strays),
        (*doubts(policies), *doubts_at_rate(ordered)),
    )


def _waiting(state: PartitionState, segments: Segments, failed: Sequence[FailedPlan]) -> list[FailedPlan]:
    """The markers that keep from being tried again what is due now (C20)."""
    lanes = {marker.plan.lane for marker in failed if marker.plan.topic_partition == state.topic_partition}
    plans = [plan for lane in lanes if (plan := plan_partition(lane, segments, state))]
    return [marker for _, marker in waiting(failed, plans)]


def _partition(state: PartitionState, failed: Sequence[FailedPlan]) -> PartitionStatus:
    held = {marker.plan.lane for marker in failed}
    lanes = [lane for lane in Lane if lane not in held]
    found = {lane: due(lane, state) for lane in lanes}
    at = due_at(state, lanes)
    kept = retention(state)
    wrong, holding, refused = state.blockers + state.oversized, _held(state), tuple(str(marker) for marker in failed)
    young = _young(state)
    works = {lane.value: work.reason for lane, work in found.items() if work}
    return PartitionStatus(
        topic_partition=state.topic_partition,
        condition=_condition(wrong, refused, works, holding + young),
        levels=_levels(state),
        dirty_ratio=state.dirty_ratio,
        lag_ms=_lag_ms(state),
        cleanable_bytes=state.cleanable_bytes,
        uncleanable_bytes=state.uncleanable_bytes,
        cleaned_through=state.cleaned_through,
        first_dirty_offset=state.first_dirty_offset,
        due=works,
        due_in_ms=None if at is None else at - state.now_ms,
        blockers=wrong + holding + refused,
        retained=kept.kept if kept else None,
        waiting=young,
    )


def _condition(
    wrong: Sequence[str], refused: Sequence[str], works: Mapping[str, str], held: Sequence[str]
) -> Condition:
    for found, condition in (
        (wrong, Condition.UNCLEANABLE),
        (refused, Condition.REFUSED),
        (works, Condition.DUE),
        (held, Condition.WAITING),
    ):
        if found:
            return condition
    return Condition.IDLE


def _lag_ms(state: PartitionState) -> int | None:
    oldest = min((segment.oldest_ms for segment in state.cleanable), default=None)
    # Timestamps are the producers': one in the future has not waited.
    return None if oldest is None else max(0, state.now_ms - oldest)


def _young(state: PartitionState) -> tuple[str, ...]:
    """C11: what the lag holds back. A timestamp in the future holds for long: that is said as well."""
    held = state.held
    if not held or held.until_ms is None or not state.policy.compacts:
        return ()
    ahead = held.segment.newest_ms - state.now_ms
    newest = f", its newest timestamp lies {ahead} ms in the future" if ahead > 0 else ""
    lag = f"firn.min.compaction.lag.ms {state.policy.min_compaction_lag_ms}"
    until = show_ms(held.until_ms)
    return (f"segment {held.segment} and what lies past it is left alone until {until} ({lag}{newest})",)


def _held(state: PartitionState) -> tuple[str, ...]:
    """C10: what a transaction holds back. C7: what strays keep from going."""
    undecided = (f"held back: {state.undecided}",) if state.undecided else ()
    return undecided + tuple(
        f"segment {stray.path} may hold records from offset {stray.base_offset} on: tombstones at or past it stay"
        for stray in state.strays
    )


def _levels(state: PartitionState) -> tuple[LevelStatus, ...]:
    ordered = sorted(state.segments, key=lambda segment: segment.level)
    levels = []
    for level, group in groupby(ordered, key=lambda segment: segment.level):
        own = list(group)
        filled = [segment for segment in own if segment.records and segment.base_offset >= 0]
        levels.append(
            LevelStatus(
                level=level,
                segments=len(own),
                records=sum(segment.records for segment in own),
                bytes=sum(segment.bytes for segment in own),
                tombstones=_sum(segment.tombstones for segment in own),
                base_offset=min((segment.base_offset for segment in filled), default=None),
                last_offset=max((segment.last_offset for segment in filled), default=None),
            )
        )
    return tuple(levels)


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum; None when a number is not known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
