"""What maintenance finds, and the deletion of many files, which reports those that remain.

No file system of Arrow deletes several files in one request, so requests are sent in parallel. A file that is already
gone counts as deleted, because another process deleted it first.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from pyarrow.fs import FileSystem, LocalFileSystem

from firnlake.errors import FirnError, UnavailableError
from firnlake.iceberg.files import Stored, newest_ms
from firnlake.progress import Progress


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

    @classmethod
    def of_files(
        cls, kind: Kind, name: str, files: Iterable[Stored], now_ms: int | None, *, goes: bool, reason: str
    ) -> "Finding":
        """A finding about all of ``files``, whose ages count from ``now_ms``, unless that is None."""
        own = list(files)
        newest = newest_ms(own)
        age_ms = None if newest is None or now_ms is None else now_ms - newest
        return cls(kind, name, goes, reason, len(own), sum(file.bytes for file in own), age_ms)

    @classmethod
    def of_error(cls, kind: Kind, name: str, error: FirnError, files: int = 0) -> "Finding":
        """A finding about an item that could not be inspected or deleted, because of ``error``."""
        return cls(kind, name, goes=False, reason=str(error), files=files, exit_code=error.exit_code)

    def __str__(self) -> str:
        size = f"files: {self.files}, bytes: {self.bytes}"
        return f"{self.kind} {self.name} ({size}), {'deleted' if self.goes else 'kept'}: {self.reason}"


WORKERS: Final = 16
"""Number of files deleted in parallel, because latency dominates on object stores."""
BATCH: Final = 1000
"""Number of files deleted before the results are checked. If none of these files could be deleted, the store counts as
down, and the remaining files are not tried."""

Deletable = tuple[FileSystem, Stored]
"""A file and its store."""


@dataclass(frozen=True)
class Garbage:
    """Files to delete, and why."""

    kind: Kind
    name: str
    """What they belong to, such as a job or a folder."""
    reason: str
    files: Sequence[Deletable]
    now_ms: int | None = None
    """The time from which their ages count (epoch milliseconds); None if ages do not matter."""

    def finding(self) -> Finding:
        """The finding about these files, before anything is deleted."""
        return self._of(file for _, file in self.files)

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
                for (_, file), problem in zip(batch, workers.map(lambda one: delete_file(*one), batch), strict=True):
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


def delete_file(access: FileSystem, stored: Stored) -> str | None:
    """Delete a file and its checksum file; return the reason of a failure, None when the file is gone."""
    try:
        access.delete_file(stored.path)
    except FileNotFoundError:
        pass
    except OSError as error:
        return " ".join(str(error).split())
    if isinstance(access, LocalFileSystem):
        # Hadoop's local file system keeps a checksum file next to each file.
        path = Path(stored.path)
        with suppress(OSError):
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return None
