"""List a table's files, folder by folder, and refuse to delete files by age if some may be another table's."""

import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Final, TypeVar

import numpy as np
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import (
    DATA_PATH,
    METADATA_PATH,
    OWN_FOLDER,
    Stored,
    data_folder,
    files_in,
    name_of,
    path_of,
    store,
)
from firnlake.iceberg.referenced_files import Hashes, Reach
from firnlake.job.documents import documents_folder
from firnlake.lanes.erasure.requests import DOCUMENT
from firnlake.table.history import plans_folder
from firnlake.table.policy import DAY_MS
from firnlake.table.references import Known, is_in

T = TypeVar("T")

METADATA_FILE: Final = re.compile(r".*\.metadata\.json(\.gz)?")
ORPHAN_AGE_MS: Final = 3 * DAY_MS
"""Age, in milliseconds, from which on a file that nothing refers to is deleted, as by Iceberg's remove_orphan_files: a
writer may still publish a younger one."""
OF_AGE: Final = "3 days"
"""Property by which the operator allows the deletion of files that the table never named."""
_PATHS: Final = (DATA_PATH, METADATA_PATH, "write.object-storage.path", "write.folder-storage.path")
"""Iceberg's properties for the folders of a table's files; the last two are older names of the first property."""
_UUID: Final = re.compile(rb'"table-uuid"\s*:\s*"([0-9a-fA-F-]{36})"')
_HEAD: Final = 1 << 16
"""Number of bytes of a metadata file that are read at a time; the table's UUID is near the start."""


class UnknownTableError(RefusedError):
    """Another table can't be loaded, so nobody knows where its files are."""


def check_alone(lake: Lake, table: Table, metadata_files: Iterable[str]) -> None:
    """Raise RefusedError when another table's files may be where maintenance deletes files of ``table``.

    ``metadata_files`` are the paths on the store of all metadata files below the location except those of ``table``.
    Loads every table of the catalog. Raises UnknownTableError when no known location overlaps, but some are unknown.
    """
    identifier = ".".join(table.name())
    unknown = _check_catalog(lake, identifier, table)
    files, folder = store(table, table.location().rstrip("/"))
    own = str(table.metadata.table_uuid).lower()
    for where, paths in (("within", metadata_files), ("above", _above(files, folder))):
        for path in paths:
            uuid = _uuid_of(files, path)
            if uuid not in (None, own):
                raise _refused(identifier, table, f"{path}, {where} that location, is of another table (UUID {uuid})")
    if unknown:
        raise unknown


def _check_catalog(lake: Lake, identifier: str, table: Table) -> UnknownTableError | None:
    """Compare the locations of ``table`` with those of the catalog's other tables; raises RefusedError if some overlap.

    Returns the error if another table can't be loaded.
    """
    mine = {table.location(), table.properties.get(METADATA_PATH, table.location())}
    unknown: UnknownTableError | None = None
    try:
        others = _answer(identifier, "the catalog's tables can't be listed", lake.all_tables)
    except UnknownTableError as error:
        return error
    for other in others:
        if other == identifier:
            continue
        try:
            neighbour = _answer(identifier, f"table {other} can't be loaded", partial(lake.table, other))
        except UnknownTableError as error:
            unknown = error
            continue
        for location in _locations(neighbour):
            if any(_overlap(location, one) for one in mine):
                raise _refused(identifier, table, f"table {other} is at {location}")
    return unknown


def _above(files: FileSystem, folder: str) -> Iterator[str]:
    """Yield the metadata files in the subfolder ``metadata`` of each folder above ``folder``, if it can be listed."""
    for parent in PurePosixPath(folder).parents:
        if str(parent) not in (".", "/"):
            with suppress(OSError):
                for file in files_in(files, f"{parent}/metadata", recursive=False):
                    if METADATA_FILE.fullmatch(file.path):
                        yield file.path


def _uuid_of(files: FileSystem, path: str) -> str | None:
    """The table UUID in the metadata file at ``path``; None if the file is torn, as then no table uses it."""
    try:
        # Arrow unpacks a file by the suffix of its name, which Iceberg's `.gz.metadata.json` hides.
        with files.open_input_stream(path, compression=None) as stream:
            head = stream.read(_HEAD)
            unpack = zlib.decompressobj(31) if head.startswith(b"\x1f\x8b") else None
            text = unpack.decompress(head) if unpack else head
            while not (match := _UUID.search(text)) and (head := stream.read(_HEAD)):
                text += unpack.decompress(head) if unpack else head
    except (OSError, zlib.error):
        return None
    return match[1].decode().lower() if match else None


def _answer(identifier: str, problem: str, question: Callable[[], T]) -> T:
    """The answer to ``question``; raises UnknownTableError with the ``problem`` if ``question`` fails."""
    try:
        return question()
    except Exception as error:  # the metadata of other tables may be damaged in any way
        reason = " ".join(str(error).split())
        raise UnknownTableError(
            f"table {identifier}: orphans stay, because another table's files may be among them: {problem}: {reason}; "
            f"allowed: a catalog in which all tables can be loaded"
        ) from error


def _locations(table: Table) -> set[str]:
    """The locations of the folders that hold files of ``table``."""
    told = {table.properties[name] for name in _PATHS if name in table.properties}
    return {table.location(), table.metadata_location.rpartition("/")[0], *told}


def _overlap(one: str, other: str) -> bool:
    paths = [f"{path_of(location).rstrip('/')}/" for location in (one, other)]
    return paths[0].startswith(paths[1]) or paths[1].startswith(paths[0])


def _refused(identifier: str, table: Table, problem: str) -> RefusedError:
    return RefusedError(
        f"table {identifier}: orphans stay, because other tables may share its location {table.location()}: {problem}; "
        "allowed: a location with no other table's files at, below or above it (you can remove the files of a dropped "
        "table by hand)"
    )


_VERSION_HINT: Final = "version-hint.text"
"""Name of the file by which a Hadoop catalog names the current version."""
_PART: Final = 10_000
"""Largest number of files that are examined together."""
_MARKS: Final = ("_", ".")


@dataclass
class Listing:
    """The files that were found below a table's location, or only in Firn's own folders."""

    own_only: bool
    """True when only Firn's own folders were listed."""
    unknown: list[Stored] = field(default_factory=list)
    """Files that the table's metadata does not reach."""
    _beside_main: list[tuple[Hashes, Hashes]] = field(default_factory=list)
    _hashes: list[Hashes] = field(default_factory=list)
    metadata_files: list[str] = field(default_factory=list)
    """Paths of metadata files that this table does not name, so they may be another table's."""

    @property
    def hashes(self) -> Hashes:
        """Hashes of the paths of all files."""
        return np.concatenate([np.empty(0, np.int64), *self._hashes])

    @property
    def beside_main(self) -> tuple[Hashes, Hashes]:
        """Hashes of the paths of the data files that the table refers to, but not main, and their sizes in bytes."""
        nothing = np.empty(0, np.int64)
        hashes, sizes = zip((nothing, nothing), *self._beside_main, strict=True)
        return np.concatenate(hashes), np.concatenate(sizes)

    def add(self, infos: Collection[FileInfo], known: Known) -> None:
        """Add the files ``infos`` of a folder."""
        stored = [Stored.of(info) for info in infos]
        reach = Reach.of(file.path for file in stored)
        self._hashes.append(reach.paths)
        aside = is_in(reach.paths, known.beside_main)
        self._beside_main.append((reach.paths[aside], np.array([file.bytes for file in stored], np.int64)[aside]))
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

    As in Iceberg's ``remove_orphan_files``, hidden names are skipped: names that begin with an underscore or a dot,
    except partition folders and Firn's folder for this table.
    """
    listing = Listing(own_only=not everything)
    location = table.location().rstrip("/")
    documents, data, lists = documents_folder(table), data_folder(table), plans_folder(table)
    roots = [location] if everything else [data] if data.startswith(f"{location}/") else []
    is_within = documents.startswith(f"{location}/")
    roots += [] if everything and is_within else [documents]
    hidden = _Hidden(table)
    for root in roots:
        files, folder = store(table, root)
        within = "" if root == location else f"{OWN_FOLDER}/{table.metadata.table_uuid}/"
        for infos in _walk(files, folder):
            listing.add([info for info in infos if hidden.shows(within + info.path[len(folder) :].lstrip("/"))], known)
    if not (everything and is_within):
        files, folder = store(table, lists)
        listing.add([info for info in _children(files, folder, recursive=False) if info.is_file], known)
    return listing


def _walk(files: FileSystem, folder: str, levels: int = 2) -> Iterator[list[FileInfo]]:
    """Yield the files in and below ``folder`` in parts, because a single listing of a table would be large.

    On an object store, a request for every folder would take long. Therefore each folder that is ``levels`` below
    ``folder`` is listed in one request, with everything below it.
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
    """Decides which paths of a table are hidden, or hold requests to erase keys, which always stay."""

    def __init__(self, table: Table) -> None:
        fields = {field.name for spec in table.specs().values() for field in spec.fields}
        self._partitions = tuple(f"{name}=" for name in fields if name.startswith(_MARKS))
        self._uuid = str(table.metadata.table_uuid)

    def shows(self, path: str) -> bool:
        """True when the file at ``path``, relative to the table's location, is not hidden."""
        *folders, name = path.split("/")
        for place, part in enumerate(folders):
            if part == OWN_FOLDER:
                return folders[place + 1 : place + 2] == [self._uuid] and not DOCUMENT.fullmatch(path)
            if part.startswith(_MARKS) and not part.startswith(self._partitions):
                return False
        return not name_of(name).startswith(_MARKS)
