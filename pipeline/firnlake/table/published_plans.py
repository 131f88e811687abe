"""The plans that Firn's commits published, their record counts (C24), and the summary properties that hold both."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, Self

from pydantic import Field, TypeAdapter, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.authorship import firn_properties
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
"""Marks an empty snapshot; the catalog refuses commits that were prepared on its parent (`firnlake.job.collect`)."""
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
WAITING_TOPIC_PARTITIONS: Final = f"{SUMMARY_PREFIX}waiting-topic-partitions"
"""Topic partitions of the waiting segments (a JSON list of names), if the commit published several plans."""


class RecordCounts(FrozenModel):
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
    def total(cls, counts: Iterable["RecordCounts"]) -> Self:
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


COMMITS_LOOKED_AT: Final = 100
"""Number of snapshots searched for a plan; enough because a run retries a plan soon."""


class PublishedPlan(FrozenModel):
    """One plan of a commit, with its record counts."""

    id: str
    topic: str
    partition: int
    lane: str
    reason: str
    snapshot_id: int | None
    """Id of main's snapshot on which the plan was made; None if the commit does not say it."""
    counts: RecordCounts
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


def published_plans(target: Table, plan_ids: Collection[str]) -> dict[str, tuple[int, PublishedPlan]]:
    """Snapshot id and plan, by plan id, of those ``plan_ids`` that main's last COMMITS_LOOKED_AT snapshots published.

    Searches backwards from the newest snapshot until all plans are found, and reads the plans documents on the way.
    """
    by_id: dict[str, tuple[int, PublishedPlan]] = {}
    for snapshot in islice(ancestors(target), COMMITS_LOOKED_AT):
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
            "counts": RecordCounts.of_summary(properties),
            "requests": properties[REQUESTS].split() if REQUESTS in properties else (),
        }
    )
