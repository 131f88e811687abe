"""What the snapshots of a table say: the plans that Firn's commits published, their record counts (C24), the times of
commits, and the bytes that other writers added or removed.

A commit of one plan has everything in its summary. A commit of several plans has only the sums in its summary, because
every reader loads the summaries of all snapshots; a document in the table's folder describes each plan.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Self

from pydantic import Field, TypeAdapter, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.authorship import firn_properties, number_of, properties_of
from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.files import PLANS_FOLDER, Document, FrozenModel, metadata_folder
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import FATES, fate

SUMMARY_PREFIX: Final = "firn."
PLAN_ID: Final = f"{SUMMARY_PREFIX}plan-id"
JOB_ID: Final = f"{SUMMARY_PREFIX}job-id"
"""Id of the job; set only if the commit published several plans."""
LANE: Final = f"{SUMMARY_PREFIX}lane"
ERASE: Final = "erase"
"""The lane whose commits only remove requested keys; they clean nothing else, and segments keep their levels."""
REASON: Final = f"{SUMMARY_PREFIX}reason"
TOPIC_PARTITION: Final = f"{SUMMARY_PREFIX}topic-partition"
PLANS: Final = f"{SUMMARY_PREFIX}plans"
"""Number of plans that the commit published; set only if there are several."""
PLANS_DOCUMENT: Final = f"{SUMMARY_PREFIX}plans-document"
"""Reference to the document that describes several plans (`firnlake.iceberg.files`)."""
FENCE: Final = f"{SUMMARY_PREFIX}fence"
"""Marks an empty snapshot; the catalog refuses commits that were prepared on its parent (`firnlake.job.garbage`)."""
VALIDATION: Final = f"{SUMMARY_PREFIX}validation"
"""Name of Great Expectations' run that judged the plans."""
CORE_MS: Final = f"{SUMMARY_PREFIX}core-ms"
"""Core time of compacting, milliseconds: the duration of the work times the number of tasks that could run at once."""
PLANNED_ON: Final = f"{SUMMARY_PREFIX}planned-on"
"""Id of main's snapshot on which the plan was made; for several plans, their document says it."""
REQUESTS: Final = f"{SUMMARY_PREFIX}requests"
"""Ids of the requests that the plan served, with blanks between them; for several plans, their document has them."""
NOW_MS: Final = f"{SUMMARY_PREFIX}now-ms"
"""The time for which the plan was made (its clock), in epoch milliseconds; for several plans, the earliest clock."""
WAITING_SEGMENTS: Final = f"{SUMMARY_PREFIX}waiting-segments"
"""Number of cleanable segments that had no room in the plans."""
MENDED_FILES: Final = f"{SUMMARY_PREFIX}mended"
"""A JSON document of what a mending has taken (C36)."""
WAITING_TOPIC_PARTITIONS: Final = f"{SUMMARY_PREFIX}waiting-topic-partitions"
"""Topic partitions of the waiting segments (a JSON list of names), if the commit published several plans."""


class Counts(FrozenModel):
    """Records, bytes and segments that a plan read and wrote; published in the snapshot summary.

    ``records_in`` counts the records that readers saw in the input segments, plus the ``restored`` records: tombstones
    that an earlier cleaning removed and that return because an older record of their key landed. ``deleted`` counts the
    records of the input segments that other writers' row-level deletes hid (C27); they do not count in ``records_in``.
    ``erased`` counts the records of keys that were erased on request (C30). ``superseded`` includes the ``repeated``
    records: further copies of a record that was written more than once. ``aborted`` counts records of aborted
    transactions, and ``markers_removed`` the markers of transactions without remaining records (C10). The fields
    ``*_in_place`` count segments that stay in the table because the plan changes nothing in them; these count neither
    as read nor as written. Bytes are file sizes. Lane `convert` leaves all segments in place. In its plans,
    ``records_in`` counts the records that readers saw in these segments, and ``bytes_out`` counts the bytes of the
    delete files.
    """

    records_in: int = Field(ge=0)
    records_out: int = Field(ge=0)
    superseded: int = Field(ge=0)
    tombstones_removed: int = Field(ge=0)
    expired: int = Field(default=0, ge=0)
    quarantined: int = Field(ge=0)
    aborted: int = Field(default=0, ge=0)
    markers_removed: int = Field(default=0, ge=0)
    erased: int = Field(default=0, ge=0)
    repeated: int = Field(default=0, ge=0)
    restored: int = Field(default=0, ge=0)
    deleted: int = Field(default=0, ge=0)
    bytes_in: int = Field(ge=0)
    bytes_out: int = Field(ge=0)
    segments_in: int = Field(ge=0)
    segments_out: int = Field(ge=0)
    records_in_place: int = Field(default=0, ge=0)
    bytes_in_place: int = Field(default=0, ge=0)
    segments_in_place: int = Field(default=0, ge=0)

    @classmethod
    def total(cls, counts: Iterable["Counts"]) -> Self:
        """Sum of the record counts of several plans."""
        sums: Counter[str] = Counter(dict.fromkeys(cls.model_fields, 0))
        for one in counts:
            sums.update(one.model_dump())
        return cls.model_validate(sums)

    @classmethod
    def none(cls) -> Self:
        """Counts that are all 0."""
        return cls.total(())

    def check(self, subject: str) -> Self:
        """Return self when the counts add up; otherwise raise RefusedError, which names ``subject``."""
        figures = self.model_dump()
        terms = {"out": self.records_out, **{fate(0, words): figures[name] for name, words in FATES.items()}}
        total = sum(terms.values())
        if total != self.records_in:
            told = " + ".join(f"{count} {name}" for name, count in terms.items())
            raise RefusedError(
                f"{subject}: records in = {self.records_in}, but {told} = {total}; "
                f"allowed: records in = {' + '.join(terms)}"
            )
        return self

    @classmethod
    def of_summary(cls, properties: Mapping[str, str]) -> Self:
        """The counts in a summary's ``properties``; raises pydantic's ValidationError if one is missing or wrong."""
        return cls.model_validate(
            {name: properties[_key(name)] for name in cls.model_fields if _key(name) in properties}
        )

    def summary(self) -> dict[str, str]:
        """The counts as properties of an Iceberg snapshot summary: ``firn.records-in`` and so on."""
        return {_key(name): str(value) for name, value in self.model_dump().items()}


def _key(name: str) -> str:
    return f"{SUMMARY_PREFIX}{name.replace('_', '-')}"


class PublishedPlan(FrozenModel):
    """One plan of a commit, with its record counts."""

    id: str
    topic: str
    partition: int
    lane: str
    reason: str
    snapshot_id: int | None
    """Id of main's snapshot on which the plan was made; None if the commit does not say it."""
    counts: Counts
    requests: tuple[str, ...] = ()
    """Ids of the requests that the plan served (C30)."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The plan's topic partition."""
        return TopicPartition(self.topic, self.partition)


_DOCUMENT = TypeAdapter(tuple[PublishedPlan, ...])


def plans_folder(target: Table) -> str:
    """Folder of the plans documents that commits on ``target`` refer to."""
    return f"{metadata_folder(target)}/{PLANS_FOLDER}"


def write_document(target: Table, job_id: str, plans: Sequence[PublishedPlan]) -> Document:
    """Write the document of ``plans``, which one commit is going to publish."""
    return Document.write(target, plans_folder(target), job_id, _DOCUMENT.dump_json(tuple(plans)).decode())


def document_of(snapshot: Snapshot) -> str | None:
    """Location of the plans document of ``snapshot``; None when it has none."""
    text = firn_properties(snapshot).get(PLANS_DOCUMENT)
    return Document.parse(text, f"snapshot {snapshot.snapshot_id}").location if text else None


def plans_of(target: Table, snapshot: Snapshot) -> tuple[PublishedPlan, ...]:
    """The plans that ``snapshot`` published; empty when Firn did not make the snapshot.

    Raises RefusedError when the document of several plans is gone, or when plans can't be read.
    """
    properties = firn_properties(snapshot)
    subject = f"snapshot {snapshot.snapshot_id} of table {'.'.join(target.name())}: its plans"
    try:
        if PLANS_DOCUMENT in properties:
            return _DOCUMENT.validate_json(Document.parse(properties[PLANS_DOCUMENT], subject).read(target, subject))
        return (_alone(properties),) if PLAN_ID in properties else ()
    except ValidationError as error:
        raise RefusedError(f"{subject} are not readable: {error.errors()[0]['msg']}") from error


def published(target: Table, job_id: str) -> int | None:
    """Id of the snapshot that published the job; None if the history of main in ``target`` has no such snapshot.

    A job of one plan has the plan's id.
    """
    for snapshot in ancestors(target):
        properties = firn_properties(snapshot)
        if job_id in (properties.get(PLAN_ID), properties.get(JOB_ID)):
            return snapshot.snapshot_id
    return None


_SEARCHED: Final = 100
"""Number of snapshots that are searched for a plan; enough because a run retries a plan soon."""


def published_plans(target: Table, plan_ids: Collection[str]) -> dict[str, tuple[int, PublishedPlan]]:
    """Snapshot id and plan, by plan id, of those ``plan_ids`` that main's last 100 snapshots published.

    Searches backwards from the newest snapshot until all plans are found, and reads the plans documents on the way.
    """
    by_id: dict[str, tuple[int, PublishedPlan]] = {}
    for snapshot in islice(ancestors(target), _SEARCHED):
        if len(by_id) == len(set(plan_ids)):
            break
        by_id |= {one.id: (snapshot.snapshot_id, one) for one in plans_of(target, snapshot) if one.id in plan_ids}
    return by_id


def _alone(properties: Mapping[str, str]) -> PublishedPlan:
    """The only plan of a commit, which the summary describes completely."""
    place = TopicPartition.parse(properties.get(TOPIC_PARTITION, ""))
    return PublishedPlan.model_validate(
        {
            "id": properties[PLAN_ID],
            "topic": place.topic,
            "partition": place.partition,
            "lane": properties.get(LANE),
            "reason": properties.get(REASON),
            "snapshot_id": properties.get(PLANNED_ON),
            "counts": Counts.of_summary(properties),
            "requests": properties[REQUESTS].split() if REQUESTS in properties else (),
        }
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
    counts: Counts
    """Sums over the plans."""
    core_ms: int = 0
    """Core time that compacting took, milliseconds; 0 if the summary does not say."""
    validation: str | None = None
    """Name of Great Expectations' run that judged the plans."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self | None:
        """Parse the summary of ``snapshot``; None if another writer made it, or it is malformed."""
        properties = firn_properties(snapshot)
        job_id, lane = properties.get(PLAN_ID, properties.get(JOB_ID)), properties.get(LANE)
        plans = number_of(properties.get(PLANS, "1"))
        if job_id is None or lane is None or plans is None:
            return None
        try:
            counts = Counts.of_summary(properties)
        except ValidationError:
            return None
        topic_partition, reason = properties.get(TOPIC_PARTITION), properties.get(REASON)
        core_ms = number_of(properties.get(CORE_MS)) or 0
        return cls(job_id, lane, topic_partition, reason, plans, counts, core_ms, properties.get(VALIDATION))


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


class TakenFiles(FrozenModel):
    """What a mending has taken, as the summaries of its snapshots say: the paths of the ``files`` that the branch got,
    and of those that were ``lost``."""

    files: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> "TakenFiles":
        """What ``snapshot`` says; nothing if it is no mending, or if its summary can't be read."""
        try:
            return cls.model_validate_json(firn_properties(snapshot).get(MENDED_FILES, "{}"))
        except ValidationError:
            return cls()

    def summary(self) -> Mapping[str, str]:
        """The property of the summary."""
        return {MENDED_FILES: self.model_dump_json(exclude_defaults=True)}


def is_mending(snapshot: Snapshot) -> bool:
    """True when a mending made ``snapshot``."""
    return MENDED_FILES in firn_properties(snapshot)


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


def added_bytes(snapshot: Snapshot) -> int | None:
    """Bytes of the data and delete files that ``snapshot`` added to its parent; None if its summary does not say."""
    return _bytes(snapshot, "added-files-size", ("added-data-files", "added-delete-files"))


def removed_bytes(snapshot: Snapshot) -> int | None:
    """Bytes of the data and delete files that ``snapshot`` removed; None if its summary does not say."""
    return _bytes(snapshot, "removed-files-size", ("deleted-data-files", "removed-delete-files"))


def _bytes(snapshot: Snapshot, size: str, counts: tuple[str, ...]) -> int | None:
    properties = properties_of(snapshot)
    # Writers leave out zeros. When they commit whole manifests, Iceberg's writers also leave out a size above zero.
    if size not in properties and snapshot.summary is not None:
        return None if any(properties.get(name, "0") != "0" for name in counts) else 0
    return number_of(properties.get(size))


def cherry_picked(snapshot: Snapshot) -> int | None:
    """Id of the snapshot whose files ``snapshot`` published again; None if ``snapshot`` is not a cherry-pick."""
    return number_of(properties_of(snapshot).get("source-snapshot-id"))
