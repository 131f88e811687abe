"""The status of a table: one document, from where it is gathered to where the command and the pages show it.

A run stores it as JSON under ``$FIRN_HOME/status``. The file is written atomically, so readers need no lock. It can be
made again at any time, and no decision depends on it. Bytes are file sizes, times are epoch milliseconds, durations
are milliseconds.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from pydantic import TypeAdapter, ValidationError
from pyiceberg.table import Table

from firnlake.errors import RefusedError, WaitingError
from firnlake.iceberg.files import FrozenModel, metadata_folder, write_whole
from firnlake.ingest.quarantine import Batch
from firnlake.job.failures import AGAIN_MS
from firnlake.table.history import Counts
from firnlake.table.segment import LEVELS, TopicPartition
from firnlake_expectations.data_quality import Tombstones
from firnlake_expectations.templates import write_page
from firnlake_expectations.wording import count


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


class LaneCommit(Counts):
    """One commit by Firn, for one or several plans, with the counts of all."""

    snapshot_id: int
    at_ms: int
    lane: str
    what: str
    """The topic partition of the commit, or the number of its topic partitions."""
    reason: str | None
    validation: str | None
    """Name of Great Expectations' run that judged the plans; None if the summary does not say."""


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
    publications: tuple[LaneCommit, ...]
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
    def last_publication(self) -> LaneCommit | None:
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


FOLDER: Final = "status"
SUFFIX: Final = ".json"


def path_of(home: Path, table: str) -> Path:
    """Path of the status file of ``table``, which is inside the folder whatever the table's name is."""
    return home / FOLDER / f"{quote(table, safe='')}{SUFFIX}"


def tables(home: Path) -> list[str]:
    """The tables that have a status file, by name."""
    return sorted(unquote(path.name.removesuffix(SUFFIX)) for path in (home / FOLDER).glob(f"[!.]*{SUFFIX}"))


def write(home: Path, status: Status) -> Path:
    """Store ``status`` and return its path. Raises RefusedError when the file can't be written."""
    path = path_of(home, status.table)
    try:
        return write_page(path, status.model_dump_json())
    except OSError as error:
        raise RefusedError(
            f"the status of table {status.table} can't be written to {path}: {error}; allowed: a writable folder "
            "(FIRN_HOME)"
        ) from error


def read(home: Path, table: str) -> Status | None:
    """Read the status of ``table``; None if it has no file. Raises RefusedError for a damaged or foreign file."""
    path = path_of(home, table)
    try:
        stat = path.stat()
        status = _read(path, stat.st_mtime_ns, stat.st_size)
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise _unreadable(table, path, str(error)) from error
    if status.table != table:
        raise _unreadable(table, path, f"it belongs to table {status.table}")
    return status


@lru_cache(maxsize=16)
def _read(path: Path, _changed_ns: int, _size: int) -> Status:
    """The status at ``path``, which a server of pages does not parse again while the file is the same."""
    return Status.model_validate_json(path.read_bytes())


def _unreadable(table: str, path: Path, why: str) -> RefusedError:
    reason = next(iter(why.splitlines()), "")
    return RefusedError(
        f"the status of table {table} can't be read from {path}: {reason}; allowed: a status written by this version "
        "of Firn (the next run writes one)"
    )


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
