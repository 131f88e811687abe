"""Names of the properties that Firn's commits add to a snapshot summary, besides the record counts."""

from collections.abc import Mapping
from typing import Final

from pyiceberg.table.snapshots import Snapshot

SUMMARY_PREFIX: Final = "firn."
PLAN_ID: Final = f"{SUMMARY_PREFIX}plan-id"
JOB_ID: Final = f"{SUMMARY_PREFIX}job-id"
"""Only where the commit published several plans."""
LANE: Final = f"{SUMMARY_PREFIX}lane"
REASON: Final = f"{SUMMARY_PREFIX}reason"
TOPIC_PARTITION: Final = f"{SUMMARY_PREFIX}topic-partition"
PLANS: Final = f"{SUMMARY_PREFIX}plans"
"""How many plans the commit published; only for several."""
PLANS_DOCUMENT: Final = f"{SUMMARY_PREFIX}plans-document"
"""Where the several plans are written down one by one (`pipeline.lake.documents`)."""
NOW_MS: Final = f"{SUMMARY_PREFIX}now-ms"
"""The plan's clock, epoch milliseconds; of several plans the earliest."""
WAITING_SEGMENTS: Final = f"{SUMMARY_PREFIX}waiting-segments"
"""How many cleanable segments had no room in the plans."""
WAITING_TOPIC_PARTITIONS: Final = f"{SUMMARY_PREFIX}waiting-topic-partitions"
"""The topic partitions of those segments (a JSON list of names), where the commit published several plans."""


def properties_of(snapshot: Snapshot) -> Mapping[str, str]:
    """The properties in the summary of ``snapshot``, Iceberg's own included; none where it has no summary."""
    return snapshot.summary.additional_properties if snapshot.summary else {}
