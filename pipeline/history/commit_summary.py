"""Firn's properties in the snapshot summary of a commit: written by publish, read by all other rooms.

A commit of one plan has everything in its summary. A commit of several has the sums there, and each plan in a document
beside the table's metadata, because every reader loads the summaries of all snapshots with the table.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import ValidationError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from pipeline.history.properties import (
    CORE_MS,
    JOB_ID,
    LANE,
    NOW_MS,
    PLAN_ID,
    PLANS,
    PLANS_DOCUMENT,
    REASON,
    TOPIC_PARTITION,
    WAITING_SEGMENTS,
    WAITING_TOPIC_PARTITIONS,
    properties_of,
)
from pipeline.history.published_plans import Planned, PublishedPlan, write_document
from pipeline.history.record_counts import RecordCounts


def summary(
    target: Table, job_id: str, plans: Sequence[Planned], counts: Mapping[str, RecordCounts], core_ms: int = 0
) -> dict[str, str]:
    """Summary properties of the snapshot that publishes ``plans``; ``counts`` are record counts (C24) by plan id.

    ``core_ms`` is the core time that compacting them took; a lane that only drops segments takes none.
    Writes the document of several plans; `firn care` removes one that no snapshot refers to.
    """
    common = RecordCounts.total(counts[plan.id] for plan in plans).summary() | {
        LANE: str(plans[0].lane),
        CORE_MS: str(core_ms),
        # The earliest clock is the safe one: by it work falls due a little sooner.
        NOW_MS: str(min(plan.now_ms for plan in plans)),
        WAITING_SEGMENTS: str(sum(plan.waiting_segments for plan in plans)),
    }
    if [plan.id for plan in plans] == [job_id]:
        (plan,) = plans
        return common | {PLAN_ID: plan.id, TOPIC_PARTITION: str(plan.topic_partition), REASON: plan.reason}
    document = write_document(target, job_id, [PublishedPlan.of(plan, counts[plan.id]) for plan in plans])
    waiting = [str(plan.topic_partition) for plan in plans if plan.waiting_segments]
    return (
        common
        | {JOB_ID: job_id, PLANS: str(len(plans)), PLANS_DOCUMENT: document.model_dump_json()}
        | ({WAITING_TOPIC_PARTITIONS: json.dumps(waiting)} if waiting else {})
    )


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """The summary of a commit of Firn's, without the document of its plans."""

    job_id: str
    """The plan's id where the commit published one plan."""
    lane: str
    topic_partition: str | None
    """None where the commit published several plans."""
    reason: str | None
    """None where the commit published several plans."""
    plans: int
    counts: RecordCounts
    """The sums over the plans."""
    core_ms: int = 0
    """Core time that compacting took, milliseconds; 0 where the summary does not say."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self | None:
        """Parse the summary of ``snapshot``; None where it is not Firn's, or malformed, as any writer may write one."""
        properties = properties_of(snapshot)
        job_id, lane, plans = (
            properties.get(PLAN_ID, properties.get(JOB_ID)),
            properties.get(LANE),
            properties.get(PLANS),
        )
        core_ms = properties.get(CORE_MS, "0")
        if job_id is None or lane is None or not (plans or "1").isdecimal():
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
            int(plans or "1"),
            counts,
            int(core_ms) if core_ms.isdecimal() else 0,
        )


@dataclass(frozen=True, slots=True)
class Appended:
    """Numbers of records and file bytes that another writer appended."""

    records: int
    bytes: int


def appended(snapshot: Snapshot) -> Appended | None:
    """The additions of ``snapshot`` by Iceberg's own summary; None for one that is no append, or Firn's."""
    if snapshot.summary is None or snapshot.summary.operation is not Operation.APPEND or CommitSummary.of(snapshot):
        return None
    properties = snapshot.summary.additional_properties
    records, size = (properties.get(name, "0") for name in ("added-records", "added-files-size"))
    return Appended(int(records) if records.isdecimal() else 0, int(size) if size.isdecimal() else 0)
