"""Firn's own files of a table: their folders and documents; and the rule by which two locations are the same file."""

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from pyarrow.fs import FileInfo, FileSelector, FileSystem
from pydantic import BaseModel, ConfigDict
from pyiceberg.io import SCHEMA_TO_FILE_IO, FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from firnlake.errors import RefusedError

_WITH_HOST: Final = frozenset({"hdfs", "viewfs", "file"})
"""Schemes whose authority is a host name. A file may have several host names, but has only one path."""
_SLASHES: Final = re.compile("/{2,}")


def path_of(location: str) -> str:
    """The path of ``location`` on its store, without a leading slash: ``bucket/a`` for ``s3a://bucket/a``.

    Accepts locations in a table's metadata and paths of a file system.
    """
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        rest = location
    elif scheme in _WITH_HOST and rest.startswith("//"):
        rest = rest[2:].partition("/")[2]
    return _SLASHES.sub("/", rest.lstrip("/"))


def name_of(location: str) -> str:
    """The file name in ``location``."""
    return location.rpartition("/")[2]


OWN_FOLDER: Final = "_firn"
"""Name of Firn's folder in the data folder and in the metadata folder of a table. It has a folder for each table that
uses it, named by the table's UUID. Iceberg's orphan removal skips it, because its name begins with an underscore;
otherwise it would delete the data files of a stage, which are orphans of the table until they are published."""
DATA_PATH: Final = "write.data.path"
METADATA_PATH: Final = "write.metadata.path"
"""Iceberg's properties for the folders of a table's data and metadata files."""
JOB_ID: Final = "[0-9a-f]{16}"
"""Regular expression of a job id."""
JOBS_FOLDER: Final = "jobs"
PLANS_FOLDER: Final = "plans"
ERASURES_FOLDER: Final = "erasures"
EXPIRED_FOLDER: Final = "expired"
REPORTS_FOLDER: Final = "reports"
"""Names of the folders in ``metadata_folder`` with the documents of jobs, the plans documents of commits, requests to
erase keys, what expiries have removed, and what the data-quality pages tell."""
_LOCATION: Final = re.compile(f"/.|({'|'.join(SCHEMA_TO_FILE_IO)}):/+.")
_CUT: Final = re.compile("[?#]")
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_JOB: Final = re.compile(f"/{OWN_FOLDER}/{_UUID}/(?:{JOBS_FOLDER}/)?({JOB_ID})/")


def store(table: Table, location: str) -> tuple[FileSystem, str]:
    """The file system of ``location``, with the table's own credentials, and the path of ``location`` on it."""
    return located(_arrow(table.io), location)


def located(io: PyArrowFileIO, location: str) -> tuple[FileSystem, str]:
    """The file system of ``location``, and the path of ``location`` on it.

    PyIceberg and Spark take locations literally: a percent sign is part of a name, not an escape. So is text that looks
    like a query or a fragment, at which PyIceberg would cut the path.
    """
    plain = _CUT.split(location, maxsplit=1)[0]
    scheme, netloc, path = io.parse_location(plain, io.properties)
    return io.fs_by_scheme(scheme, netloc), path + location[len(plain) :]


@lru_cache(maxsize=64)
def _arrow(io: FileIO) -> PyArrowFileIO:
    """``io`` itself where it is Arrow's, or a user's own that builds on it (`py-io-impl`): a FileIO cannot list."""
    return io if isinstance(io, PyArrowFileIO) else PyArrowFileIO(io.properties)


@dataclass(frozen=True, slots=True)
class Stored:
    """A file on a store: its path, its size in bytes, and the time when it was written (epoch milliseconds)."""

    path: str
    bytes: int
    written_ms: int | None
    """None if the store does not report the time."""

    @classmethod
    def of(cls, info: FileInfo) -> "Stored":
        return cls(info.path, info.size or 0, None if info.mtime_ns is None else info.mtime_ns // 1_000_000)

    @classmethod
    def at(cls, path: Path) -> "Stored | None":
        """The local file at ``path``; None when there is none."""
        try:
            stat = path.stat()
        except FileNotFoundError:
            return None
        return cls(str(path), stat.st_size, stat.st_mtime_ns // 1_000_000)

    def is_older(self, than_ms: int) -> bool:
        """True when the file was certainly written before ``than_ms`` (epoch milliseconds)."""
        return self.written_ms is not None and self.written_ms < than_ms


def newest_ms(files: Iterable[Stored]) -> int | None:
    """Time when the newest of ``files`` was written; None if there are no files, or if any file's time is unknown."""
    times = [file.written_ms for file in files]
    return max((one for one in times if one is not None), default=None) if None not in times else None


def data_folder(table: Table) -> str:
    """Folder of the data files that Firn writes for ``table``: one folder per job id, and one per landing."""
    return _own_folder(table, DATA_PATH, "data")


def metadata_folder(table: Table) -> str:
    """Folder of the metadata files that Firn writes for ``table``, from manifests to the documents of jobs."""
    return _own_folder(table, METADATA_PATH, "metadata")


def _own_folder(table: Table, property_name: str, default: str) -> str:
    # Several tables may share a data folder, but no two tables have the same UUID.
    folder = table.properties.get(property_name, f"{table.location().rstrip('/')}/{default}").rstrip("/")
    if property_name in table.properties and not _LOCATION.match(folder):
        schemes = ", ".join(f"{one}://" for one in SCHEMA_TO_FILE_IO)
        raise RefusedError(
            f"table {'.'.join(table.name())}: property {property_name} is {table.properties[property_name]!r}; "
            f"allowed: an absolute path, or a location that begins with one of {schemes}"
        )
    return f"{folder}/{OWN_FOLDER}/{table.metadata.table_uuid}"


MARKS: Final = ".marks.parquet"
"""End of the names of files with the marks of records, which lie in the folder of a job while it is compacted."""


def job_folder(table: Table, job_id: str) -> str:
    """Folder of the data files that the job ``job_id`` writes for ``table``."""
    return f"{data_folder(table)}/{job_id}"


SHOWS_RECORDS: Final = "allowed: one record per offset"
"""This text is in each reason that describes two different records at one offset; such a reason may contain a key."""
UNREAD: Final = "unread-"
"""Beginning of the name of a data file that may hold records of keys to erase (C30)."""


def job_of(path: str) -> str | None:
    """Id of the job that wrote the data file at ``path``; None for a file outside Firn's folders."""
    match = _JOB.search(path)
    return match.group(1) if match else None


def files_in(files: FileSystem, folder: str, recursive: bool = True) -> list[Stored]:
    """List the files below ``folder``; empty when there is no such folder."""
    infos = files.get_file_info(FileSelector(folder, allow_not_found=True, recursive=recursive))
    return [Stored.of(info) for info in infos if info.is_file]


def write_whole(table: Table, location: str, content: bytes) -> None:
    """Write ``content`` to ``location``, with the store access of ``table``, so that no reader sees a part of it.

    An object store shows a whole object or none. A local file is visible while it is being written, even if it replaces
    a whole file with the same content; so it gets a further suffix until it is whole.
    """
    files, path = store(table, location)
    scheme, _, _ = PyArrowFileIO.parse_location(location, table.io.properties)
    suffix = f".{uuid.uuid4().hex[:8]}" if scheme == "file" else ""
    with table.io.new_output(f"{location}{suffix}").create(overwrite=True) as stream:
        stream.write(content)
    if suffix:
        files.move(f"{path}{suffix}", path)


class FrozenModel(BaseModel):
    """Base class of the documents that Firn writes. Documents are immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
