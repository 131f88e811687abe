"""The snapshot summaries of a table's commits: Firn's properties, arrival times and bytes.

A commit of one plan has everything in its summary. A commit of several plans has only the sums in its summary, because
every reader loads the summaries of all snapshots; a document in the table's folder describes each plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from pydantic import TypeAdapter, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from firnlake.iceberg.authorship import firn_properties, number_of, properties_of
from firnlake.iceberg.branches import ancestors
from firnlake.table.published_plans import (
    CORE_MS,
    ERASE,
    JOB_ID,
    LANE,
    NOW_MS,
    PLAN_ID,
    PLANS,
    REASON,
    TOPIC_PARTITION,
    VALIDATION,
    WAITING_SEGMENTS,
    WAITING_TOPIC_PARTITIONS,
    RecordCounts,
)


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """The summary of a commit that Firn made, without the document of its plans."""

    job_id: str
    """Id of the job; the plan's id if the commit published one plan."""
    lane: str
    topic_partition: str | None
    """None if the commit published several plans."""
    reason: str | None
    """None if the commit published several plans."""
    plans: int
    counts: RecordCounts
    """Sums over the plans."""
    core_ms: int = 0
    """Core time that compacting took, milliseconds; 0 if the summary does not say."""
    validation: str | None = None
    """Name of Great Expectations' run that judged the plans."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self | None:
        """Parse the summary of ``snapshot``; None if another writer made it, or it is malformed."""
        properties = firn_properties(snapshot)
        job_id, lane, plans = (
            properties.get(PLAN_ID, properties.get(JOB_ID)),
            properties.get(LANE),
            properties.get(PLANS),
        )
        number = number_of(plans or "1")
        if job_id is None or lane is None or number is None:
            return None
        try:
            counts = RecordCounts.of_summary(properties)
        except ValidationError:
            return None
        return cls(
            job_id,
            lane,
            properties.get(TOPIC_PARTITION),
            properties.get(REASON),
            number,
            counts,
            number_of(properties.get(CORE_MS)) or 0,
            properties.get(VALIDATION),
        )


@dataclass(frozen=True, slots=True)
class Appended:
    """Number of records, and of file bytes, that another writer appended."""

    records: int
    bytes: int


def appended(snapshot: Snapshot) -> Appended | None:
    """Additions of ``snapshot``, from Iceberg's own summary; None if the snapshot is no append, or if Firn made it."""
    if snapshot.summary is None or snapshot.summary.operation is not Operation.APPEND or CommitSummary.of(snapshot):
        return None
    properties = snapshot.summary.additional_properties
    return Appended(*(number_of(properties.get(name)) or 0 for name in ("added-records", "added-files-size")))


_NAMES = TypeAdapter(tuple[str, ...])


@dataclass(frozen=True, slots=True)
class CommitClock:
    """The time of a commit in epoch milliseconds; if ``by_firn``, this is the clock of a plan that Firn published."""

    at_ms: int
    by_firn: bool
    whole: bool = False
    """True when the commit's plan, or each of its plans, took everything cleanable."""
    erases: bool = False
    """True for a commit of lane `erase`: the segments that it wrote do not count as the work of another lane."""
    waiting_topic_partitions: frozenset[str] = frozenset()
    """Topic partitions that have waiting segments, if the commit published several plans; all others have none."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        properties = firn_properties(snapshot)
        now_ms = number_of(properties.get(NOW_MS))
        if now_ms is None:
            return cls(snapshot.timestamp_ms, by_firn=False)
        # Without a count, the clean may have been partial; assuming so costs at most one more full clean.
        erases = properties.get(LANE) == ERASE
        whole = properties.get(WAITING_SEGMENTS) == "0" and not erases
        waiting = frozenset(_NAMES.validate_json(properties.get(WAITING_TOPIC_PARTITIONS, "[]")))
        return cls(now_ms, by_firn=True, whole=whole, erases=erases, waiting_topic_partitions=waiting)


def commit_clocks(table: Table) -> Mapping[int, CommitClock]:
    """The commit time of every snapshot of ``table``, on any branch, by snapshot id; expired snapshots are missing.

    All branches are included, because a file may have come to main from a snapshot of another branch.
    """
    return {snapshot.snapshot_id: CommitClock.of(snapshot) for snapshot in table.metadata.snapshots}


def newest_clock(table: Table) -> int | None:
    """The latest planning time (epoch ms) of the plans that Firn published; None if main's history has no plan."""
    clocks = map(CommitClock.of, ancestors(table))
    return max((clock.at_ms for clock in clocks if clock.by_firn), default=None)


_ADDED: Final = ("added-files-size", ("added-data-files", "added-delete-files"))
_REMOVED: Final = ("removed-files-size", ("deleted-data-files", "removed-delete-files"))
"""The summary property with the bytes of files, and the properties with the numbers of files."""
_SOURCE: Final = "source-snapshot-id"
"""Summary property that names the snapshot whose files a cherry-pick published on main."""


@dataclass(frozen=True, slots=True)
class FileBytes:
    """Bytes of data and delete files, each None if the summary does not say."""

    added: int | None
    removed: int | None


def file_bytes(snapshot: Snapshot) -> FileBytes:
    """Bytes of the files that ``snapshot`` added to its parent, and of the files that it removed."""
    if snapshot.summary is None:
        return FileBytes(None, None)
    properties = properties_of(snapshot)
    return FileBytes(_bytes(properties, *_ADDED), _bytes(properties, *_REMOVED))


def cherry_picked(snapshot: Snapshot) -> int | None:
    """Id of the snapshot whose files ``snapshot`` published again; None if ``snapshot`` is not a cherry-pick."""
    return number_of(properties_of(snapshot).get(_SOURCE))


def _bytes(properties: Mapping[str, str], size: str, counts: tuple[str, ...]) -> int | None:
    # Writers leave out zeros. When they commit whole manifests, Iceberg's writers also leave out a size above zero.
    if size not in properties:
        return None if any(properties.get(name, "0") != "0" for name in counts) else 0
    return number_of(properties[size])
