"""List the files of a table, folder by folder, and keep those that nothing referred to before."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem
from pyiceberg.table import Table

from pipeline.care.contents import Hashes, Reach
from pipeline.care.references import Known, is_in
from pipeline.care.shared import METADATA_FILE
from pipeline.history.published_plans import commits_folder
from pipeline.lake.folders import DATA_FOLDER, JOB_ID, Stored, data_folder, store
from pipeline.lake.job_documents import documents_folder
from pipeline.lake.paths import name_of

_VERSION_HINT: Final = "version-hint.text"
"""File of Hadoop's catalog that names the current version."""
_PART: Final = 10_000
"""Number of files that are looked at together."""
_MARKS: Final = ("_", ".")


@dataclass
class Listing:
    """The files found below a table's location, or only in Firn's own folders."""

    own_only: bool
    """True when only Firn's own folders were looked at."""
    unknown: list[Stored] = field(default_factory=list)
    """Files that nothing known refers to."""
    _past: list[tuple[Hashes, Hashes]] = field(default_factory=list)
    _hashes: list[Hashes] = field(default_factory=list)
    metadata_files: list[str] = field(default_factory=list)
    """Paths of metadata files that are not known: they may be another table's."""

    @property
    def hashes(self) -> Hashes:
        """Hashes of the paths of all files."""
        return np.concatenate([np.empty(0, np.int64), *self._hashes])

    @property
    def past(self) -> tuple[Hashes, Hashes]:
        """Hashes of the paths of the data files that only past snapshots refer to, and their sizes in bytes."""
        nothing = np.empty(0, np.int64)
        hashes, sizes = zip((nothing, nothing), *self._past, strict=True)
        return np.concatenate(hashes), np.concatenate(sizes)

    def add(self, infos: Collection[FileInfo], known: Known) -> None:
        """Take in what a folder holds."""
        stored = [Stored.of(info) for info in infos]
        reach = Reach.of(file.path for file in stored)
        self._hashes.append(reach.paths)
        past = is_in(reach.paths, known.past)
        self._past.append((reach.paths[past], np.array([file.bytes for file in stored], np.int64)[past]))
        for place in np.flatnonzero(~is_in(reach.paths, known.reached)):
            file = stored[place]
            name = name_of(file.path)
            if name == _VERSION_HINT or name in known.metadata_files:
                continue
            self.unknown.append(file)
            if METADATA_FILE.fullmatch(file.path.rpartition("/")[2]):
                self.metadata_files.append(file.path)


def listed(table: Table, known: Known, *, everything: bool) -> Listing:
    """List all files below the location of ``table``, or only those in Firn's folders.

    Hidden names are skipped, as by Iceberg's ``remove_orphan_files``: what begins with an underscore or a dot, except
    partition folders and the folders of Firn's jobs.
    """
    listing = Listing(own_only=not everything)
    location = table.location().rstrip("/")
    documents, data, lists = documents_folder(table), data_folder(table), commits_folder(table)
    roots = [location] if everything else [data] if data.startswith(f"{location}/") else []
    roots += [] if everything and documents.startswith(f"{location}/") else [documents]
    hidden = _Hidden(table)
    for root in roots:
        files, folder = store(table, root)
        within = "" if root == location else f"{DATA_FOLDER}/"
        for infos in _walk(files, folder):
            listing.add([info for info in infos if hidden.shows(within + info.path[len(folder) :].lstrip("/"))], known)
    if not everything:
        files, folder = store(table, lists)
        listing.add([info for info in _children(files, folder, recursive=False) if info.is_file], known)
    return listing


def _walk(files: FileSystem, folder: str, levels: int = 2) -> Iterator[list[FileInfo]]:
    """Yield the files at and below ``folder`` in parts: a listing comes at once, and that of a table is large.

    On an object store a request for every folder would take long, so they are listed at once below some ``levels``.
    """
    is_last = levels <= 0 and not isinstance(files, LocalFileSystem)
    infos = _children(files, folder, recursive=is_last)
    for first in range(0, len(infos), _PART):
        yield [info for info in infos[first : first + _PART] if info.is_file]
    folders = [] if is_last else [info.path for info in infos if info.type == FileType.Directory]
    del infos
    for path in folders:
        yield from _walk(files, path, levels - 1)


def _children(files: FileSystem, folder: str, *, recursive: bool) -> list[FileInfo]:
    children: list[FileInfo] = files.get_file_info(FileSelector(folder, allow_not_found=True, recursive=recursive))
    return children


class _Hidden:
    """Tells hidden paths of a table."""

    def __init__(self, table: Table) -> None:
        fields = {field.name for spec in table.specs().values() for field in spec.fields}
        self._partitions = tuple(f"{name}=" for name in fields if name.startswith(_MARKS))

    def shows(self, path: str) -> bool:
        """True for the ``path`` of a file, relative to the table's location, that is not hidden."""
        *folders, name = path.split("/")
        for place, part in enumerate(folders):
            if part == DATA_FOLDER:
                return bool(re.fullmatch(JOB_ID, (*folders, "")[place + 1]))
            if part.startswith(_MARKS) and not part.startswith(self._partitions):
                return False
        return not name_of(name).startswith(_MARKS)
