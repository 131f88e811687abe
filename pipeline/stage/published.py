"""What a commit of Firn's says of itself in the snapshot summary, and what is read of it there.

The commit of one plan says everything in its summary. That of a job of several has the sums there, and each plan in a
document beside the table's metadata: summaries of all snapshots are loaded with the table by every reader.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from pipeline.errors import RefusedError
from pipeline.lake.documents import Document
from pipeline.plan import Plan
from pipeline.segments import TopicPartition
from pipeline.segments.commits import LEFT_OUT, LEFT_OUT_OF, NOW_MS
from pipeline.stage.accounting import SUMMARY_PREFIX, Accounting

PLAN_ID = f"{SUMMARY_PREFIX}plan-id"
JOB_ID = f"{SUMMARY_PREFIX}job-id"
LANE = f"{SUMMARY_PREFIX}lane"
REASON = f"{SUMMARY_PREFIX}reason"
TOPIC_PARTITION = f"{SUMMARY_PREFIX}topic-partition"
PLANS = f"{SUMMARY_PREFIX}plans"
"""How many plans the commit carried out; only for several."""
COMMITS_LOOKED_AT = 100
"""Who tries a plan again does so soon."""
PLANS_DOCUMENT = f"{SUMMARY_PREFIX}plans-document"


class PublishedPlan(BaseModel):
    """One plan of a commit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    topic: str
    partition: int
    lane: str
    reason: str
    accounting: Accounting

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @classmethod
    def of(cls, plan: Plan, accounting: Accounting) -> "PublishedPlan":
        return cls(
            id=plan.id,
            topic=plan.topic,
            partition=plan.partition,
            lane=plan.lane.value,
            reason=plan.reason,
            accounting=accounting,
        )


_DOCUMENT = TypeAdapter(tuple[PublishedPlan, ...])


def commits_folder(target: Table) -> str:
    """Where the documents of the commits on ``target`` lie."""
    return f"{target.location().rstrip('/')}/commits"


def summary(target: Table, job_id: str, plans: Sequence[Plan], books: Mapping[str, Accounting]) -> dict[str, str]:
    """What the snapshot that carries out ``plans`` says of itself: the books (C24), and which plans they were.

    For several plans their document is written; one that no snapshot refers to in the end is swept.
    """
    common = Accounting.total(books[plan.id] for plan in plans).summary() | {
        LANE: plans[0].lane.value,
        # Every other clock among them is later: what is due by the earliest one is due a little sooner.
        NOW_MS: str(min(plan.now_ms for plan in plans)),
        LEFT_OUT: str(sum(plan.left_out for plan in plans)),
    }
    if [plan.id for plan in plans] == [job_id]:
        (plan,) = plans
        return common | {PLAN_ID: plan.id, TOPIC_PARTITION: str(plan.topic_partition), REASON: plan.reason}
    text = _DOCUMENT.dump_json(tuple(PublishedPlan.of(plan, books[plan.id]) for plan in plans)).decode()
    waiting = [str(plan.topic_partition) for plan in plans if plan.left_out]
    return (
        common
        | {
            JOB_ID: job_id,
            PLANS: str(len(plans)),
            PLANS_DOCUMENT: Document.write(target, commits_folder(target), job_id, text).model_dump_json(),
        }
        | ({LEFT_OUT_OF: json.dumps(waiting)} if waiting else {})
    )


def published(target: Table, job_id: str) -> int | None:
    """Id of the snapshot by which the job was published; None when ``target``'s history has none.

    The id of a job of one plan is the plan's.
    """
    for snapshot in target.metadata.snapshots:
        if snapshot.summary and job_id in (snapshot.summary.get(PLAN_ID), snapshot.summary.get(JOB_ID)):
            return snapshot.snapshot_id
    return None


def published_plans(target: Table, plan_ids: Collection[str]) -> dict[str, tuple[int, PublishedPlan]]:
    """Which of the plans were published, alone or with others, by which of the last COMMITS_LOOKED_AT snapshots.

    From the newest backwards, until all are found: the document of a commit of several is read for it.
    """
    found: dict[str, tuple[int, PublishedPlan]] = {}
    for snapshot in islice(reversed(target.metadata.snapshots), COMMITS_LOOKED_AT):
        if len(found) == len(set(plan_ids)):
            break
        found |= {one.id: (snapshot.snapshot_id, one) for one in plans_of(target, snapshot) if one.id in plan_ids}
    return found


def document_of(snapshot: Snapshot) -> str | None:
    """Name of the file with the plans of ``snapshot``; None when it has none."""
    said = snapshot.summary.get(PLANS_DOCUMENT) if snapshot.summary else None
    return Document.parse(said, f"snapshot {snapshot.snapshot_id}").location.rpartition("/")[2] if said else None


def plans_of(target: Table, snapshot: Snapshot) -> tuple[PublishedPlan, ...]:
    """The plans that ``snapshot`` carried out; none when it is not Firn's.

    Raises RefusedError when they were several and their document is gone, or when they can't be read.
    """
    said = snapshot.summary.additional_properties if snapshot.summary else {}
    subject = f"snapshot {snapshot.snapshot_id} of table {'.'.join(target.name())}: its plans"
    try:
        if PLANS_DOCUMENT in said:
            return _DOCUMENT.validate_json(Document.parse(said[PLANS_DOCUMENT], subject).read(target, subject))
        return (_alone(said),) if PLAN_ID in said else ()
    except ValidationError as error:
        raise RefusedError(f"{subject} are not readable: {error.errors()[0]['msg']}") from error


def _alone(said: Mapping[str, str]) -> PublishedPlan:
    """The plan of a commit of one, all of which is in its summary."""
    place = TopicPartition.parse(said.get(TOPIC_PARTITION, ""))
    return PublishedPlan.model_validate(
        {
            "id": said[PLAN_ID],
            "topic": place.topic,
            "partition": place.partition,
            "lane": said.get(LANE),
            "reason": said.get(REASON),
            "accounting": Accounting.of_summary(said),
        }
    )
