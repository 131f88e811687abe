"""The case of a plan, as the judge gets it: what the plan and its compaction claim of their work, and how to read the
records. And the judge's answer: the verdict.

The judge measures everything that is not claimed. Column roles say which columns of a record the judge reads.
"""

from __future__ import annotations

from collections import Counter  # noqa: TC003  # pydantic reads it
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from firnlake_expectations.wording import log_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    import pyarrow as pa


RETAIN = "retain"
"""The lane that only drops segments."""
CLEANINGS = ("clean", "tier", "full")
CONVERT = "convert"
"""The lane that leaves the data files as they are, with other deletes."""
ERASE = "erase"
"""The lane that serves requests to erase keys."""
COPIES = (ERASE, CONVERT, "merge")
"""Lanes after which every record that was visible, and is not to be erased, is there unchanged, repeated ones included.
"""
EVERY_LANE = (*COPIES, *CLEANINGS)
"""Every lane whose results are records or delete files."""

TAIL = 3
"""Level of the tail; everything below it is the head."""

RUN = 2
"""Lowest level of records that Firn has cleaned; levels 0 and 1 come from any writer."""

QUARANTINED = -1
"""Level of a staged record that goes to the quarantine table, not to the topic (C5)."""

BURIED = -2
"""Level of tombstones removed from the topic: written to be kept beside it, read to come back (C9)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one plan (one lane on one topic partition), which a validation tests.

    table                 the Iceberg table, `namespace.name`
    lane                  `retain` (C19), `erase` (C30), `convert` (C27), `merge` (C13), `clean` (C14), `tier` (C15) or
                          `full` (C16)
    plan_id               the plan's identifier
    topic, partition      the topic partition of the plan
    now_ms                the plan's clock, epoch milliseconds
    level_out             level of the records that stay in the topic; `erase` and `convert` keep each level
    clean_below           tombstones below this offset are *clean* (C7); None: all are clean, because no segment
                          outside the inputs can hold an older offset
    log_end_offset        highest offset of the topic partition when the plan was made (C4)
    kept_from             the first offset that may be the highest that readers see, if row-level deletes may hide the
                          log end; None: the log end itself
    delete_retention_ms   how long after `now_ms` a tombstone stays that was found clean (C8): `delete.retention.ms`,
                          plus the time by which the clock is behind an earlier commit's; None: unknown, not judged
    counts                the numbers of records, segments and bytes that the plan's result tells, by name; those that
                          it does not tell are 0
    markers               markers outside the inputs that end transactions inside: producer, offset, committed
    snapshot_id           the snapshot of main on which the plan was made; None: unknown
    figures               other figures that the plan and its result tell: name, as told, and as the judge found it

    Of the counts, `records_in` are the records read, and `records_out` those that stay in the topic; `wording.FATES`
    names the fates of all others. They must add up (C24). `repeated` counts superseded records that are copies of a
    record written more than once; `restored`, tombstones that were removed earlier and count as read because an older
    record of their key was read (C9); `deleted`, records of the files read that row-level deletes hide, not part of
    `records_in` (C27). `segments_in` and `segments_out` are files read and written, `bytes_in` and `bytes_out` their
    sizes. What is `_in_place`, as segments of the tail that lose no record, counts as neither (C16).
    """

    table: str
    lane: str
    plan_id: str
    topic: str
    partition: int
    now_ms: int
    level_out: int
    clean_below: int | None
    log_end_offset: int
    delete_retention_ms: int | None
    counts: Counter[str]
    markers: tuple[tuple[int, int, bool], ...] = ()
    kept_from: int | None = None
    snapshot_id: int | None = None
    figures: tuple[tuple[str, str, str], ...] = ()

    @property
    def end(self) -> int:
        """From this offset on, a record is removed only if a newer record of its key was read (C4)."""
        return self.log_end_offset if self.kept_from is None else self.kept_from

    @property
    def stamp_ms(self) -> int | None:
        """The delete horizon of a tombstone that is found clean for the first time (C8); None if it is unknown."""
        return None if self.delete_retention_ms is None else self.now_ms + self.delete_retention_ms

    @property
    def log(self) -> str:
        """The topic partition."""
        return log_name(self.topic, self.partition)


_OF_TRANSACTIONS = ("is_control", "is_transactional", "producer_id")


@dataclass(frozen=True, slots=True)
class JudgedColumns:
    """The roles of the columns of a table of records; the defaults are those of Kafka's Spark source.

    key               the key's columns; a record with NULL in one of them has no key (C5)
    offset            the integer that orders records
    topic, partition  None: every record belongs to the topic, or the partition, of its plan
    tombstone         a condition in DuckDB's SQL, NULL counting as false; None: no record is a tombstone
    told_by           the columns that the condition reads, in which they are called `told_0`, `told_1`, ...
    level, delete_horizon   the two columns that a cleaning writes; it must not change other columns (C1)
    transactions      True when transaction columns, if there are any, are Kafka's (C10)
    uuids             key columns whose 16 bytes are a UUID, which reports show as text
    """

    key: tuple[str, ...] = ("key",)
    offset: str = "offset"
    topic: str | None = "topic"
    partition: str | None = "partition"
    tombstone: str | None = "told_0 IS NULL"
    told_by: tuple[str, ...] = ("value",)
    level: str = "level"
    delete_horizon: str = "delete_horizon"
    transactions: bool = True
    uuids: tuple[str, ...] = ()

    def kept(self, columns: Collection[str]) -> tuple[str, ...]:
        """The columns that C1 keeps, in order: the columns of a `fingerprint`."""
        return tuple(name for name in columns if name not in (self.level, self.delete_horizon))

    def of_transactions(self, columns: Collection[str]) -> tuple[str, ...]:
        """The transaction columns among `columns`."""
        return tuple(name for name in _OF_TRANSACTIONS if self.transactions and name in columns)

    def narrow(self, columns: Collection[str]) -> tuple[str, ...]:
        """The columns that locate a record, which are the only ones read if a fingerprint vouches for the values."""
        named = (*self.key, self.offset, self.topic, self.partition, self.level, self.delete_horizon)
        return tuple(dict.fromkeys(name for name in (*named, *self.of_transactions(columns)) if name))


BEFORE, AFTER, IN_PLACE = SIDES = ("read", "written", "stayed")
"""The sides of a plan: records read and replaced, records written, and records read that stay in place."""


@dataclass(frozen=True)
class Deletes:
    """A file of row-level deletes.

    name             its path
    sequence_number  its data sequence number
    scope            its partition spec and partition values as text; None: it applies to all partitions
    only             the only data file that a position delete names, if its manifest tells; otherwise None
    columns          the columns that an equality delete compares; empty for a position delete
    read             returns its rows: `file_path` and `pos`, or `columns`
    """

    name: str
    sequence_number: int
    scope: str | None
    only: str | None
    columns: tuple[str, ...]
    read: Callable[[], Iterable[pa.RecordBatch]]


@dataclass(frozen=True)
class Listed:
    """The entry of a data file in its snapshot: data sequence number and scope, and the deletes that may apply."""

    sequence_number: int
    scope: str
    deletes: tuple[Deletes, ...]


@dataclass(frozen=True)
class Part:
    """A part of one side that can be read separately and repeatedly: a data file, or a table in memory.

    read        returns the records, with the columns asked for or all of them
    name        its name in reports
    records     number of records according to the manifest; None: unknown
    tombstones  False if it is known to have no tombstones
    listed      its entry before the plan, or on side AFTER the entry after it, if row-level deletes may apply to it
    """

    side: str
    read: Callable[[Sequence[str] | None], Iterable[pa.RecordBatch | pa.Table]]
    name: str = ""
    records: int | None = None
    tombstones: bool = True
    listed: Listed | None = None


class Retained(NamedTuple):
    """A segment with records of the topic partition of a plan, or a file that may hold some.

    name             its name in reports
    first, last      its offsets, both inclusive
    records, bytes   their number, and the size of the file; 0 if nobody knows how many are of the topic partition
    since_ms         the time from which its age counts, epoch milliseconds; None: unknown
    goes             True when the plan drops it
    retention_ms, retention_bytes   the limits of the topic; -1: none
    """

    name: str
    first: int
    last: int
    records: int
    bytes: int
    since_ms: int | None
    goes: bool
    retention_ms: int = -1
    retention_bytes: int = -1


@dataclass(frozen=True)
class Case:
    """One plan to judge; it can be pickled if its parts can.

    parts         all data files of every side
    fingerprint   `fingerprint` of the records that the plan keeps, taken when compaction read them; then only
                  the values written are read. None: values of both sides are compared
    secret        lane `erase`: the table's UUID, under which the digests of keys are made
    digests       lane `erase`: the digest of each requested key, and the offset below which its records are erased
    segments      lane `retain`, which reads no record: the segments of the topic partition, in offset order
    read          bytes that the judge reads, approximately
    written       bytes that the plan has written
    """

    claim: Claim
    parts: tuple[Part, ...] = ()
    fingerprint: int | None = None
    secret: bytes | None = field(default=None, repr=False)
    digests: tuple[tuple[bytes, int], ...] = field(default=(), repr=False)
    segments: tuple[Retained, ...] = ()
    read: int = 0
    written: int = 0


SAMPLES_PER_RULE = 10


@dataclass(frozen=True, slots=True)
class Sample:
    """One record that breaks a promise: its offset, its key as reports may show it (`wording.shown_key`), and what was
    found."""

    offset: int | None
    key: str | None
    found: str


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one expectation: its promise as a sentence, the outcome, and the observation in words.

    contract   number of the promise in the contract; empty for an expectation of the table's owner
    checked    the number of items that were looked at
    broken     the number of violations
    """

    name: str
    sentence: str
    passed: bool
    observed: str
    samples: tuple[Sample, ...] = ()
    contract: str = ""
    checked: int = 0
    broken: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings about one plan, as they are stored and shown; `claim` is the claim that was tested.

    closely        True if values of both sides were read, False if a fingerprint vouched for those that were read
    validated_ms   when Great Expectations judged, epoch milliseconds
    seconds        this plan's share of the wall time
    run_name       the name of the verdict's document and page
    validation     the name of Great Expectations' run for the whole job; empty for a commit that was judged again
    """

    claim: Claim
    expectations: tuple[Finding, ...]
    closely: bool = False
    validated_ms: int = 0
    seconds: float = 0.0
    run_name: str = ""
    validation: str = ""

    @property
    def passed(self) -> bool:
        """True when every promise was kept, and the suites of the table's owner are met."""
        return not self.failures

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The expectations that failed."""
        return tuple(finding for finding in self.expectations if not finding.passed)

    @property
    def reason(self) -> str:
        """What was observed where an expectation failed, in one line; empty if none failed."""
        return "; ".join(f"{finding.name}: {finding.observed}" for finding in self.failures)
