"""Firn's commits on a table, newest first, as far as its snapshots reach.

The summary of a snapshot says which plan it published; its own manifests say which data files it took out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from pipeline.stage.accounting import SUMMARY_PREFIX
from pipeline.stage.published import PLAN_ID

_REMOVED = ("superseded", "tombstones-removed", "expired", "quarantined", "aborted", "markers-removed")
"""Terms of the books (C24) under which records leave a table."""


@dataclass(frozen=True)
class Commit:
    """One commit on the table; ``plan``, ``lane`` and ``reason`` are None where it was not Firn's."""

    snapshot_id: int
    parent_id: int | None
    at_ms: int
    operation: str
    plan: str | None
    lane: str | None
    reason: str | None
    topic_partition: str | None
    removed: int
    """Records that a commit of Firn's took away, whatever the reason."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Commit":
        """What ``snapshot`` says of itself."""
        said = snapshot.summary.additional_properties if snapshot.summary else {}
        return cls(
            snapshot_id=snapshot.snapshot_id,
            parent_id=snapshot.parent_snapshot_id,
            at_ms=snapshot.timestamp_ms,
            operation=snapshot.summary.operation.value if snapshot.summary else "unknown",
            plan=said.get(PLAN_ID),
            lane=said.get(f"{SUMMARY_PREFIX}lane"),
            reason=said.get(f"{SUMMARY_PREFIX}reason"),
            topic_partition=said.get(f"{SUMMARY_PREFIX}topic-partition"),
            removed=sum(int(said.get(f"{SUMMARY_PREFIX}{term}", 0)) for term in _REMOVED),
        )


class History:
    """The current snapshot of ``table`` and its ancestors."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @cached_property
    def commits(self) -> tuple[Commit, ...]:
        """Every commit that is still known, newest first."""
        return tuple(Commit.of(snapshot) for snapshot in self._snapshots)

    @property
    def complete(self) -> bool:
        """Whether nothing before the oldest known commit is expired."""
        return not self.commits or self.commits[-1].parent_id is None

    def removals(self) -> Iterator[tuple[Commit, ManifestEntry]]:
        """Every data file that a commit took out of the table, newest commit first."""
        for snapshot in self._snapshots:
            for manifest in snapshot.manifests(self._table.io):
                # A file that is taken out is listed once more, by the commit that does it (Iceberg spec, "Manifests").
                if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id == snapshot.snapshot_id:
                    for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=False):
                        if entry.status == ManifestEntryStatus.DELETED:
                            yield Commit.of(snapshot), entry

    @cached_property
    def _snapshots(self) -> tuple[Snapshot, ...]:
        return tuple(ancestors_of(self._table.current_snapshot(), self._table.metadata))
