"""The status of a table: one document, from where it is gathered to where the command and the pages show it.

It is gathered from metadata, without a JVM and without changing a table. The bytes of history come from snapshot
summaries, which cost nothing to read but cover only the table as a whole. A run stores the status as JSON under
``$FIRN_HOME/status``. The file is written atomically, so readers need no lock. It can be made again at any time, and no
decision depends on it. Bytes are file sizes, times are epoch milliseconds, durations are milliseconds.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from pydantic import TypeAdapter, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.errors import FirnError, RefusedError, WaitingError
from firnlake.iceberg.branches import FIRN_BRANCHES, MENDED, ancestors, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import FrozenModel, metadata_folder, write_whole
from firnlake.iceberg.manifests import DAMAGED
from firnlake.ingest.quarantine import Batch, batches
from firnlake.inspect.outlook import Outlook, in_words, outlooks
from firnlake.job.outcomes import AGAIN_MS, told_once
from firnlake.job.reports import copy_reports
from firnlake.lanes import Lane, until
from firnlake.lanes.answer import Figures
from firnlake.lanes.dirty_ratio import dirty_ratio
from firnlake.maintain.expire import retained
from firnlake.maintain.mend import mended
from firnlake.plan.read_states import Sensed
from firnlake.progress import Progress
from firnlake.table.columns import is_table_of_records
from firnlake.table.history import CommitSummary, appended_bytes, is_mending, removed_bytes
from firnlake.table.manifest_reader import read as read_segments
from firnlake.table.policy import Policies
from firnlake.table.segment import LEVELS, UNKNOWN, TopicPartition
from firnlake.table.state import State
from firnlake_expectations.data_quality import Seen, Tombstones, read_document, write_page
from firnlake_expectations.wording import count, log_name

log = logging.getLogger(__name__)

QUARANTINED_SHOWN: Final = 100
"""Maximum number of batches of quarantined records in a status, largest first; ``firn quarantine`` lists all."""
PUBLICATIONS_SHOWN: Final = 50
MENDED_SHOWN: Final = 50
"""Maximum number of mended files that pages list, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level of one topic partition, or of all together."""

    level: int
    segments: int = 0
    records: int = 0
    bytes: int = 0
    tombstones: int | None = None
    """Number of tombstones; None if metadata does not have the number."""


class PartitionCondition(StrEnum):
    """Condition of a topic partition: the first member that applies, in this order."""

    UNCLEANABLE = "uncleanable"
    """Some of its segments can't be cleaned in any run (C20), or a transaction has been open for too long (C10)."""
    REFUSED = "refused"
    """A due plan failed. The plan waits until its segments change, or for a day (C20)."""
    DUE = "due"
    WAITING = "waiting"
    """Some of its segments wait for a lag, a transaction, or a stray file (C7, C10, C11)."""
    IDLE = "idle"
    """Nothing is due and nothing is blocked."""


FOR_PEOPLE: Final = (PartitionCondition.UNCLEANABLE, PartitionCondition.REFUSED)
"""The conditions in which a topic partition waits until a person does something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One topic partition: its levels, dirty ratio (C12), due lanes, and blockers (C20)."""

    topic_partition: TopicPartition
    condition: PartitionCondition
    levels: tuple[Level, ...]
    dirty_ratio: float
    lag_ms: int | None
    """Time that the oldest cleanable record has waited, milliseconds; None if nothing is cleanable."""
    cleanable_bytes: int
    uncleanable_bytes: int
    cleaned_through: int | None
    first_dirty_offset: int | None
    """First offset that a cleaning would read, as Kafka defines it; None if the topic partition has no record."""
    due: dict[str, str]
    """Reason for each due lane."""
    due_in_ms: int | None
    """Milliseconds until time alone makes a lane due; 0 if a lane is due now; None if only new data can make it due."""
    blockers: tuple[str, ...]
    waiting: tuple[str, ...]
    """Segments that must wait, each with the reason and, if known, the end of the wait (C11)."""
    quarantined: int
    """Number of records of the topic partition in the quarantine (C5)."""

    @property
    def name(self) -> str:
        """The name in Kafka's form: ``orders-3``."""
        return str(self.topic_partition)

    @property
    def segments(self) -> int:
        """Number of segments on all levels."""
        return sum(level.segments for level in self.levels)

    @property
    def records(self) -> int:
        """Number of records on all levels."""
        return sum(level.records for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of all levels."""
        return sum(level.bytes for level in self.levels)

    @property
    def by_level(self) -> tuple[Level, Level, Level, Level]:
        """Levels L0 to L3, also those without a segment."""
        return sums([self])

    @property
    def why(self) -> tuple[str, ...]:
        """Why lanes are due and segments wait, a text for each reason."""
        return (*(f"{lane}: {reason}" for lane, reason in self.due.items()), *self.blockers, *self.waiting)

    def mentions(self, text: str) -> bool:
        """True if the lower-case ``text`` occurs in the name or in a reason, in any case."""
        return any(text in said.lower() for said in (self.name, *self.why))


def sums(parts: Iterable[PartitionStatus]) -> tuple[Level, Level, Level, Level]:
    """Sums over topic partitions for levels L0 to L3, without segments of an unknown level, which are blocked."""
    totals = {level: Counter[str]() for level in LEVELS}
    for one in (one for part in parts for one in part.levels if one.level in LEVELS):
        totals[one.level].update(segments=one.segments, records=one.records, bytes=one.bytes)
    landed, merged, cleaned, tail = (Level(level=level, **totals[level]) for level in LEVELS)
    return landed, merged, cleaned, tail


class TopicSpace(FrozenModel):
    """File bytes of one topic on main and on Firn's branches."""

    topic: str
    main_bytes: int
    """Bytes of the data files that readers of main see."""
    side_bytes: int
    """Bytes of the data files on Firn's side branches: quarantine, removed tombstones and mended files."""


STRAYS: Final = "what belongs to no topic partition"
"""The name of what waits for a person if the topic partition of live files is missing or unknown."""


class Status(FrozenModel):
    """The status of a table at ``taken_ms`` and ``snapshot_id``, which is None if the table has no snapshot."""

    table: str
    snapshot_id: int | None
    taken_ms: int
    since_ms: int | None
    """Commit time of the table's oldest snapshot; None without a snapshot."""
    landed_bytes: int
    """Bytes that other writers have appended since then."""
    written_bytes: int
    """Bytes that Firn's commits have written since then."""
    saved_bytes: int
    """Bytes that Firn's commits removed minus bytes that they added."""
    topic_partitions: int
    levels: tuple[Level, Level, Level, Level]
    """Levels L0 to L3; L3 is the tail."""
    conditions: dict[PartitionCondition, int]
    """Number of topic partitions in each condition."""
    max_dirty_ratio: float
    max_lag_ms: int | None
    """Longest time that a cleanable record has waited, milliseconds; None if nothing is cleanable."""
    quarantined_records: int
    tombstones: Tombstones
    history_bytes: int
    """Bytes of the data and delete files that commits removed from main or from Firn's branches, but that an older
    snapshot still holds, by the sizes that the summaries of snapshots tell."""
    expirable_bytes: int
    """The part of ``history_bytes`` that the expiry of snapshots would free now, by the limits ``history.expire.*``,
    unless a tag or another writer's branch shares the files."""
    publications: tuple[CommitSummary, ...]
    """The latest, newest first."""
    quarantine: tuple[Batch, ...]
    """The largest batches of quarantined records; ``firn quarantine`` lists all."""
    topics: tuple[TopicSpace, ...]
    """The space of each topic, by name."""
    strays: tuple[str, ...]
    """Messages about live files whose topic partition is missing or unknown (C20)."""
    doubts: tuple[str, ...]
    """Messages about lags that the settings can't meet (C21), and about wrong values of ``history.expire.*``."""
    partitions: tuple[PartitionStatus, ...]
    """The topic partitions, by topic and partition."""

    @property
    def last_publication(self) -> CommitSummary | None:
        """Firn's newest commit; None if there is none."""
        return next(iter(self.publications), None)

    @property
    def uncleanable_partitions(self) -> int:
        """Number of topic partitions that can't be cleaned or whose due plan failed."""
        return sum(self.conditions[condition] for condition in FOR_PEOPLE)

    @property
    def write_amplification(self) -> float | None:
        """Bytes that plans wrote, divided by the bytes that landed; None if no bytes landed."""
        return self.written_bytes / self.landed_bytes if self.landed_bytes else None

    @property
    def bytes(self) -> int:
        """All live bytes."""
        return sum(level.bytes for level in self.levels)

    @property
    def main_bytes(self) -> int:
        """Bytes of the data files that readers of main see, without those of no known topic."""
        return sum(one.main_bytes for one in self.topics)

    @property
    def side_bytes(self) -> int:
        """Bytes of the data files on Firn's side branches, without those of no known topic."""
        return sum(one.side_bytes for one in self.topics)

    def found(self, text: str = "", shown: PartitionCondition | None = None) -> list[PartitionStatus]:
        """The topic partitions that mention ``text``, in the condition ``shown`` (None: in any): in the order of their
        conditions, and of each the dirtiest first."""
        text, order = text.strip().lower(), list(PartitionCondition)
        chosen = (part for part in self.partitions if shown in (None, part.condition) and part.mentions(text))
        return sorted(chosen, key=lambda part: (order.index(part.condition), -part.dirty_ratio, part.topic_partition))

    @cached_property
    def matters(self) -> dict[tuple[str, str], str]:
        """What waits for a person: a reason by the name of a topic partition and its condition, in this order.

        Files of no topic partition are the last entry, under ``STRAYS``.
        """
        held = {
            # What can't be cleaned is told first, and what was refused last.
            (part.name, part.condition.value): part.blockers[-1 if part.condition is PartitionCondition.REFUSED else 0]
            for part in self.partitions
            if part.condition in FOR_PEOPLE
        }
        if self.strays:
            more = f"; and {len(self.strays) - 1} more" if len(self.strays) > 1 else ""
            held[STRAYS, STRAYS] = f"no lane takes it: {self.strays[0]}{more}"
        return held

    def waiting(self, told: Collection[str] = ()) -> WaitingError | None:
        """What waits for a person, in one line, without the topic partitions that are ``told`` already; None if nothing
        else does."""
        held = {place: reason for place, reason in self.matters.items() if place[0] not in told}
        if not held:
            return None
        (name, _), reason = next(iter(held.items()))
        number = len(held) - ((STRAYS, STRAYS) in held)
        who = f"{number:,} of {count(self.topic_partitions, 'topic partition')}" if number else STRAYS
        wait = "wait" if number > 1 else "waits"
        why = reason if not number or reason.startswith(f"{name} ") else f"{name}: {reason}"
        more = f"; `firn status {self.table}` names the others" if len(held) > 1 else ""
        return WaitingError(f"{self.table}: {who} {wait} for a person: {why}{more}")


def status_of(lake: Lake, identifier: str, now_ms: int) -> Status:
    """The status of table ``identifier`` at ``now_ms`` (epoch milliseconds).

    Raises RefusedError for a table that does not exist, is not a table of records or is damaged.
    """
    with lake.reading(identifier):
        return _status(lake, identifier, now_ms)


def each_status(lake: Lake, names: Collection[str], now_ms: int) -> dict[str, Status | FirnError]:
    """By name, the status at ``now_ms`` of those tables ``names`` that are tables of records, or the reason why one
    can't be read, which hides no other table.

    A table that can't be loaded counts as a table of records, because nobody knows what it is.
    """
    found: dict[str, Status | FirnError] = {}
    with Progress("status of tables", len(names)) as progress:
        for name in names:
            try:
                if is_table_of_records(lake.table(name)):
                    found[name] = status_of(lake, name, now_ms)
            except FirnError as error:
                found[name] = error
            progress.advance()
    return found


def _status(lake: Lake, identifier: str, now_ms: int) -> Status:
    sensed, each = outlooks(lake, identifier, now_ms)
    segments, table = sensed.segments, lake.table(identifier)
    quarantined = sorted(batches(lake, identifier), key=lambda batch: (-batch.records, batch.topic_partition))
    moved = Counter[object]()
    for batch in quarantined:
        moved[batch.topic_partition] += batch.records
    parts = tuple(_partition(outlook, moved[outlook.state.topic_partition]) for outlook in each)
    policies = Policies.parse(identifier, table.properties)
    conditions = Counter(part.condition for part in parts)
    history = list(ancestors(table))
    commits = [*filter(None, map(CommitSummary.of, history))]
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
        written_bytes=sum(commit.counts.bytes_out for commit in commits),
        saved_bytes=sum(commit.counts.bytes_in - commit.counts.bytes_out for commit in commits),
        topic_partitions=len(parts),
        levels=sums(parts),
        conditions={condition: conditions[condition] for condition in PartitionCondition},
        max_dirty_ratio=max((part.dirty_ratio for part in parts), default=0.0),
        max_lag_ms=max((part.lag_ms for part in parts if part.lag_ms is not None), default=None),
        quarantined_records=moved.total(),
        tombstones=_tombstones(sensed.figures, now_ms),
        history_bytes=history_bytes,
        expirable_bytes=expirable_bytes,
        publications=tuple(commits[:PUBLICATIONS_SHOWN]),
        quarantine=tuple(quarantined[:QUARANTINED_SHOWN]),
        topics=tuple(_spaces(table, sensed, parts, quarantined)),
        strays=tuple(str(stray) for stray in segments.strays),
        doubts=tuple(doubts),
        partitions=parts,
    )


def _partition(outlook: Outlook, quarantined: int) -> PartitionStatus:
    state = outlook.state
    refused = tuple(told_once(outlook.failed.values()))
    young = [reason for reason in outlook.holding if reason.until_ms is not None]
    holding = [reason for reason in outlook.holding if reason.rule in ("C7", "C10")]
    due = {lane.value: plan.reason for lane, plan in outlook.plans.items()}
    at: int | None = state.now_ms
    if not due or state.blockers:
        quiet_until_ms = outlook.sensed.quiet_until[state.topic_partition]
        at = until(state, [lane for lane in Lane if lane not in outlook.failed], quiet_until_ms)
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
        dirty_ratio=dirty_ratio(state),
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


def _tombstones(figures: Figures, now_ms: int) -> Tombstones:
    known, first, marked = (figures.fact(name).tolist() for name in ("tombstones", "first_horizon_ms", "stamped"))
    waits = figures.each_segment(lambda policy: policy.full_interval_ms).tolist()
    stamped = [one for one in zip(first, marked, waits, strict=True) if one[0] != UNKNOWN]
    return Tombstones(
        known=None if UNKNOWN in known else sum(known),
        stamped=sum(marked),
        due=sum(number for at, number, _ in stamped if at <= now_ms),
        overdue=sum(number for at, number, wait in stamped if 0 <= wait < now_ms - at),
        oldest_ms=min((at for at, *_ in stamped), default=None),
    )


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum; None if a number is unknown."""
    known = [*numbers]
    return None if None in known else sum(filter(None, known))


def _spaces(
    table: Table, sensed: Sensed, parts: Iterable[PartitionStatus], quarantined: Iterable[Batch]
) -> Iterator[TopicSpace]:
    """The space of each topic, by name."""
    main, side, segments = Counter[str](), Counter[str](), sensed.segments
    for part in parts:
        main[part.topic_partition.topic] += part.bytes
    for where, removed in sensed.removed_tombstones.items():
        side[where.topic] += sum(segment.bytes for segment in removed)
    for batch in quarantined:
        side[batch.topic_partition.topic] += batch.bytes
    if MENDED in table.metadata.refs:
        on_main = set(segments.rows["path"].to_pylist())
        for segment in read_segments(on_branch(table, MENDED), segments.identifier).each():
            # After a rollback, main may have some of what was mended again.
            side[segment.topic_partition.topic] += 0 if segment.path in on_main else segment.bytes
    for topic in sorted({*main, *side}):
        yield TopicSpace(topic=topic, main_bytes=main[topic], side_bytes=side[topic])


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


FOLDER: Final = "status"
SUFFIX: Final = ".json"


def path_of(home: Path, table: str) -> Path:
    """Path of the status file of ``table``, which is inside the folder whatever the table's name is."""
    return home / FOLDER / f"{quote(table, safe='')}{SUFFIX}"


def tables(home: Path) -> list[str]:
    """The tables that have a status file, by name."""
    return sorted(unquote(path.name.removesuffix(SUFFIX)) for path in (home / FOLDER).glob(f"[!.]*{SUFFIX}"))


def write(home: Path, status: Status) -> Path:
    """Store ``status`` and return its path."""
    return write_page(path_of(home, status.table), status.model_dump_json())


def write_snapshot(lake: Lake, table: str, now_ms: int) -> Status:
    """Store the status of ``table`` at ``now_ms`` (epoch milliseconds) under the lake's home, and what the data-quality
    pages need of the table besides its verdicts. Returns the status. Raises RefusedError for an unknown table.
    """
    with lake.answering():
        copy_reports(lake.table(table), table, lake.reports_folder)
    status = status_of(lake, table, now_ms)
    write(lake.home, status)
    Seen(
        table=table,
        snapshot_id=status.snapshot_id,
        taken_ms=now_ms,
        topic_partitions={log_name(*one.topic_partition): one.condition.value for one in status.partitions},
        held={name: reason for (name, _), reason in status.matters.items()},
        tombstones=status.tombstones,
        published={one.validation: one.snapshot_id for one in status.publications if one.validation},
        mended=_mended(lake, table),
    ).write(lake.reports_folder)
    return status


def _mended(lake: Lake, identifier: str) -> tuple[str, ...]:
    """What the newest mendings took; nothing if a manifest of a snapshot before a mending is gone or damaged."""
    try:
        with lake.answering():
            return tuple(islice(mended(lake.table(identifier), identifier), MENDED_SHOWN))
    except (FirnError, *DAMAGED) as error:
        log.warning("table %s: its report lists no mendings: %s", identifier, error)
        return ()


def read(home: Path, table: str) -> Status | None:
    """Read the status of ``table``; None if it has no file, or one that is damaged or of another version of Firn."""
    return read_document(path_of(home, table), Status)


_TOLD: Final = TypeAdapter(dict[str, int])


def news(table: Table, status: Status, now_ms: int, told: Collection[str] = ()) -> Mapping[str, str]:
    """The reasons of what waits for a person, by name, if they were not told within the day before ``now_ms`` (epoch
    milliseconds). From now on, they count as told, and so do the topic partitions in ``told``.

    A topic partition that waits for another kind of reason is told at once. A refused plan is tried again once a day as
    well, so its topic partition is not told twice. What was told lies below the metadata of ``table``; if that document
    is lost, people are told once more. Raises an OSError when the store does not answer.
    """
    location = f"{metadata_folder(table)}/told.json"
    before: Mapping[str, int] = {}
    with suppress(FileNotFoundError, ValidationError), table.io.new_input(location).open() as stream:
        before = _TOLD.validate_json(stream.read())
    held = {f"{name} {condition}": (name, reason) for (name, condition), reason in status.matters.items()}
    known = {cause: at for cause, at in before.items() if cause in held and abs(now_ms - at) < AGAIN_MS}
    fresh = {name: reason for cause, (name, reason) in held.items() if cause not in known and name not in told}
    after = known | dict.fromkeys(held.keys() - known.keys(), now_ms)
    if after != before:
        write_whole(table, location, _TOLD.dump_json(after))
    return fresh
