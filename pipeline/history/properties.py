"""Names of the properties that Firn's commits add to a snapshot summary, besides the record counts."""

from collections.abc import Mapping
from typing import Final

from pyiceberg.table.snapshots import Snapshot

SUMMARY_PREFIX: Final = "firn."
PLAN_ID: Final = f"{SUMMARY_PREFIX}plan-id"
JOB_ID: Final = f"{SUMMARY_PREFIX}job-id"
"""Id of the job; only where the commit published several plans."""
LANE: Final = f"{SUMMARY_PREFIX}lane"
ERASE: Final = "erase"
"""The lane whose commits only take requested keys out of segments: what it writes was cleaned before, or was not."""
REASON: Final = f"{SUMMARY_PREFIX}reason"
TOPIC_PARTITION: Final = f"{SUMMARY_PREFIX}topic-partition"
PLANS: Final = f"{SUMMARY_PREFIX}plans"
"""Number of plans that the commit published; only for several."""
PLANS_DOCUMENT: Final = f"{SUMMARY_PREFIX}plans-document"
"""Reference to the document of several plans (`pipeline.lake.documents`)."""
FENCE: Final = f"{SUMMARY_PREFIX}fence"
"""Marks an empty snapshot that fences off commits prepared on its parent (`pipeline.care.jobs`)."""
CORE_MS: Final = f"{SUMMARY_PREFIX}core-ms"
"""Core time that compacting took, milliseconds: its duration times the tasks that could run at once."""
NOW_MS: Final = f"{SUMMARY_PREFIX}now-ms"
"""Clock of the plan, epoch milliseconds; the earliest of several plans."""
WAITING_SEGMENTS: Final = f"{SUMMARY_PREFIX}waiting-segments"
"""Number of cleanable segments that had no room in the plans."""
WAITING_TOPIC_PARTITIONS: Final = f"{SUMMARY_PREFIX}waiting-topic-partitions"
"""Topic partitions of those segments (a JSON list of names), where the commit published several plans."""


def properties_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Properties in the summary of ``snapshot``, Iceberg's own included; empty where it has no summary."""
    # Not by truth value: a summary's length is costly to find out.
    return {} if snapshot.summary is None else snapshot.summary.additional_properties
