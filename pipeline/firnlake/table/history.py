"""What the snapshots of a table say: the plans that Firn's commits published, their record counts (C24), the times of
commits, and the bytes that other writers added or removed.

A commit of one plan has everything in its summary. A commit of several plans has only the sums in its summary, because
every reader loads the summaries of all snapshots; a document in the table's folder has for each plan what the summary
would be if the commit had published no other.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Annotated, Final, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.branches import ancestors, firn_properties, number_of, properties_of
from firnlake.iceberg.files import PLANS_FOLDER, FrozenModel, metadata_folder
from firnlake.table.segment import TopicPartition
from firnlake_expectations.wording import count

_PREFIX: Final = "firn."
JOB_ID: Final = f"{_PREFIX}job-id"
"""Id of the job; a job of one plan has the plan's id."""
FENCE: Final = f"{_PREFIX}fence"
"""Marks an empty snapshot; the catalog refuses commits that were prepared on its parent (`firnlake.job.garbage`)."""
MENDED_FILES: Final = f"{_PREFIX}mended"
"""A JSON document of what a mending has taken (C36)."""


def _key(name: str) -> str:
    return f"{_PREFIX}{name.replace('_', '-')}"


_OF_SUMMARY = ConfigDict(extra="ignore", alias_generator=_key, populate_by_name=True)
"""How a document is told in the properties of a summary; these have much else."""
_Count = Annotated[int, Field(ge=0)]


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

    model_config = _OF_SUMMARY

    records_in: _Count = 0
    records_out: _Count = 0
    superseded: _Count = 0
    tombstones_removed: _Count = 0
    expired: _Count = 0
    quarantined: _Count = 0
    aborted: _Count = 0
    markers_removed: _Count = 0
    erased: _Count = 0
    repeated: _Count = 0
    restored: _Count = 0
    deleted: _Count = 0
    bytes_in: _Count = 0
    bytes_out: _Count = 0
    segments_in: _Count = 0
    segments_out: _Count = 0
    records_in_place: _Count = 0
    bytes_in_place: _Count = 0
    segments_in_place: _Count = 0

    @classmethod
    def total(cls, counts: Iterable["Counts"]) -> Self:
        """Sum of the record counts of several plans."""
        sums: Counter[str] = Counter()
        for one in counts:
            sums.update(one.model_dump())
        return cls(**sums)

    def summary(self) -> dict[str, str]:
        """The counts as properties of an Iceberg snapshot summary: ``firn.records-in`` and so on."""
        return {name: str(value) for name, value in self.model_dump(by_alias=True).items()}


_Number = Annotated[int, Field(ge=0, lt=10**18)]
"""A whole number of at most 18 digits, because anybody may write a summary."""


class CommitSummary(FrozenModel):
    """The summary of a commit that published plans; each field is a property, such as ``firn.job-id`` (C24). Also one
    of these plans in the document, as a commit of it alone would tell it."""

    model_config = _OF_SUMMARY

    job_id: str
    """Id of the job; a job of one plan has the plan's id."""
    lane: str
    topic_partition: TopicPartition | None = None
    """None if the commit published several plans."""
    reason: str | None = None
    """None if the commit published several plans."""
    planned_on: int | None = None
    """Id of main's snapshot on which the plan was made; None if the commit published several plans."""
    requests: str = ""
    """Ids of the requests that the plans served, with blanks between them."""
    plans: _Number = 1
    plans_document: str | None = None
    """Location of the document that describes several plans."""
    now_ms: _Number
    """The time for which the plan was made (its clock), epoch milliseconds; for several plans, the earliest clock."""
    validation: str | None = None
    """Name of Great Expectations' run that judged the plans."""
    counts: Counts
    """Sums over the plans."""
    snapshot_id: int = 0
    """Id of the snapshot; 0 before the commit, like ``at_ms``."""
    at_ms: int = 0
    """Time of the commit, epoch milliseconds."""

    @property
    def what(self) -> str:
        """The topic partition, or the number of topic partitions."""
        return str(self.topic_partition or count(self.plans, "topic partition"))

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self | None:
        """Parse the summary of ``snapshot``; None if it publishes no plan of Firn, or is malformed."""
        properties = firn_properties(snapshot)
        if JOB_ID not in properties:
            return None
        try:
            told = {_key("counts"): properties, _key("at_ms"): snapshot.timestamp_ms}
            return cls.model_validate({**properties, **told})
        except ValidationError:
            return None

    def properties(self) -> dict[str, str]:
        """The properties of the snapshot's summary."""
        told = self.model_dump(mode="json", by_alias=True, exclude={"counts"}, exclude_defaults=True)
        return {name: str(value) for name, value in told.items()} | self.counts.summary()


_DOCUMENT = TypeAdapter(tuple[CommitSummary, ...])


def plans_folder(target: Table) -> str:
    """Folder of the plans documents that commits on ``target`` refer to."""
    return f"{metadata_folder(target)}/{PLANS_FOLDER}"


def write_document(target: Table, job_id: str, plans: Sequence[CommitSummary]) -> str:
    """Write the document of ``plans``, which one commit is going to publish; returns its location.

    The name has a digest of the content, so a later try of the commit, with fewer plans, does not change the document.
    """
    content = _DOCUMENT.dump_json(tuple(plans))
    location = f"{plans_folder(target)}/{job_id}-{_digest(content)}.json"
    with target.io.new_output(location).create(overwrite=True) as stream:
        stream.write(content)
    return location


def document_of(snapshot: Snapshot) -> str | None:
    """Location of the plans document of ``snapshot``; None when it has none."""
    return firn_properties(snapshot).get(_key("plans_document"))


def read_document(target: Table, location: str, subject: str) -> bytes:
    """The content of the plans document at ``location``.

    Raises RefusedError, which names ``subject``, when the document is gone or was changed, and UnavailableError when
    the store does not answer.
    """
    try:
        with target.io.new_input(location).open() as stream:
            content = stream.read()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError) as error:
        # If somebody has changed the summary, the location may be any text.
        raise RefusedError(f"{subject} can't be read: {error}; allowed: the document as Firn wrote it") from error
    except OSError as error:
        raise UnavailableError(f"{subject} can't be read: {error}") from error
    if _digest(content) not in location:
        raise RefusedError(f"{subject} can't be read: {location} was changed; allowed: the document as Firn wrote it")
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def plans_of(target: Table, snapshot: Snapshot) -> tuple[CommitSummary, ...]:
    """The plans that ``snapshot`` published, each with its topic partition; empty when Firn did not make the snapshot.

    Raises RefusedError when the document of several plans is gone, or when plans can't be read.
    """
    told = CommitSummary.of(snapshot)
    if told is None:
        return ()
    subject = f"snapshot {snapshot.snapshot_id} of table {'.'.join(target.name())}: its plans"
    plans: tuple[CommitSummary, ...] = (told,)
    if told.plans_document:
        try:
            plans = _DOCUMENT.validate_json(read_document(target, told.plans_document, subject))
        except ValidationError as error:
            raise RefusedError(f"{subject} are not readable: {error.errors()[0]['msg']}") from error
    if not all(one.topic_partition and one.reason is not None for one in plans):
        raise RefusedError(f"{subject} are not readable: a topic partition or a reason is missing")
    return plans


def published(target: Table, job_id: str) -> int | None:
    """Id of the snapshot that published the job; None if the history of main in ``target`` has no such snapshot."""
    line = ancestors(target)
    return next((one.snapshot_id for one in line if firn_properties(one).get(JOB_ID) == job_id), None)


_SEARCHED: Final = 100
"""Number of snapshots that are searched for a plan; enough because a run retries a plan soon."""


def published_plans(target: Table, plan_ids: Collection[str]) -> dict[str, int]:
    """By plan id, the ids of the snapshots that published some of ``plan_ids``, among main's last 100.

    Searches backwards from the newest snapshot until all plans are found, and reads the plans documents on the way.
    """
    by_id: dict[str, int] = {}
    for snapshot in islice(ancestors(target), _SEARCHED):
        if len(by_id) == len(set(plan_ids)):
            break
        by_id |= {one.job_id: snapshot.snapshot_id for one in plans_of(target, snapshot) if one.job_id in plan_ids}
    return by_id


def newest_clock(table: Table) -> int | None:
    """The latest planning time (epoch ms) of the plans that Firn published; None if main's history has no plan."""
    return max((told.now_ms for told in map(CommitSummary.of, ancestors(table)) if told), default=None)


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


def appended_bytes(snapshot: Snapshot) -> int:
    """Bytes of the files that another writer's append added, as its summary says; 0 for every other snapshot."""
    is_append = snapshot.summary is not None and snapshot.summary.operation is Operation.APPEND
    by_others = is_append and not CommitSummary.of(snapshot)
    return number_of(properties_of(snapshot).get("added-files-size")) or 0 if by_others else 0


def removed_bytes(snapshot: Snapshot) -> int:
    """Bytes of the data and delete files that ``snapshot`` removed, as its summary says; 0 if it does not."""
    return number_of(properties_of(snapshot).get("removed-files-size")) or 0
