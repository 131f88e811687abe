"""Gather the status of tables from metadata, without a JVM and without changing a table."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.clock import exact_span, show_ms, show_span
from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.manifests import DAMAGED
from firnlake.ingest.quarantine import Batch, batches
from firnlake.inspect.status.document import (
    Details,
    LaneCommit,
    LaneVerdict,
    LaneWork,
    Level,
    LevelStatus,
    PartitionCondition,
    PartitionStatus,
    Quarantined,
    Summary,
)
from firnlake.inspect.status.rows import Status, rows_of, write
from firnlake.inspect.status.seen import seen_of
from firnlake.inspect.status.space import history_of, mended_segments, space_of
from firnlake.inspect.status.verdicts import last_verdicts
from firnlake.job.failures import FailedPlan, failed_plans, told_once, waiting
from firnlake.job.lane import Lane
from firnlake.lanes.answer import Work
from firnlake.lanes.look import look, until
from firnlake.lanes.retention import retention
from firnlake.plan.make import plan_partition
from firnlake.plan.read_states import Sensed, read_once
from firnlake.table.arrays import Segments
from firnlake.table.history import CommitSummary, appended
from firnlake.table.policy import Policies
from firnlake.table.segment import LEVELS
from firnlake.table.settings import thresholds
from firnlake.table.state import State
from firnlake_expectations.table_report import Tombstones
from firnlake_expectations.wording import count

if TYPE_CHECKING:
    from firnlake.table.topic_partition import TopicPartition


QUARANTINED_SHOWN: Final = 100
"""Maximum number of batches of quarantined records in a status, largest first; ``firn quarantine`` lists all."""

_LOWEST, _HIGHEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def status_of(lake: Lake, identifier: str, now_ms: int) -> Status:
    """The status of table ``identifier`` at ``now_ms`` (epoch milliseconds).

    Raises RefusedError for a table that does not exist, is not a table of records or is damaged.
    """
    return read_status(lake, identifier, now_ms, last_verdicts(lake.reports_folder).get(identifier, ()))


def write_snapshot(lake: Lake, table: str, now_ms: int) -> Status:
    """Store the status of ``table`` at ``now_ms`` (epoch milliseconds) under the lake's home and return it.

    Raises RefusedError for an unknown table, or a folder that can't be written to.
    """
    status = status_of(lake, table, now_ms)
    write(status)
    seen_of(lake, status).write(lake.reports_folder)
    return status


def read_status(lake: Lake, identifier: str, now_ms: int, verdicts: tuple[LaneVerdict, ...]) -> Status:
    """As ``status_of``, with the table's latest ``verdicts``."""
    try:
        with lake.answering():
            return _status(lake, identifier, now_ms, verdicts)
    except UnavailableError as error:
        raise UnavailableError(f"table {identifier}: {error}") from error
    except DAMAGED as error:
        raise RefusedError(
            f"table {identifier} can't be read: {type(error).__name__} {error}; allowed: metadata files as they were "
            "written"
        ) from error


def _status(lake: Lake, identifier: str, now_ms: int, verdicts: tuple[LaneVerdict, ...]) -> Status:
    sensed = read_once(lake, identifier, now_ms)
    segments, states = sensed.segments, sensed.states()
    table = lake.table(identifier)
    ordered = sorted(states, key=lambda state: state.topic_partition)
    failed = failed_plans(lake, identifier)
    quarantined = batches(lake, identifier)
    moved: Counter[TopicPartition] = Counter()
    for batch in quarantined:
        moved[batch.topic_partition] += batch.records
    parts = [_partition(state, sensed, failed, moved[state.topic_partition]) for state in ordered]
    work, publications = work_on(table)
    policies = Policies.parse(identifier, table.properties)
    history, wrong_limits = history_of(table, identifier, now_ms)
    space, topics = space_of(ordered, quarantined, mended_segments(table, identifier), history, work)
    conditions = Counter(part.condition for part in parts)
    summary = Summary(
        table=identifier,
        snapshot_id=segments.snapshot_id,
        taken_ms=now_ms,
        topic_partitions=len(parts),
        levels=_sums(parts),
        conditions={condition: conditions[condition] for condition in PartitionCondition},
        max_dirty_ratio=max((part.dirty_ratio for part in parts), default=0.0),
        max_lag_ms=max((part.lag_ms for part in parts if part.lag_ms is not None), default=None),
        quarantined_records=moved.total(),
        tombstones=_tombstones(states, now_ms),
        space=space,
        last_publication=next(iter(publications), None),
        last_verdict=next(iter(verdicts), None),
        **work.model_dump(),
    )
    details = Details(
        publications=publications,
        verdicts=verdicts,
        quarantine=_largest(quarantined),
        topics=topics,
        strays=tuple(str(stray) for stray in segments.strays),
        thresholds=tuple(thresholds(identifier, policies.default, table.properties)),
        doubts=(*wrong_limits, *policies.doubts()),
    )
    return Status.of(lake.home, summary, details, rows_of(parts))


def _sums(parts: Iterable[PartitionStatus]) -> tuple[Level, Level, Level, Level]:
    """Sums over all topic partitions by level, without segments of an unknown level, which are blocked."""
    sums = {level: Counter[str]() for level in LEVELS}
    for counted in (counted for part in parts for counted in part.levels if counted.level in LEVELS):
        sums[counted.level].update(segments=counted.segments, records=counted.records, bytes=counted.bytes)
    landed, merged, cleaned, tail = (Level(**sums[level]) for level in LEVELS)
    return landed, merged, cleaned, tail


def _largest(quarantined: Iterable[Batch]) -> tuple[Quarantined, ...]:
    largest = sorted(quarantined, key=lambda batch: (-batch.records, batch.topic_partition))[:QUARANTINED_SHOWN]
    return tuple(Quarantined(**vars(batch) | {"topic_partition": str(batch.topic_partition)}) for batch in largest)


def _waiting(state: State, segments: Segments, failed: Sequence[FailedPlan]) -> list[FailedPlan]:
    """The failed plans that keep work from being tried again (C20), even if it was asked for before it was due."""
    tried = {marker.plan.lane for marker in failed if marker.plan.topic_partition == state.topic_partition}
    plans = [
        plan
        for lane in Lane
        if lane in tried
        and (plan := plan_partition(lane, segments, state) or plan_partition(lane, segments, state, force=True))
    ]
    return [marker for _, marker in waiting(failed, plans)]


def _partition(state: State, sensed: Sensed, every: Sequence[FailedPlan], quarantined: int) -> PartitionStatus:
    """The status of ``state``, which is of ``sensed``; ``every`` are the failed plans of the table."""
    failed = _waiting(state, sensed.segments, every)
    held = {marker.plan.lane for marker in failed}
    lanes = [lane for lane in Lane if lane not in held]
    is_quiet = state.topic_partition in sensed.quiet
    answers = {} if is_quiet else {lane.value: look(lane, state) for lane in lanes}
    works = {lane: answer.reason for lane, answer in answers.items() if isinstance(answer, Work)}
    at = state.now_ms if works and not state.blockers else until(state, lanes)
    kept = retention(state)
    wrong, holding, refused = state.blockers + state.oversized, _held(state), tuple(told_once(failed))
    young = _young(state)
    return PartitionStatus(
        topic=state.topic_partition.topic,
        partition=state.topic_partition.partition,
        condition=_condition(wrong, refused, works, holding + young),
        levels=_levels(state),
        dirty_ratio=state.dirty_ratio,
        lag_ms=_bounded(_lag_ms(state)),
        cleanable_bytes=state.cleanable_bytes,
        uncleanable_bytes=state.uncleanable_bytes,
        cleaned_through=state.cleaned_through,
        first_dirty_offset=state.first_dirty_offset,
        due=works,
        due_in_ms=None if at is None else _bounded(at - state.now_ms),
        blockers=wrong + holding + refused,
        retained=kept.kept if kept else None,
        waiting=young,
        quarantined=quarantined,
    )


def _condition(
    wrong: Sequence[str], refused: Sequence[str], works: Mapping[str, str], held: Sequence[str]
) -> PartitionCondition:
    for applies, condition in (
        (wrong, PartitionCondition.UNCLEANABLE),
        (refused, PartitionCondition.REFUSED),
        (works, PartitionCondition.DUE),
        (held, PartitionCondition.WAITING),
    ):
        if applies:
            return condition
    return PartitionCondition.IDLE


def _lag_ms(state: State) -> int | None:
    oldest = min((segment.oldest_ms for segment in state.cleanable), default=None)
    # Producers set the timestamps, and a record with a timestamp in the future has not waited.
    return None if oldest is None else max(0, state.now_ms - oldest)


def _bounded(milliseconds: int | None) -> int | None:
    """``milliseconds`` limited to 64 bits, because producers may set any timestamp."""
    return None if milliseconds is None else min(max(milliseconds, _LOWEST), _HIGHEST)


def _young(state: State) -> tuple[str, ...]:
    """A message about segments that the compaction lag holds back (C11); a future timestamp prolongs the wait."""
    held = state.held
    if not held or held.until_ms is None or not state.policy.compacts:
        return ()
    ahead = held.segment.newest_ms - state.now_ms
    newest = f"; its newest timestamp is {show_span(ahead)} in the future" if ahead > 0 else ""
    lag = f"min.compaction.lag.ms = {exact_span(state.policy.min_compaction_lag_ms)}"
    until = show_ms(held.until_ms)
    return (f"segment {held.segment} and later ones are not cleaned until {until} ({lag}{newest})",)


def _held(state: State) -> tuple[str, ...]:
    """Messages about segments that a transaction holds back (C10), and about tombstones that stray files keep (C7)."""
    undecided = (f"held back: {state.undecided}",) if state.undecided else ()
    return undecided + tuple(
        f"segment {stray.path} may hold records from offset {stray.base_offset} on: tombstones from there on are kept"
        for stray in state.strays
    )


def _tombstones(states: Iterable[State], now_ms: int) -> Tombstones:
    segments = [(one, state.policy.full_interval_ms) for state in states for one in state.segments]
    stamped = [(one.first_horizon_ms, one.stamped, wait) for one, wait in segments if one.first_horizon_ms is not None]
    return Tombstones(
        known=_sum(one.tombstones for one, _ in segments),
        stamped=sum(one.stamped for one, _ in segments),
        due=sum(number for at, number, _ in stamped if at <= now_ms),
        overdue=sum(number for at, number, wait in stamped if 0 <= wait < now_ms - at),
        oldest_ms=min((at for at, *_ in stamped), default=None),
    )


def _levels(state: State) -> tuple[LevelStatus, ...]:
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
                hidden=_sum(segment.hidden for segment in own),
                delete_files=max(segment.row_deletes for segment in own),
                base_offset=min((segment.base_offset for segment in filled), default=None),
                last_offset=max((segment.last_offset for segment in filled), default=None),
            )
        )
    return tuple(levels)


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum; None if a number is unknown."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


KEPT = 50
_CLEANING = frozenset(lane for lane in Lane if lane.traits.cleans)


def work_on(table: Table) -> tuple[LaneWork, tuple[LaneCommit, ...]]:
    """The bytes that landed in ``table`` since its oldest snapshot, Firn's work on them, and Firn's last commits."""
    landed, core_ms, publications = 0, 0, []
    since = None
    for snapshot in ancestors(table):
        since = snapshot.timestamp_ms
        if told := CommitSummary.of(snapshot):
            publications.append(_publication(snapshot, told))
            core_ms += told.core_ms
        elif added := appended(snapshot):
            landed += added.bytes
    work = LaneWork(
        landed_bytes=landed,
        written_bytes=sum(one.bytes_out for one in publications),
        saved_bytes=sum(one.bytes_in - one.bytes_out for one in publications),
        cleaned_bytes=sum(one.bytes_in - one.bytes_out for one in publications if one.lane in _CLEANING),
        core_ms=core_ms,
        since_ms=since,
    )
    return work, tuple(publications[:KEPT])


def _publication(snapshot: Snapshot, told: CommitSummary) -> LaneCommit:
    return LaneCommit(
        snapshot_id=snapshot.snapshot_id,
        at_ms=snapshot.timestamp_ms,
        lane=told.lane,
        what=told.topic_partition or count(told.plans, "topic partition"),
        reason=told.reason,
        validation=told.validation,
        **told.counts.model_dump(include=set(LaneCommit.model_fields)),
    )
