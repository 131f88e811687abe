"""Firn's commits on a table, newest first, back to the oldest known snapshot.

A snapshot lists the plans it published, in its summary or in a document that the summary names; its own manifests list
the data files it removed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from pipeline.errors import RefusedError
from pipeline.history.ancestors import ancestors
from pipeline.history.commit_summary import CommitSummary
from pipeline.history.published_plans import PublishedPlan, plans_of
from pipeline.lake.topic_partition import TopicPartition


@dataclass(frozen=True)
class Commit:
    """A commit on the table, or one plan's share of it.

    ``plan``, ``lane`` and ``reason`` are None if the commit is not Firn's. If a job's plans are no longer known,
    ``plan`` is the job's id and ``topic_partition`` is None.
    """

    snapshot_id: int
    parent_id: int | None
    at_ms: int
    operation: str
    plan: str | None = None
    lane: str | None = None
    reason: str | None = None
    topic_partition: str | None = None
    removed: int = 0
    """Number of records that a plan of Firn removed, for any reason."""

    @classmethod
    def of(cls, snapshot: Snapshot, plan: PublishedPlan | None) -> "Commit":
        """The commit of ``snapshot``, or the share of ``plan`` in it."""
        told = CommitSummary.of(snapshot)
        job_id, lane = (told.job_id, told.lane) if told else (None, None)
        return cls(
            snapshot_id=snapshot.snapshot_id,
            parent_id=snapshot.parent_snapshot_id,
            at_ms=snapshot.timestamp_ms,
            operation=snapshot.summary.operation.value if snapshot.summary else "unknown",
            plan=plan.id if plan else job_id,
            lane=plan.lane if plan else lane,
            reason=plan.reason if plan else None,
            topic_partition=str(plan.topic_partition) if plan else None,
            removed=plan.counts.records_in - plan.counts.records_out if plan else 0,
        )


class History:
    """The current snapshot of ``table`` and its ancestors."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """All snapshots that are still known, newest first."""
        return tuple(ancestors(self._table))

    def commits(self) -> Iterator[Commit]:
        """All commits that are still known, newest first; a commit of Firn as one share per plan."""
        for snapshot in self.snapshots:
            yield from self._of(snapshot)

    @property
    def complete(self) -> bool:
        """True when no commit before the oldest known one has expired."""
        return not self.snapshots or self.snapshots[-1].parent_snapshot_id is None

    def removals(self) -> Iterator[tuple[Snapshot, ManifestEntry]]:
        """All data files that commits removed from the table, newest commit first."""
        for snapshot in self.snapshots:
            for manifest in snapshot.manifests(self._table.io):
                # The commit that removes a file lists it once more, as deleted (Iceberg spec, "Manifests").
                if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id == snapshot.snapshot_id:
                    for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=False):
                        if entry.status == ManifestEntryStatus.DELETED:
                            yield snapshot, entry

    def taking(self, snapshot: Snapshot, topic_partition: TopicPartition | None) -> Commit:
        """The commit of ``snapshot``: the share that took a segment of ``topic_partition``, if that is known."""
        commits = list(self._of(snapshot))
        return next((one for one in commits if one.topic_partition == str(topic_partition)), commits[0])

    def _of(self, snapshot: Snapshot) -> Iterator[Commit]:
        try:
            plans = plans_of(self._table, snapshot)
        except RefusedError:
            plans = ()
        for plan in plans:
            yield Commit.of(snapshot, plan)
        if not plans:
            yield Commit.of(snapshot, None)
