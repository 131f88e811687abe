"""Gather the status of tables from metadata, without a JVM and without changing a table.

The bytes of history come from snapshot summaries, which cost nothing to read but cover only the table as a whole.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import islice, pairwise
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import FirnError, RefusedError, UnavailableError
from firnlake.iceberg.branches import FIRN_BRANCHES, MENDED, ancestors, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.manifests import DAMAGED
from firnlake.iceberg.snapshots import retained
from firnlake.ingest.quarantine import Batch, batches
from firnlake.inspect.outlook import Outlook, in_words, outlooks
from firnlake.inspect.status import (
    LaneCommit,
    Level,
    PartitionCondition,
    PartitionStatus,
    Status,
    TopicSpace,
    sums,
    write,
)
from firnlake.job.failures import told_once
from firnlake.job.reports import copy_reports
from firnlake.lanes import Lane, until
from firnlake.maintain.mend import mended
from firnlake.progress import Progress
from firnlake.table.history import CommitSummary, appended_bytes, is_mending, removed_bytes
from firnlake.table.manifest_reader import read
from firnlake.table.policy import Policies
from firnlake.table.records import is_table_of_records
from firnlake.table.state import State
from firnlake_expectations.data_quality import Seen, Tombstones
from firnlake_expectations.wording import count, log_name

QUARANTINED_SHOWN: Final = 100
"""Maximum number of batches of quarantined records in a status, largest first; ``firn quarantine`` lists all."""
PUBLICATIONS_SHOWN: Final = 50
MENDED_SHOWN: Final = 50
"""Maximum number of mended files that pages list, newest first."""

log = logging.getLogger(__name__)


def status_of(lake: Lake, identifier: str, now_ms: int) -> Status:
    """The status of table ``identifier`` at ``now_ms`` (epoch milliseconds).

    Raises RefusedError for a table that does not exist, is not a table of records or is damaged.
    """
    try:
        with lake.answering():
            return _status(lake, identifier, now_ms)
    except UnavailableError as error:
        raise UnavailableError(f"table {identifier}: {error}") from error
    except DAMAGED as error:
        raise RefusedError(
            f"table {identifier} can't be read: {type(error).__name__} {error}; allowed: metadata files as they were "
            "written"
        ) from error


def each_status(lake: Lake, names: Collection[str], now_ms: int) -> dict[str, Status | FirnError]:
    """By name, the status at ``now_ms`` of those tables ``names`` that are tables of records, or the reason why one
    can't be read, which hides no other table.

    A table that can't be loaded counts as a table of records, because nobody knows what it is.
    """
    found: dict[str, Status | FirnError] = {}
    with Progress("status of tables", len(names)) as progress:
        for name in names:
            try:
                if is_table_of_records(lake.table(name), name):
                    found[name] = status_of(lake, name, now_ms)
            except FirnError as error:
                found[name] = error
            progress.advance()
    return found


def write_snapshot(lake: Lake, table: str, now_ms: int) -> Status:
    """Store the status of ``table`` at ``now_ms`` (epoch milliseconds) under the lake's home and return it.

    Raises RefusedError for an unknown table, or a folder that can't be written to.
    """
    with lake.answering():
        copy_reports(lake.table(table), table, lake.reports_folder)
    status = status_of(lake, table, now_ms)
    write(lake.home, status)
    _seen(lake, status).write(lake.reports_folder)
    return status


def _status(lake: Lake, identifier: str, now_ms: int) -> Status:
    segments, by_partition = outlooks(lake, identifier, now_ms)
    states, table = [outlook.state for outlook in by_partition.values()], lake.table(identifier)
    quarantined = sorted(batches(lake, identifier), key=lambda batch: (-batch.records, batch.topic_partition))
    moved = Counter[object]()
    for batch in quarantined:
        moved[batch.topic_partition] += batch.records
    parts = tuple(_partition(outlook, moved[where]) for where, outlook in by_partition.items())
    policies = Policies.parse(identifier, table.properties)
    conditions = Counter(part.condition for part in parts)
    history = list(ancestors(table))
    commits = [_commit(snapshot, summary) for snapshot in history if (summary := CommitSummary.of(snapshot))]
    doubts, staying = list(policies.doubts()), {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    try:
        staying = {*retained(identifier, table.metadata, now_ms).snapshots}
    except RefusedError as error:
        doubts.insert(0, str(error))
    history_bytes, expirable_bytes = history_space(table, staying)
    return Status(
        table=identifier,
        snapshot_id=segments.snapshot_id,
        taken_ms=now_ms,
        since_ms=history[-1].timestamp_ms if history else None,
        landed_bytes=sum(map(appended_bytes, history)),
        written_bytes=sum(commit.bytes_out for commit in commits),
        saved_bytes=sum(commit.bytes_in - commit.bytes_out for commit in commits),
        topic_partitions=len(parts),
        levels=sums(parts),
        conditions={condition: conditions[condition] for condition in PartitionCondition},
        max_dirty_ratio=max((part.dirty_ratio for part in parts), default=0.0),
        max_lag_ms=max((part.lag_ms for part in parts if part.lag_ms is not None), default=None),
        quarantined_records=moved.total(),
        tombstones=_tombstones(states, now_ms),
        history_bytes=history_bytes,
        expirable_bytes=expirable_bytes,
        publications=tuple(commits[:PUBLICATIONS_SHOWN]),
        quarantine=tuple(quarantined[:QUARANTINED_SHOWN]),
        topics=tuple(_spaces(table, identifier, states, quarantined)),
        strays=tuple(str(stray) for stray in segments.strays),
        doubts=tuple(doubts),
        partitions=parts,
    )


def _partition(outlook: Outlook, quarantined: int) -> PartitionStatus:
    state = outlook.state
    refused = tuple(told_once(outlook.failed.values()))
    young = [reason for reason in outlook.holding if reason.until_ms is not None]
    holding = [reason for reason in outlook.holding if reason.rule in ("C7", "C10")]
    due = {lane.value: work.reason for lane, work in outlook.works.items()}
    at: int | None = state.now_ms
    if not due or state.blockers:
        at = until(state, [lane for lane in Lane if lane not in outlook.failed])
    causes = (
        (outlook.wrong, PartitionCondition.UNCLEANABLE),
        (refused, PartitionCondition.REFUSED),
        (due, PartitionCondition.DUE),
        (holding + young, PartitionCondition.WAITING),
    )
    return PartitionStatus(
        topic_partition=state.topic_partition,
        condition=next((condition for cause, condition in causes if cause), PartitionCondition.IDLE),
        levels=tuple(_levels(state)),
        dirty_ratio=state.dirty_ratio,
        lag_ms=_lag_ms(state),
        cleanable_bytes=state.cleanable_bytes,
        uncleanable_bytes=state.uncleanable_bytes,
        cleaned_through=state.cleaned_through,
        first_dirty_offset=state.first_dirty_offset,
        due=due,
        due_in_ms=None if at is None else at - state.now_ms,
        blockers=(*map(in_words, (*outlook.wrong, *holding)), *refused),
        waiting=tuple(map(in_words, young)),
        quarantined=quarantined,
    )


def _lag_ms(state: State) -> int | None:
    oldest = min((segment.oldest_ms for segment in state.cleanable), default=None)
    # Producers set the timestamps, and a record with a timestamp in the future has not waited.
    return None if oldest is None else max(0, state.now_ms - oldest)


def _levels(state: State) -> Iterable[Level]:
    for level in sorted({segment.level for segment in state.segments}):
        own = [segment for segment in state.segments if segment.level == level]
        yield Level(
            level=level,
            segments=len(own),
            records=sum(segment.records for segment in own),
            bytes=sum(segment.bytes for segment in own),
            tombstones=_sum(segment.tombstones for segment in own),
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


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum; None if a number is unknown."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _spaces(
    table: Table, identifier: str, states: Iterable[State], quarantined: Iterable[Batch]
) -> Iterator[TopicSpace]:
    """The space of each topic, by name."""
    main, side, on_main = Counter[str](), Counter[str](), set[str]()
    for state in states:
        on_main |= {segment.path for segment in state.segments}
        main[state.topic_partition.topic] += sum(segment.bytes for segment in state.segments)
        side[state.topic_partition.topic] += sum(segment.bytes for segment in state.removed_tombstones)
    for batch in quarantined:
        side[batch.topic_partition.topic] += batch.bytes
    mended = read(on_branch(table, MENDED), identifier).each() if MENDED in table.metadata.refs else ()
    for segment in mended:
        # After a rollback, main may have some of what was mended again.
        side[segment.topic_partition.topic] += 0 if segment.path in on_main else segment.bytes
    for topic in sorted({*main, *side}):
        yield TopicSpace(topic=topic, main_bytes=main[topic], side_bytes=side[topic])


def _commit(snapshot: Snapshot, summary: CommitSummary) -> LaneCommit:
    return LaneCommit(
        snapshot_id=snapshot.snapshot_id,
        at_ms=snapshot.timestamp_ms,
        lane=summary.lane,
        what=str(summary.topic_partition or count(summary.plans, "topic partition")),
        reason=summary.reason,
        validation=summary.validation,
        **summary.counts.model_dump(),
    )


def history_space(table: Table, staying: Collection[int]) -> tuple[int, int]:
    """The bytes of the files that commits removed from main or from Firn's branches, but that history still holds; and
    those of them that nothing holds any longer if only the snapshots with the ids ``staying`` stay.

    The parent of a commit is the last snapshot that has the files that the commit removed. What a mending has taken is
    lost, or on the branch of mended files.
    """
    lines = (ancestors(on_branch(table, name)) for name in (MAIN_BRANCH, *FIRN_BRANCHES))
    pairs = [(commit, before) for line in lines for commit, before in pairwise(line) if not is_mending(commit)]
    expiring = [commit for commit, before in pairs if before.snapshot_id not in staying]
    return sum(removed_bytes(commit) for commit, _ in pairs), sum(map(removed_bytes, expiring))


def _seen(lake: Lake, status: Status) -> Seen:
    """What the data-quality pages need of the table besides its verdicts."""
    return Seen(
        table=status.table,
        snapshot_id=status.snapshot_id,
        taken_ms=status.taken_ms,
        topic_partitions={log_name(*one.topic_partition): one.condition.value for one in status.partitions},
        held={name: reason for (name, _), reason in status.matters.items()},
        tombstones=status.tombstones,
        published={one.validation: one.snapshot_id for one in status.publications if one.validation},
        mended=_mended(lake, status.table),
    )


def _mended(lake: Lake, identifier: str) -> tuple[str, ...]:
    """What the newest mendings took; nothing if a manifest of a snapshot before a mending is gone or damaged."""
    try:
        with lake.answering():
            return tuple(islice(mended(lake.table(identifier), identifier), MENDED_SHOWN))
    except (FirnError, *DAMAGED) as error:
        log.warning("table %s: its report lists no mendings: %s", identifier, error)
        return ()
