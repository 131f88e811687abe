"""Scan tasks of a snapshot, also of one with equality deletes, for which PyIceberg plans none."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent
from pyiceberg.table import FileScanTask, Table

from pipeline.lake.branches import at_snapshot
from pipeline.lake.manifests import Manifests
from pipeline.lake.row_deletes import FileDeletes
from pipeline.segments.read import read_entries


@dataclass(frozen=True)
class PlannedFiles:
    """The scan tasks of data files by path, with their position deletes, and the row-level deletes of those files that
    equality deletes reach, which a scan does not apply."""

    tasks: Mapping[str, FileScanTask]
    unapplied: Mapping[str, FileDeletes] = field(default_factory=dict)


def planned(
    table: Table, snapshot_id: int | None, row_filter: BooleanExpression, among: Collection[str] | None = None
) -> PlannedFiles:
    """The files of the snapshot that may hold rows of ``row_filter``, of those at the paths ``among`` if given.

    With equality deletes in the snapshot no file is left out by its bounds.
    """
    snapshot = table.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
    listed = snapshot.manifests(table.io) if snapshot else []
    manifests = Manifests(table.io)
    deletes: dict[str, DataFile] = {
        entry.data_file.file_path: entry.data_file
        for entry in manifests.live(one for one in listed if one.content == ManifestContent.DELETES)
    }
    if not any(one.content == DataFileContent.EQUALITY_DELETES for one in deletes.values()):
        scan = table.scan(row_filter=row_filter, snapshot_id=snapshot_id)
        by_path = {task.file.file_path: task for task in scan.plan_files()}
        return PlannedFiles({path: task for path, task in by_path.items() if among is None or path in among})
    tasks: dict[str, FileScanTask] = {}
    unapplied: dict[str, FileDeletes] = {}
    for entry, own in read_entries(at_snapshot(table, snapshot_id), manifests, among):
        path = entry.data_file.file_path
        tasks[path] = FileScanTask(entry.data_file, {deletes[one.path] for one in own if not one.is_equality})
        if any(one.is_equality for one in own):
            unapplied[path] = FileDeletes(entry.sequence_number or 0, tuple(own))
    return PlannedFiles(tasks, unapplied)
