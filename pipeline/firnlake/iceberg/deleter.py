"""Findings about what may be deleted, and the deletion of many files at a time, which tells which of them stay.

No file system of Arrow deletes in bulk, so requests are sent in parallel. Files that are gone already count as deleted:
another process was faster.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import Final

from pyarrow.fs import FileSystem, LocalFileSystem

from firnlake.errors import FirnError, UnavailableError
from firnlake.iceberg.files import Stored, newest_ms
from firnlake.progress import Progress


class Kind(StrEnum):
    """Kind of an item; the value is shown to people."""

    STAGE = "stage"
    PLAN_LIST = "list of plans"
    """List of the plans of a commit that is not in the table's history."""
    QUARANTINE = "quarantine"
    TOMBSTONES = "removed tombstones"
    DATA = "data files"
    PLAN = "plan"
    REPORT = "report"
    SNAPSHOTS = "snapshots"
    REF = "branch or tag"
    EXPIRED = "expired files"
    """Files that only expired snapshots reached."""
    ORPHANS = "orphans"
    METADATA = "old metadata"
    """Former metadata files that the table's metadata log no longer names."""
    CERTIFICATE = "certificate"
    """Of an erasure: it is issued, or tells why it is not."""
    MANIFESTS = "manifests"
    """Manifests written anew as fewer; snapshots before that still hold them."""


@dataclass(frozen=True)
class Finding:
    """One item, or the files of one folder.

    ``bytes`` are the total of its ``files``; the age is that of the youngest, in milliseconds, None when unknown.
    """

    kind: Kind
    name: str
    goes: bool
    reason: str
    files: int = 1
    bytes: int = 0
    age_ms: int | None = None
    exit_code: int = 0
    """Exit code of the command for an item that should go and could not, or that could not be looked at."""

    @classmethod
    def of_files(
        cls, kind: Kind, name: str, files: Iterable[Stored], now_ms: int, *, goes: bool, reason: str
    ) -> "Finding":
        """A finding about all of ``files``."""
        own = list(files)
        newest = newest_ms(own)
        age_ms = None if newest is None else now_ms - newest
        return cls(kind, name, goes, reason, len(own), sum(file.bytes for file in own), age_ms)

    @classmethod
    def of_error(cls, kind: Kind, name: str, error: FirnError, files: int = 0) -> "Finding":
        """A finding about what could not be looked at or removed."""
        return cls(kind, name, goes=False, reason=str(error), files=files, exit_code=error.exit_code)

    def __str__(self) -> str:
        size = f"{self.files} files, {self.bytes} bytes"
        return f"{self.kind} {self.name} ({size}) {'goes' if self.goes else 'stays'}: {self.reason}"


WORKERS: Final = 16
"""Number of files deleted at a time: on object stores latency dominates."""
BATCH: Final = 1000
"""Number of files between two looks at the result. When a whole batch fails the store is down, and the rest stays."""
NAMED: Final = 100
"""Maximum number of files that are named one by one when they can't be deleted."""

_DOWN: Final = "not tried, as the store failed for all files before it"

Deletable = tuple[FileSystem, Stored]


@dataclass
class Deleted:
    """Number and bytes of the files that are gone, and what stays."""

    files: int = 0
    bytes: int = 0
    newest_ms: int | None = None
    """Time of the newest deleted file, epoch milliseconds; None where the store does not say for one."""
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons by path, of the first NAMED files."""
    more: int = 0
    """Number of other files that stay."""

    def add(self, file: Stored) -> None:
        """Count ``file`` as gone."""
        self.newest_ms = newest_ms([file]) if not self.files else _newer(self.newest_ms, file.written_ms)
        self.files += 1
        self.bytes += file.bytes

    def fail(self, file: Stored, reason: str) -> None:
        """Count ``file`` as staying."""
        if len(self.failures) < NAMED:
            self.failures[file.path] = reason
        else:
            self.more += 1

    def findings(self, kind: Kind, name: str, reason: str, now_ms: int) -> Iterator[Finding]:
        """One finding about the files that go, and one for each that could not."""
        if self.files:
            age_ms = None if self.newest_ms is None else now_ms - self.newest_ms
            yield Finding(kind, name, goes=True, reason=reason, files=self.files, bytes=self.bytes, age_ms=age_ms)
        for path, failure in self.failures.items():
            yield Finding.of_error(kind, path, UnavailableError(f"could not be deleted: {failure}"), files=1)
        if self.more:
            error = UnavailableError("could not be deleted either; try again later")
            yield Finding.of_error(kind, f"{name}: {self.more} more files", error, files=self.more)


def delete(files: Iterable[Deletable], *, remove: bool, title: str, total: int) -> Deleted:
    """Delete ``files``, each with its file system; without ``remove`` they are only counted, as if they were gone.

    ``title`` and ``total``, a number of files, are for the progress that is shown. Never raises for a file.
    """
    deleted = Deleted()
    if not remove:
        for _, file in files:
            deleted.add(file)
        return deleted
    waiting, is_down = iter(files), False
    with ThreadPoolExecutor(WORKERS) as workers, Progress(title, total) as progress:
        while batch := list(islice(waiting, BATCH)):
            # A share for each worker: handing over file by file costs as much as a deletion on a local disk.
            shares = [batch[first::WORKERS] for first in range(WORKERS)]
            done = ([_DOWN] * len(share) for share in shares) if is_down else workers.map(_delete_all, shares)
            failed = 0
            for (_, file), reason in zip(chain(*shares), chain.from_iterable(done), strict=True):
                if reason is None:
                    deleted.add(file)
                else:
                    failed += 1
                    deleted.fail(file, reason)
            is_down = failed == len(batch) > 1
            progress.advance(len(batch))
    return deleted


def _delete_all(files: Iterable[Deletable]) -> list[str | None]:
    return [delete_file(*file) for file in files]


def delete_file(access: FileSystem, stored: Stored) -> str | None:
    """Delete a file and its checksum; the reason why that failed, None when the file is gone."""
    try:
        access.delete_file(stored.path)
    except FileNotFoundError:
        pass
    except OSError as error:
        return " ".join(str(error).split())
    if isinstance(access, LocalFileSystem):
        # Hadoop's local file system keeps a checksum beside each file.
        path = Path(stored.path)
        with suppress(OSError):
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return None


def _newer(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)
