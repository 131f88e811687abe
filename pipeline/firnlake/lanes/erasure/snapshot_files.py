"""Every file that the metadata of a table names, and every other file in the table's folders (C30)."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile

from firnlake.errors import RefusedError
from firnlake.iceberg.files import Stored, data_folder, files_in, metadata_folder, path_of, store
from firnlake.iceberg.manifests import ahead, checked_entries, manifests_of
from firnlake.table.history import document_of

S = TypeVar("S")
T = TypeVar("T")

OLDER: Final = "older snapshots"
"""What names a file that no branch or tag shows any more."""
NOTHING: Final = "nothing"
"""What names a file that the metadata of the table does not name."""


@dataclass
class SnapshotFile:
    """A data file or delete file, with what its manifests say of it."""

    file: DataFile
    sequence_number: int | None
    """The lowest of its file sequence numbers; None if a manifest does not tell it."""
    snapshots: set[int]
    """The snapshots that show the file."""


@dataclass(frozen=True)
class RemovedFile:
    """A manifest's entry for a file that a commit has removed."""

    manifest: str
    file: DataFile
    sequence_number: int | None


@dataclass
class SnapshotFiles:
    """Every file that the metadata of ``table`` names, in every snapshot, branch and tag."""

    table: Table
    files: dict[str, SnapshotFile] = field(default_factory=dict)
    """The data files and delete files that snapshots show, by path."""
    removed: list[RemovedFile] = field(default_factory=list)
    """Entries for removed files."""
    metadata: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The snapshots that need each metadata file, by location; none if the table alone names the file."""
    specs: dict[str, int] = field(default_factory=dict)
    """The partition spec of each manifest, by location."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Why a manifest or a manifest list can't be read, by location."""

    @classmethod
    def of(cls, table: Table) -> "SnapshotFiles":
        """Read every manifest of every snapshot of ``table``; raises an OSError when the store does not answer."""
        named = cls(table)
        manifests: dict[str, ManifestFile] = {}
        for snapshot, listed in ahead(partial(_answer, partial(manifests_of, table)), table.metadata.snapshots):
            named.metadata[snapshot.manifest_list].add(snapshot.snapshot_id)
            if document := document_of(snapshot):
                named.metadata[document].add(snapshot.snapshot_id)
            if isinstance(listed, str):
                named.unreadable[snapshot.manifest_list] = listed
                continue
            for manifest in listed:
                manifests[manifest.manifest_path] = manifest
                named.metadata[manifest.manifest_path].add(snapshot.snapshot_id)
        for manifest, entries in ahead(partial(_answer, partial(checked_entries, table.io)), manifests.values()):
            named.specs[manifest.manifest_path] = manifest.partition_spec_id
            if isinstance(entries, str):
                named.unreadable[manifest.manifest_path] = entries
            else:
                named._add(manifest.manifest_path, entries)
        for counted in named.statistics():
            named.metadata[counted.statistics_path].add(counted.snapshot_id)
        for logged in (*(one.metadata_file for one in table.metadata.metadata_log), table.metadata_location):
            named.metadata[logged].update()
        return named

    def _add(self, manifest: str, entries: Collection[ManifestEntry]) -> None:
        for entry in entries:
            file, number = entry.data_file, entry.file_sequence_number
            if entry.status == ManifestEntryStatus.DELETED:
                self.removed.append(RemovedFile(manifest, file, number))
                continue
            known = self.files.setdefault(file.file_path, SnapshotFile(file, number, set()))
            known.snapshots |= self.metadata[manifest]
            if number is None or (known.sequence_number is not None and number < known.sequence_number):
                known.sequence_number = number

    def statistics(self) -> Sequence[StatisticsFile | PartitionStatisticsFile]:
        """The statistics and the partition statistics of all snapshots."""
        return (*self.table.metadata.statistics, *self.table.metadata.partition_statistics)

    def holders(self, path: str) -> list[str]:
        """What names the file at ``path``: branches and tags, otherwise older snapshots, otherwise nothing."""
        snapshots = self.files[path].snapshots if path in self.files else self.metadata.get(path, ())
        kinds = {SnapshotRefType.TAG: "tag", SnapshotRefType.BRANCH: "branch"}
        refs = sorted(self.table.metadata.refs.items())
        shown = [f"{kinds[ref.snapshot_ref_type]} {name}" for name, ref in refs if ref.snapshot_id in snapshots]
        return shown or [OLDER if snapshots else NOTHING]

    def others(self) -> Iterator[Stored]:
        """The files in the table's folders that the metadata does not name, hidden ones included."""
        known = {path_of(one) for one in (*self.files, *self.metadata)}
        for location in locations_of(self.table):
            files, folder = store(self.table, location)
            for stored in files_in(files, folder):
                file = replace(stored, path=f"{location}{stored.path[len(folder) :]}")
                # The checksum of a named file is looked at, too: it may be anything.
                if file.path.endswith(".crc") or path_of(file.path) not in known:
                    yield file


def locations_of(table: Table) -> tuple[str, ...]:
    """The folders of ``table`` that belong to no other table: its location, and Firn's folders elsewhere."""
    location = table.location().rstrip("/")
    elsewhere = {data_folder(table), metadata_folder(table)}
    return location, *sorted(folder for folder in elsewhere if not folder.startswith(f"{location}/"))


def _answer(read: Callable[[S], list[T]], subject: S) -> list[T] | str:
    """What ``read`` returns for ``subject``, or why it can't be read."""
    try:
        return read(subject)
    except FileNotFoundError:
        return "it is gone"
    except RefusedError as error:
        return str(error)
