"""Row-level deletes for the judge: the facts about data files and delete files that manifests state.

The judge's own SQL (``firnlake_expectations.visible``) decides which delete applies to which record. This module only
leaves out deletes of other Iceberg partitions.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.delete_files import PATH, compared, positions, values
from firnlake.iceberg.deletes import DeleteFile, place, place_of
from firnlake.iceberg.manifests import Manifests
from firnlake.job.plan import Plan
from firnlake_expectations.visible import Deletes, Listed

_NEWEST: Final = 2**63 - 1
"""A data sequence number that is higher than all others."""


def staged_delete(file: DataFile, table: Table) -> Deletes:
    """A position delete ``file`` that is not committed yet, and will be newer than every file of ``table``."""
    return _told(DeleteFile.of(file, _NEWEST, table.specs()), DataFiles.of(table))


def check_merged(delete: Deletes, plan: Plan, live: Callable[[], pa.Array]) -> None:
    """Raise RefusedError if the position ``delete`` file, which ``plan`` merges, names a live data file that is not an
    input, because its hidden records would be visible again. ``live`` returns the paths of all live data files."""
    inputs = pa.array([one.path for one in plan.inputs], pa.large_string())
    for rows in delete.read():
        others = rows.column(PATH).filter(pc.invert(pc.is_in(rows.column(PATH), value_set=inputs)))
        if len(others):
            others = others.filter(pc.is_in(others, value_set=live()))
        if len(others):
            raise RefusedError(
                f"plan {plan.id} ({plan.title}) would remove delete file {delete.name}, which names "
                f"{others[0].as_py()}; allowed: a file that names only inputs of the plan"
            )


def converted(entry: Listed, merged: Collection[str], staged: Sequence[Deletes]) -> Listed:
    """``entry`` after a plan of lane `convert` is published: with the ``staged`` deletes, and without the equality
    deletes, which it has converted, and the deletes at the paths ``merged``."""
    kept = (one for one in entry.deletes if one.name not in merged and not one.columns)
    return replace(entry, deletes=(*kept, *staged))


def _told(delete: DeleteFile, files: DataFiles) -> Deletes:
    """The delete file in the judge's form."""
    columns = tuple(compared(files, delete)) if delete.is_equality else ()
    read = partial(_rows, files, delete)
    return Deletes(delete.path, delete.sequence_number, _scope(delete), delete.only, columns, read)


def _rows(files: DataFiles, delete: DeleteFile) -> Iterator[pa.RecordBatch]:
    yield from values(files, delete) if delete.is_equality else positions(files, delete)


def _scope(delete: DeleteFile) -> str | None:
    """The Iceberg partition to whose files the delete file may apply; None: to files of all partitions."""
    return None if delete.everywhere else place(delete.source.spec_id, delete.source.partition)


@dataclass(frozen=True)
class SnapshotDeletes:
    """The row-level deletes of one snapshot, and the data sequence numbers of its data files by path."""

    deletes: tuple[DeleteFile, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table, snapshot: Snapshot | None, paths: Iterable[str]) -> "SnapshotDeletes":
        """Read the manifests of ``snapshot``, with data sequence numbers of the data files ``paths`` only. If the
        snapshot has no row-level deletes, only its manifest list is read."""
        listed = snapshot.manifests(table.io) if snapshot else []
        with_deletes = [one for one in listed if one.content == ManifestContent.DELETES]
        if not with_deletes:
            return cls()
        manifests, wanted = Manifests(table.io), frozenset(paths)
        deletes = tuple(
            DeleteFile.of(entry.data_file, entry.sequence_number or 0, table.specs())
            for entry in manifests.live(with_deletes)
        )
        data = manifests.live(one for one in listed if one.content == ManifestContent.DATA)
        numbers = {
            entry.data_file.file_path: entry.sequence_number or 0
            for entry in data
            if entry.data_file.file_path in wanted
        }
        return cls(deletes, numbers)

    def entry(self, file: DataFile) -> Listed:
        """The entry of ``file`` without any of these deletes; for a file to which none of the deletes applies."""
        return Listed(self.numbers.get(file.file_path, 0), place_of(file), ())

    def among(self, files: Iterable[DataFile], reader: DataFiles, until: int | None = None) -> dict[str, Listed]:
        """The entries of the data ``files`` of one case, by path; empty if no delete can apply. ``reader`` reads the
        deletes. Equality deletes with a higher data sequence number than ``until`` are left out."""
        scopes = {file.file_path: place_of(file) for file in files if file.file_path in self.numbers}
        places = {None, *scopes.values()}
        near = tuple(
            _told(one, reader)
            for one in self.deletes
            if (_scope(one) in places or one.only in scopes)
            and not (one.is_equality and until is not None and one.sequence_number > until)
        )
        return {path: Listed(self.numbers[path], scope, near) for path, scope in scopes.items()} if near else {}


def live_paths(table: Table) -> pa.Array:
    """Paths of the data files in the current snapshot of ``table``, as large strings."""
    snapshot = table.current_snapshot()
    listed = snapshot.manifests(table.io) if snapshot else []
    data = (one for one in listed if one.content == ManifestContent.DATA)
    return pa.array((entry.data_file.file_path for entry in Manifests(table.io).live(data)), pa.large_string())
