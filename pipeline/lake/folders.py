"""Folders of Firn's files on the warehouse's store."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from pyarrow.fs import FileInfo, FileSelector, FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

DATA_FOLDER = "_firn"
"""Folder below a table's data, with a folder per job. Iceberg's orphan removal skips hidden names."""
DATA_PATH = "write.data.path"
"""Iceberg's property for the folder of a table's data files."""
JOB_ID: Final = "[0-9a-f]{16}"
"""Regular expression of a job id."""
_FOLDERS: Final = 4096
"""Number of folders whose file systems are kept."""
_CUT: Final = re.compile("[?#]")
_JOB: Final = re.compile(f"/{DATA_FOLDER}/({JOB_ID})/")


def store(table: Table, location: str) -> tuple[FileSystem, str]:
    """The file system of ``location``, with the table's own credentials, and the path on it.

    PyIceberg and Spark take locations literally: a percent sign is part of a name, not an escape.
    """
    scheme, netloc, path = PyArrowFileIO.parse_location(location, table.io.properties)
    return PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, netloc), path


class Stores:
    """The file systems of many locations of ``table``, each made once."""

    def __init__(self, table: Table) -> None:
        self._io = PyArrowFileIO(table.io.properties)
        self._folder = lru_cache(maxsize=_FOLDERS)(self._located)

    def of(self, location: str) -> tuple[FileSystem, str]:
        """The file system of ``location``, and the path on it."""
        folder, _, name = location.rpartition("/")
        files, path = self._folder(folder)
        return files, f"{path}/{name}"

    def _located(self, folder: str) -> tuple[FileSystem, str]:
        scheme, netloc, path = self._io.parse_location(folder, self._io.properties)
        cut = _CUT.search(folder)
        # What looks like a query or a fragment is part of a name.
        return self._io.fs_by_scheme(scheme, netloc), path + folder[cut.start() :] if cut else path


@dataclass(frozen=True, slots=True)
class Stored:
    """A file on the store: its ``path`` there, its size, and its time of writing (epoch milliseconds)."""

    path: str
    bytes: int
    written_ms: int | None
    """None where the store does not say."""

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

    def age_ms(self, now_ms: int) -> int:
        """Age in milliseconds; 0 where the store does not say."""
        return 0 if self.written_ms is None else now_ms - self.written_ms


def newest_ms(files: Iterable[Stored]) -> int | None:
    """Time of the newest of ``files``; None when there are none, or the store does not say for one."""
    times = [file.written_ms for file in files]
    return max((one for one in times if one is not None), default=None) if None not in times else None


def data_folder(table: Table) -> str:
    """Folder of the data files that Firn writes for ``table``, with one folder per job id.

    Iceberg's ``remove_orphan_files`` skips everything below a name that begins with an underscore. A stage's data files
    are orphans of the table until they are published.
    """
    data = table.properties.get(DATA_PATH, f"{table.location().rstrip('/')}/data").rstrip("/")
    return f"{data}/{DATA_FOLDER}"


def job_folder(table: Table, job_id: str) -> str:
    """Folder of the data files that the job ``job_id`` writes for ``table``."""
    return f"{data_folder(table)}/{job_id}"


def job_of(path: str) -> str | None:
    """Id of the job that wrote the data file at ``path``; None outside Firn's folders."""
    match = _JOB.search(path)
    return match.group(1) if match else None


def files_in(files: FileSystem, folder: str, recursive: bool = True) -> list[Stored]:
    """List the files below ``folder``; empty when there is no such folder."""
    infos = files.get_file_info(FileSelector(folder, allow_not_found=True, recursive=recursive))
    return [Stored.of(info) for info in infos if info.is_file]
