"""Firn's commits on a table, newest first, as far as its snapshots reach.

A snapshot says which plans it published, in its summary or in a document that the summary names; its own manifests say
which data files it took out.
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

    ``plan``, ``lane`` and ``reason`` are None where it was not Firn's. Of a job whose plans are not known any more
    ``plan`` is the id of the job, and there is no ``topic_partition``.
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
    """Records that a plan of Firn's took away, whatever the reason."""

    @classmethod
    def of(cls, snapshot: Snapshot, plan: PublishedPlan | None) -> "Commit":
        """What ``snapshot`` says of itself, and of ``plan``."""
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
        """Every snapshot that is still known, newest first."""
        return tuple(ancestors(self._table))

    def commits(self) -> Iterator[Commit]:
        """Every commit that is still known, newest first: each plan's share of it where it was Firn's."""
        for snapshot in self.snapshots:
            yield from self._of(snapshot)

    @property
    def complete(self) -> bool:
        """Whether nothing before the oldest known commit is expired."""
        return not self.snapshots or self.snapshots[-1].parent_snapshot_id is None

    def removals(self) -> Iterator[tuple[Snapshot, ManifestEntry]]:
        """Every data file that a commit took out of the table, newest commit first."""
        for snapshot in self.snapshots:
            for manifest in snapshot.manifests(self._table.io):
                # A file that is taken out is listed once more, by the commit that does it (Iceberg spec, "Manifests").
                if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id == snapshot.snapshot_id:
                    for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=False):
                        if entry.status == ManifestEntryStatus.DELETED:
                            yield snapshot, entry

    def taking(self, snapshot: Snapshot, topic_partition: TopicPartition | None) -> Commit:
        """The commit of ``snapshot``: the share that took a segment of ``topic_partition``, where it is known."""
        found = list(self._of(snapshot))
        return next((one for one in found if one.topic_partition == str(topic_partition)), found[0])

    def _of(self, snapshot: Snapshot) -> Iterator[Commit]:
        try:
            plans = plans_of(self._table, snapshot)
        except RefusedError:
            plans = ()
        for plan in plans:
            yield Commit.of(snapshot, plan)
        if not plans:
            yield Commit.of(snapshot, None)
