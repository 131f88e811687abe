"""The data files of a snapshot, with the row-level deletes that may apply to each.

PyIceberg plans no scan of a snapshot with equality deletes.
"""

from collections.abc import Collection, Iterator

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.deletes import Deletes, FileDeletes, Placed
from firnlake.iceberg.manifests import Manifests, manifests_of


def read_entries(
    table: Table, manifests: Manifests | None = None, among: Collection[str] | None = None
) -> Iterator[tuple[ManifestEntry, FileDeletes | None]]:
    """Yield every live data file of the current snapshot, or only those at the paths ``among``, each with the row-level
    deletes that may apply to it, if there are any.

    ``manifests`` caches the entries of earlier snapshots.
    """
    snapshot = table.current_snapshot()
    files = manifests_of(table, snapshot) if snapshot else []
    known = manifests or Manifests(table.io)
    listed = known.live(manifest for manifest in files if manifest.content == ManifestContent.DELETES)
    deletes = Deletes(listed, table.specs())
    for entry in known.live(manifest for manifest in files if manifest.content == ManifestContent.DATA):
        file = entry.data_file
        if among is None or file.file_path in among:
            yield entry, deletes.reaching(Placed.of(file, entry.sequence_number or 0)) if deletes.any else None


def removals(table: Table) -> Iterator[tuple[Snapshot, ManifestEntry]]:
    """Yield every data file that a commit in main's history has removed, those of the newest commit first."""
    for snapshot in ancestors(table):
        for manifest in manifests_of(table, snapshot):
            # A commit that removes a file lists the file as deleted in a new manifest (Iceberg spec, "Manifests").
            if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id == snapshot.snapshot_id:
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                    if entry.status == ManifestEntryStatus.DELETED:
                        yield snapshot, entry
