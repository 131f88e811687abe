"""The plans that a commit published, one by one, and the snapshot of main that published a plan."""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from pipeline.errors import RefusedError
from pipeline.history.ancestors import ancestors
from pipeline.history.properties import JOB_ID, LANE, PLAN_ID, PLANS_DOCUMENT, REASON, TOPIC_PARTITION, properties_of
from pipeline.history.record_counts import RecordCounts
from pipeline.lake.documents import Document
from pipeline.lake.topic_partition import TopicPartition

COMMITS_LOOKED_AT: Final = 100
"""Number of snapshots searched for a plan: a run retries a plan soon after."""


class Planned(Protocol):
    """The fields of a plan that its commit records; ``now_ms`` is the plan's clock in epoch milliseconds."""

    @property
    def id(self) -> str: ...

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def lane(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def now_ms(self) -> int: ...

    @property
    def waiting_segments(self) -> int: ...


class PublishedPlan(BaseModel):
    """One plan of a commit, with its record counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    topic: str
    partition: int
    lane: str
    reason: str
    counts: RecordCounts

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic partition of its topic and partition."""
        return TopicPartition(self.topic, self.partition)

    @classmethod
    def of(cls, plan: Planned, counts: RecordCounts) -> "PublishedPlan":
        """What a commit records of ``plan``."""
        return cls(
            id=plan.id,
            topic=plan.topic,
            partition=plan.partition,
            lane=str(plan.lane),
            reason=plan.reason,
            counts=counts,
        )


_DOCUMENT = TypeAdapter(tuple[PublishedPlan, ...])


def commits_folder(target: Table) -> str:
    """Folder of the documents that commits on ``target`` refer to."""
    return f"{target.location().rstrip('/')}/commits"


def write_document(target: Table, job_id: str, plans: Sequence[PublishedPlan]) -> Document:
    """Write the document of ``plans``, which one commit is going to publish."""
    return Document.write(target, commits_folder(target), job_id, _DOCUMENT.dump_json(tuple(plans)).decode())


def document_of(snapshot: Snapshot) -> str | None:
    """Location of the plans document of ``snapshot``; None when it has none."""
    text = properties_of(snapshot).get(PLANS_DOCUMENT)
    return Document.parse(text, f"snapshot {snapshot.snapshot_id}").location if text else None


def plans_of(target: Table, snapshot: Snapshot) -> tuple[PublishedPlan, ...]:
    """The plans that ``snapshot`` published; empty when it is not Firn's.

    Raises RefusedError when the document of several plans is gone, or when plans can't be read.
    """
    properties = properties_of(snapshot)
    subject = f"snapshot {snapshot.snapshot_id} of table {'.'.join(target.name())}: its plans"
    try:
        if PLANS_DOCUMENT in properties:
            return _DOCUMENT.validate_json(Document.parse(properties[PLANS_DOCUMENT], subject).read(target, subject))
        return (_alone(properties),) if PLAN_ID in properties else ()
    except ValidationError as error:
        raise RefusedError(f"{subject} are not readable: {error.errors()[0]['msg']}") from error


def published(target: Table, job_id: str) -> int | None:
    """Id of main's snapshot that published the job; None when ``target``'s history has none.

    A job of one plan has the plan's id.
    """
    for snapshot in ancestors(target):
        properties = properties_of(snapshot)
        if job_id in (properties.get(PLAN_ID), properties.get(JOB_ID)):
            return snapshot.snapshot_id
    return None


def published_plans(target: Table, plan_ids: Collection[str]) -> dict[str, tuple[int, PublishedPlan]]:
    """Published plans among ``plan_ids``, with the id of their snapshot, from main's last COMMITS_LOOKED_AT snapshots.

    Searches from the newest backwards until all are found, and reads the documents of commits of several plans.
    """
    by_id: dict[str, tuple[int, PublishedPlan]] = {}
    for snapshot in islice(ancestors(target), COMMITS_LOOKED_AT):
        if len(by_id) == len(set(plan_ids)):
            break
        by_id |= {one.id: (snapshot.snapshot_id, one) for one in plans_of(target, snapshot) if one.id in plan_ids}
    return by_id


def _alone(properties: Mapping[str, str]) -> PublishedPlan:
    """The plan of a single-plan commit, which is entirely in the summary."""
    place = TopicPartition.parse(properties.get(TOPIC_PARTITION, ""))
    return PublishedPlan.model_validate(
        {
            "id": properties[PLAN_ID],
            "topic": place.topic,
            "partition": place.partition,
            "lane": properties.get(LANE),
            "reason": properties.get(REASON),
            "counts": RecordCounts.of_summary(properties),
        }
    )
