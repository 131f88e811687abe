"""The data files of a snapshot, with the row-level deletes that may apply to each.

PyIceberg plans no scan of a snapshot with equality deletes.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.iceberg.branches import ancestors, at_snapshot
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


@dataclass(frozen=True)
class LiveInputs:
    """``files`` are the live data files at some paths, in the order of the paths; ``gone`` are the other paths.

    A file that the table lists several times is in ``files`` as many times, because readers see every copy.
    """

    files: list[DataFile]
    gone: list[str]
    deletes: Mapping[str, FileDeletes]
    """Row-level deletes that may apply to a file, by its path; files without row-level deletes are left out."""

    @classmethod
    def find(cls, table: Table, paths: Sequence[str], manifests: Manifests | None = None) -> "LiveInputs":
        """Look up ``paths`` in the current snapshot of ``table``; paths are compared literally."""
        wanted = frozenset(paths)
        by_path: dict[str, list[DataFile]] = defaultdict(list)
        deletes: dict[str, FileDeletes] = {}
        for entry, reaching in read_entries(table, manifests, wanted):
            path = entry.data_file.file_path
            by_path[path].append(entry.data_file)
            if reaching:
                # No plan takes a file that is listed twice and has deletes, so a single entry per path is enough.
                deletes[path] = reaching
        return cls(
            files=[file for path in paths for file in by_path.get(path, ())],
            gone=[path for path in paths if path not in by_path],
            deletes=deletes,
        )


@dataclass(frozen=True)
class PlannedFile:
    """A data file of a snapshot, and the row-level deletes that may apply to it; None if there are none."""

    file: DataFile
    deletes: FileDeletes | None


def planned(table: Table, snapshot_id: int, row_filter: BooleanExpression) -> Mapping[str, PlannedFile]:
    """The snapshot's files that may hold rows matching ``row_filter``, by path.

    If the snapshot has equality deletes, no file is left out because of its bounds.
    """
    at = at_snapshot(table, snapshot_id)
    snapshot, manifests = at.current_snapshot(), Manifests(table.io)
    listed = manifests_of(table, snapshot) if snapshot else []
    deletes = manifests.live(one for one in listed if one.content == ManifestContent.DELETES)
    kinds = {entry.data_file.content for entry in deletes}
    found = None
    if DataFileContent.EQUALITY_DELETES not in kinds:
        scan = table.scan(row_filter=row_filter, snapshot_id=snapshot_id)
        found = {task.file.file_path: PlannedFile(task.file, None) for task in scan.plan_files()}
        if not kinds:
            return found
    return {
        entry.data_file.file_path: PlannedFile(entry.data_file, own)
        for entry, own in read_entries(at, manifests, found)
    }
