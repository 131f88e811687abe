"""Folders of Firn's files on whatever store the warehouse is on."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyarrow.fs import FileInfo, FileSelector, FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from pipeline.errors import RefusedError

DATA_FOLDER = "_firn"
"""Below a table's data, with a folder per job. Iceberg's orphan removal leaves hidden names alone."""
DATA_PATH = "write.data.path"
"""Iceberg's property for the folder of a table's data files."""
JOB_ID: Final = "[0-9a-f]{16}"
"""What a job id looks like (a regular expression)."""
_JOB: Final = re.compile(f"/{DATA_FOLDER}/({JOB_ID})/")


def stages_folder(target: Table) -> str:
    """Where the metadata of all stages of ``target`` lies, one folder per job id."""
    return f"{target.location().rstrip('/')}/stages"


def store(table: Table, location: str) -> tuple[FileSystem, str]:
    """The file system that holds ``location``, under the table's own credentials, and the path there.

    Locations are literal, to PyIceberg and to Spark: a percent sign in one is part of a name and no escape.
    """
    scheme, netloc, path = PyArrowFileIO.parse_location(location, table.io.properties)
    return PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, netloc), path


@dataclass(frozen=True)
class Stored:
    """A file on the store: its ``path`` there, its size, and when it was written (epoch milliseconds)."""

    path: str
    bytes: int
    written_ms: int | None
    """None where the store does not say."""

    @classmethod
    def of(cls, info: FileInfo) -> "Stored":
        return cls(info.path, info.size or 0, None if info.mtime_ns is None else info.mtime_ns // 1_000_000)

    @classmethod
    def at(cls, path: Path) -> "Stored | None":
        """The file of this machine at ``path``; None when there is none."""
        try:
            stat = path.stat()
        except FileNotFoundError:
            return None
        return cls(str(path), stat.st_size, stat.st_mtime_ns // 1_000_000)

    def is_older(self, than_ms: int) -> bool:
        """Whether it was certainly written before ``than_ms`` (epoch milliseconds)."""
        return self.written_ms is not None and self.written_ms < than_ms

    def age_ms(self, now_ms: int) -> int:
        """How old it is; as if it were new where the store does not say."""
        return 0 if self.written_ms is None else now_ms - self.written_ms


def newest_ms(files: Iterable[Stored]) -> int | None:
    """When the newest of ``files`` was written; None when there is none, or the store does not say of one."""
    found = [file.written_ms for file in files]
    return max((one for one in found if one is not None), default=None) if None not in found else None


def data_folder(table: Table) -> str:
    """Where the data that Firn writes for ``table`` lies, one folder per job id.

    Iceberg's ``remove_orphan_files`` leaves alone what lies below a name that begins with an underscore. To the table
    a stage's data is an orphan until it is published.
    """
    data = table.properties.get(DATA_PATH, f"{table.location().rstrip('/')}/data").rstrip("/")
    return f"{data}/{DATA_FOLDER}"


def job_folder(table: Table, job_id: str) -> str:
    """Where the data of the job ``job_id`` lies that is written for ``table``."""
    return f"{data_folder(table)}/{job_id}"


def job_of(path: str) -> str | None:
    """Id of the job that wrote the data file at ``path``; None when it does not lie in a folder of Firn's."""
    found = _JOB.search(path)
    return found.group(1) if found else None


def files_in(files: FileSystem, folder: str, recursive: bool = True) -> list[Stored]:
    """The files below ``folder``; none when there is no such folder."""
    found = files.get_file_info(FileSelector(folder, allow_not_found=True, recursive=recursive))
    return [Stored.of(info) for info in found if info.is_file]


def delete_folder(table: Table, location: str) -> None:
    """Delete the folder ``location`` of a stage of ``table``, of which nothing is needed any more."""
    files, folder = store(table, location)
    if not folder.strip("/"):
        raise RefusedError(
            f"stage location {location!r} is not a folder of its own; allowed: a folder below the target's"
        )
    try:
        files.delete_dir(folder)
    except OSError:
        # Not every object store takes pyarrow's deletion of many objects at once. Or another process is clearing the
        # same folder, or writes to it: what is left then is swept as forgotten.
        with suppress(OSError):
            for file in files_in(files, folder):
                with suppress(FileNotFoundError):
                    files.delete_file(file.path)
