"""Refuse to delete by age where another table's files may lie.

Told by metadata files of another table UUID in the table's own location and in ``metadata`` folders above it, and by
the locations of all other tables of the catalog: at, below or above those that care deletes from.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from typing import Final, TypeVar

from pyarrow.fs import FileSystem
from pyiceberg.table import Table

from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.folders import DATA_PATH, files_in, store
from pipeline.lake.job_documents import METADATA_PATH
from pipeline.lake.paths import path_of

T = TypeVar("T")

METADATA_FILE: Final = re.compile(r".*\.metadata\.json(\.gz)?")
ORPHANS: Final = "firn.care.orphans"
"""Property of the operator's word that files may go which the table never named."""
_PATHS: Final = (DATA_PATH, METADATA_PATH, "write.object-storage.path", "write.folder-storage.path")
"""Iceberg's properties for the folders of a table's files; the last two are older names of the first."""
_UUID: Final = re.compile(rb'"table-uuid"\s*:\s*"([0-9a-fA-F-]{36})"')
_HEAD: Final = 1 << 16
"""Bytes of a metadata file that are read first: its UUID is near the start."""


class UnknownTableError(RefusedError):
    """Another table can't be loaded, so nobody knows where its files lie."""


def check_alone(lake: Lake, table: Table, metadata_files: Iterable[str]) -> None:
    """Raise RefusedError when another table's files may lie where care deletes those of ``table``.

    ``metadata_files`` are paths on the store of all metadata files below the location but those of ``table``. Loads
    every table of the catalog. Raises UnknownTableError when no location overlaps, and not all are known.
    """
    identifier = ".".join(table.name())
    unknown = _check_catalog(lake, identifier, table)
    files, folder = store(table, table.location().rstrip("/"))
    own = str(table.metadata.table_uuid).lower()
    for where, paths in (("within", metadata_files), ("above", _above(files, folder))):
        for path in paths:
            uuid = _uuid_of(files, path)
            if uuid not in (None, own):
                raise _refused(identifier, table, f"{where} it lies {path} of another table (UUID {uuid})")
    if unknown:
        raise unknown


def _check_catalog(lake: Lake, identifier: str, table: Table) -> UnknownTableError | None:
    """Compare ``table`` with the other tables of the catalog; the error of one that can't be loaded, if any."""
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
    """Yield the metadata files in ``metadata`` of every folder above ``folder``, where that can be listed."""
    for parent in PurePosixPath(folder).parents:
        if str(parent) not in (".", "/"):
            with suppress(OSError):
                for file in files_in(files, f"{parent}/metadata", recursive=False):
                    if METADATA_FILE.fullmatch(file.path):
                        yield file.path


def _uuid_of(files: FileSystem, path: str) -> str | None:
    """The table UUID in the metadata file at ``path``; None when it can't be read: a torn file is nobody's."""
    try:
        # Arrow unpacks by the name's suffix, and Iceberg's `.gz.metadata.json` hides it.
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
    """The answer to ``question``; UnknownTableError that tells the ``problem`` where there is none."""
    try:
        return question()
    except Exception as error:  # metadata of others may be damaged in any way
        reason = " ".join(str(error).split())
        raise UnknownTableError(
            f"table {identifier}: orphans stay, as another table's files may be among them: {problem}: {reason}; "
            f"allowed: all tables of the catalog can be loaded; or {ORPHANS} = false"
        ) from error


def _locations(table: Table) -> set[str]:
    """The folders in which files of ``table`` lie."""
    told = {table.properties[name] for name in _PATHS if name in table.properties}
    return {table.location(), table.metadata_location.rpartition("/")[0], *told}


def _overlap(one: str, other: str) -> bool:
    paths = [f"{path_of(location).rstrip('/')}/" for location in (one, other)]
    return paths[0].startswith(paths[1]) or paths[1].startswith(paths[0])


def _refused(identifier: str, table: Table, problem: str) -> RefusedError:
    return RefusedError(
        f"table {identifier}: orphans stay: its location {table.location()} is not its own: {problem}; allowed: a "
        "location for each table, without another's files at, below or above it (those of a dropped table can be "
        f"removed by hand); or {ORPHANS} = false"
    )
