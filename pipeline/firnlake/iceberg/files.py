"""Files of a table on its store: where Firn's own ones lie, which locations are the same file, and how files go.

No file system of Arrow deletes several files in one request, so requests are sent in parallel. A file that is already
gone counts as deleted, because another process deleted it first. What could not be deleted is reported.
"""

import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final

from pyarrow.fs import FileInfo, FileSelector, FileSystem, LocalFileSystem
from pydantic import BaseModel, ConfigDict
from pyiceberg.io import SCHEMA_TO_FILE_IO, FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from firnlake.errors import FirnError, RefusedError, UnavailableError
from firnlake.progress import Progress

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


def whole_number(table: str, properties: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    """The number in the property ``name`` of ``table``, from ``least`` on. Raises RefusedError for another text."""
    text = properties.get(name, str(default))
    if not re.fullmatch("[0-9]{1,19}", text) or not least <= int(text) < 1 << 63:
        raise RefusedError(
            f"table {table}: property {name} is {text[:100]!r}; allowed: a whole number, {least} or more"
        )
    return int(text)


def store(table: Table, location: str) -> tuple[FileSystem, str]:
    """The file system of ``location``, with the table's own credentials, and the path of ``location`` on it."""
    return located(_arrow(table.io), location)


def located(io: PyArrowFileIO, location: str) -> tuple[FileSystem, str]:
    """The file system of ``location``, and the path of ``location`` on it; a local path has one form, as in listings.

    PyIceberg and Spark take locations literally: a percent sign is part of a name, not an escape. So is text that looks
    like a query or a fragment, at which PyIceberg would cut the path.
    """
    plain = _CUT.split(location, maxsplit=1)[0]
    scheme, netloc, path = io.parse_location(plain, io.properties)
    path += location[len(plain) :]
    return io.fs_by_scheme(scheme, netloc), os.path.normpath(path) if scheme == "file" else path


@lru_cache(maxsize=64)
def _arrow(io: FileIO) -> PyArrowFileIO:
    """``io`` itself where it is Arrow's, or a user's own that builds on it (`py-io-impl`): a FileIO cannot list."""
    return io if isinstance(io, PyArrowFileIO) else PyArrowFileIO(io.properties)


@dataclass(frozen=True, slots=True)
class Stored:
    """A file on a store: its path, its size in bytes, and the time when it was written (epoch milliseconds)."""

    access: FileSystem
    path: str
    bytes: int
    written_ms: int | None
    """None if the store does not report the time."""

    @classmethod
    def of(cls, access: FileSystem, info: FileInfo) -> "Stored":
        return cls(access, info.path, info.size or 0, None if info.mtime_ns is None else info.mtime_ns // 1_000_000)

    def is_older(self, than_ms: int) -> bool:
        """True when the file was certainly written before ``than_ms`` (epoch milliseconds)."""
        return self.written_ms is not None and self.written_ms < than_ms


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
    return [Stored.of(files, info) for info in infos if info.is_file]


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


class Kind(StrEnum):
    """Kind of an item; the value is shown to people. Some are parts of a table's maintenance as well."""

    SNAPSHOTS = "snapshots"
    """Snapshots past their age; as a part, with the files that only they reach."""
    REF = "branch or tag"
    EXPIRED = "expired files"
    """Files that only expired snapshots referred to."""
    STAGE = "stage"
    """The documents and files of a job."""
    FIRN = "Firn's files"
    """Files in Firn's own folders that belong to no job: those of commits and landings that came to nothing."""
    ORPHANS = "orphans"
    """All other files that nothing refers to."""
    METADATA = "other metadata"
    """A metadata file of this table that its metadata log does not name."""
    MANIFESTS = "manifests"
    """Manifests that were merged into fewer ones; earlier snapshots still list the original manifests."""
    TOMBSTONES = "removed tombstones"
    CERTIFICATE = "certificate"
    """Certificate of an erasure: the finding says that it is issued, or why it is not."""
    REPORT = "report"


@dataclass(frozen=True)
class Finding:
    """A decision about one item, or about the files of one folder; ``goes`` is true if the item or files are deleted.

    ``bytes`` is the total size of the ``files``; ``age_ms`` is the age of the youngest file, None when unknown.
    """

    kind: Kind
    name: str
    goes: bool
    reason: str
    files: int = 1
    bytes: int = 0
    age_ms: int | None = None
    exit_code: int = 0
    """The exit code that the command returns if this item could not be inspected or deleted; otherwise 0."""

    def __str__(self) -> str:
        """The line of a log, in Airflow and in the demo."""
        size = f"files: {self.files}, bytes: {self.bytes}"
        return f"{self.kind} {self.name} ({size}), {'deleted' if self.goes else 'kept'}: {self.reason}"

    @classmethod
    def of_files(
        cls, kind: Kind, name: str, files: Iterable[Stored], now_ms: int | None, *, goes: bool, reason: str
    ) -> "Finding":
        """A finding about all of ``files``, whose ages count from ``now_ms``, unless that is None."""
        own = list(files)
        times = [file.written_ms for file in own if file.written_ms is not None]
        age_ms = now_ms - max(times) if now_ms is not None and times and len(times) == len(own) else None
        return cls(kind, name, goes, reason, len(own), sum(file.bytes for file in own), age_ms)

    @classmethod
    def of_error(cls, kind: Kind, name: str, error: FirnError, files: int = 0) -> "Finding":
        """A finding about an item that could not be inspected or deleted, because of ``error``."""
        return cls(kind, name, goes=False, reason=str(error), files=files, exit_code=error.exit_code)


WORKERS: Final = 16
"""Number of files deleted in parallel, because latency dominates on object stores."""
BATCH: Final = 1000
"""Number of files deleted before the results are checked. If none of these files could be deleted, the store counts as
down, and the remaining files are not tried."""


@dataclass(frozen=True)
class Garbage:
    """Files to delete, and why."""

    kind: Kind
    name: str
    """What they belong to, such as a job or a folder."""
    reason: str
    files: Sequence[Stored]
    now_ms: int | None = None
    """The time from which their ages count (epoch milliseconds); None if ages do not matter."""

    def finding(self) -> Finding:
        """The finding about these files, before anything is deleted."""
        return self._of(self.files)

    def delete(self) -> list[Finding]:
        """Delete the files; returns findings about the deleted files, and about those that could not be deleted.

        Errors are part of the result and are never raised.
        """
        gone: list[Stored] = []
        failed: list[str] = []
        title = f"deleting {self.kind}"
        with ThreadPoolExecutor(WORKERS) as workers, Progress(title, len(self.files)) as shown:
            for first in range(0, len(self.files), BATCH):
                batch, before = self.files[first : first + BATCH], len(failed)
                for file, problem in zip(batch, workers.map(delete_file, batch), strict=True):
                    if problem is None:
                        gone.append(file)
                    else:
                        failed.append(f"{file.path}: {problem}")
                shown.advance(len(batch))
                if len(failed) - before == len(batch) > 1:
                    break
        found = [self._of(gone)] if gone else []
        if failed:
            error = UnavailableError(f"could not be deleted, first {failed[0]}")
            found.append(Finding.of_error(self.kind, self.name, error, files=len(self.files) - len(gone)))
        return found

    def _of(self, files: Iterable[Stored]) -> Finding:
        return Finding.of_files(self.kind, self.name, files, self.now_ms, goes=True, reason=self.reason)


def delete_file(stored: Stored) -> str | None:
    """Delete a file and its checksum file; return the reason of a failure, None when the file is gone."""
    try:
        stored.access.delete_file(stored.path)
    except FileNotFoundError:
        pass
    except OSError as error:
        return " ".join(str(error).split())
    if isinstance(stored.access, LocalFileSystem):
        # Hadoop's local file system keeps a checksum file next to each file.
        path = Path(stored.path)
        with suppress(OSError):
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return None
