"""What a table's snapshots tell of Firn's work: its last commits, and the sums of all of them (C24)."""

from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from pipeline.history.ancestors import ancestors
from pipeline.history.commit_summary import CommitSummary, appended
from pipeline.overview import Publication

KEPT = 50


@dataclass(frozen=True)
class Work:
    """Sums in bytes over the snapshots that are still known, the oldest of which is of ``since_ms``."""

    landed_bytes: int
    written_bytes: int
    saved_bytes: int
    since_ms: int | None
    publications: tuple[Publication, ...]
    """The newest KEPT, newest first."""


def work_on(table: Table) -> Work:
    """What landed in ``table``, and what Firn has made of it, as far as its snapshots reach."""
    landed, publications = 0, []
    since = None
    for snapshot in ancestors(table):
        since = snapshot.timestamp_ms
        if told := CommitSummary.of(snapshot):
            publications.append(_publication(snapshot, told))
        elif added := appended(snapshot):
            landed += added.bytes
    return Work(
        landed_bytes=landed,
        written_bytes=sum(one.bytes_out for one in publications),
        saved_bytes=sum(one.bytes_in - one.bytes_out for one in publications),
        since_ms=since,
        publications=tuple(publications[:KEPT]),
    )


def _publication(snapshot: Snapshot, told: CommitSummary) -> Publication:
    counts = told.counts
    return Publication(
        snapshot_id=snapshot.snapshot_id,
        at_ms=snapshot.timestamp_ms,
        lane=told.lane,
        what=told.topic_partition or f"{told.plans} topic partitions",
        reason=told.reason,
        segments_in=counts.segments_in,
        segments_out=counts.segments_out,
        records_in=counts.records_in,
        records_out=counts.records_out,
        bytes_in=counts.bytes_in,
        bytes_out=counts.bytes_out,
        tombstones_removed=counts.tombstones_removed,
        quarantined=counts.quarantined,
    )
