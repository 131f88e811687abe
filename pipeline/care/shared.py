"""Refuse to delete by age when another table lies within a table's location, shares it, or holds it.

Told by metadata files of another table UUID in the table's own location and in ``metadata`` folders above it, and by
the locations of the other tables of the namespace, where the catalog lists them.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from pyarrow.fs import FileSystem
from pyiceberg.table import Table

from pipeline.errors import FirnError, RefusedError
from pipeline.lake import Lake
from pipeline.lake.folders import files_in, store
from pipeline.lake.paths import path_of

METADATA_FILE: Final = re.compile(r".*\.metadata\.json(\.gz)?")
TABLES_LOOKED_AT: Final = 100
"""Maximum number of tables in the namespace whose locations are compared: each has to be loaded."""
_UUID: Final = re.compile(rb'"table-uuid"\s*:\s*"([0-9a-fA-F-]{36})"')
_HEAD: Final = 1 << 16
"""Bytes of a metadata file that are read first: its UUID is near the start."""


def check_alone(lake: Lake, table: Table, metadata_files: Iterable[str]) -> None:
    """Raise RefusedError when another table's files may lie below the location of ``table``.

    ``metadata_files`` are paths on the store of all metadata files below the location but those of ``table``.
    """
    identifier = ".".join(table.name())
    files, folder = store(table, table.location().rstrip("/"))
    own = str(table.metadata.table_uuid).lower()
    for where, paths in (("within", metadata_files), ("above", _above(files, folder))):
        for path in paths:
            uuid = _uuid_of(files, path)
            if uuid not in (None, own):
                raise _refused(identifier, table, f"{where} it lies {path} of another table (UUID {uuid})")
    for other, location in _neighbours(lake, identifier):
        one, two = (f"{path_of(location).rstrip('/')}/", f"{path_of(table.location()).rstrip('/')}/")
        if one.startswith(two) or two.startswith(one):
            raise _refused(identifier, table, f"table {other} is at {location}")


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


def _neighbours(lake: Lake, identifier: str) -> Iterator[tuple[str, str]]:
    """Yield the other tables of the namespace with their locations, as far as the catalog tells them."""
    try:
        others = [one for one in lake.tables(identifier.rpartition(".")[0]) if one != identifier]
    except FirnError:
        return
    for other in others if len(others) < TABLES_LOOKED_AT else ():
        with suppress(FirnError):
            yield other, lake.table(other).location()


def _refused(identifier: str, table: Table, problem: str) -> RefusedError:
    return RefusedError(
        f"table {identifier}: orphans stay: its location {table.location()} is not its own: {problem}; allowed: a "
        "location for each table, without another's files at, below or above it (those of a dropped table can be "
        "removed by hand); or firn.care.orphans = false"
    )
