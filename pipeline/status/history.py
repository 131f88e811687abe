"""Firn's work according to a table's snapshots: its last commits, and the sums over all of them (C24)."""

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from pipeline.history.ancestors import ancestors
from pipeline.history.commit_summary import CommitSummary, appended
from pipeline.sense.lanes import ANY_POLICY, Lane
from pipeline.status.document import LaneCommit, LaneWork

KEPT = 50
_CLEANING = frozenset(Lane) - ANY_POLICY


def work_on(table: Table) -> tuple[LaneWork, tuple[LaneCommit, ...]]:
    """Arrivals in ``table`` and Firn's work on them, back to its oldest snapshot; and Firn's last commits."""
    landed, core_ms, publications = 0, 0, []
    since = None
    for snapshot in ancestors(table):
        since = snapshot.timestamp_ms
        if told := CommitSummary.of(snapshot):
            publications.append(_publication(snapshot, told))
            core_ms += told.core_ms
        elif added := appended(snapshot):
            landed += added.bytes
    work = LaneWork(
        landed_bytes=landed,
        written_bytes=sum(one.bytes_out for one in publications),
        saved_bytes=sum(one.bytes_in - one.bytes_out for one in publications),
        cleaned_bytes=sum(one.bytes_in - one.bytes_out for one in publications if one.lane in _CLEANING),
        core_ms=core_ms,
        since_ms=since,
    )
    return work, tuple(publications[:KEPT])


def _publication(snapshot: Snapshot, told: CommitSummary) -> LaneCommit:
    return LaneCommit(
        snapshot_id=snapshot.snapshot_id,
        at_ms=snapshot.timestamp_ms,
        lane=told.lane,
        what=told.topic_partition or f"{told.plans} topic partitions",
        reason=told.reason,
        **told.counts.model_dump(include=set(LaneCommit.model_fields)),
    )
