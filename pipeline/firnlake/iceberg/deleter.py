"""Findings about items that may be deleted, and a function that deletes many files and reports those that remain.

No file system of Arrow deletes several files in one request, so requests are sent in parallel. A file that is already
gone counts as deleted, because another process deleted it first.
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
    TOMBSTONES = "removed tombstones"
    DATA = "data files"
    PLAN = "plan"
    REPORT = "report"
    SNAPSHOTS = "snapshots"
    REF = "branch or tag"
    EXPIRED = "expired files"
    """Files that only expired snapshots referred to."""
    ORPHANS = "orphans"
    METADATA = "old metadata"
    """Former metadata files that the table's metadata log no longer names."""
    CERTIFICATE = "certificate"
    """Certificate of an erasure: the finding says that it is issued, or why it is not."""
    MANIFESTS = "manifests"
    """Manifests that were merged into fewer ones; earlier snapshots still list the original manifests."""


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
        cls, kind: Kind, name: str, files: Iterable[Stored], now_ms: int, *, goes: bool, reason: str
    ) -> "Finding":
        """A finding about all of ``files``."""
        own = list(files)
        newest = newest_ms(own)
        age_ms = None if newest is None else now_ms - newest
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
NAMED: Final = 100
"""Maximum number of files that are named one by one when they can't be deleted."""

_DOWN: Final = "not tried, because the store failed for all files of an earlier batch"

Deletable = tuple[FileSystem, Stored]


@dataclass
class Deleted:
    """Number and total size of the deleted files, and the files that could not be deleted."""

    files: int = 0
    bytes: int = 0
    newest_ms: int | None = None
    """Time when the newest deleted file was written, in epoch milliseconds; None if a file's time is unknown."""
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons by path, for the first NAMED files that could not be deleted."""
    more: int = 0
    """Number of further files that could not be deleted."""

    def add(self, file: Stored) -> None:
        """Count ``file`` as deleted."""
        self.newest_ms = newest_ms([file]) if not self.files else _newer(self.newest_ms, file.written_ms)
        self.files += 1
        self.bytes += file.bytes

    def fail(self, file: Stored, reason: str) -> None:
        """Count ``file`` as not deleted, because of ``reason``."""
        if len(self.failures) < NAMED:
            self.failures[file.path] = reason
        else:
            self.more += 1

    def findings(self, kind: Kind, name: str, reason: str, now_ms: int) -> Iterator[Finding]:
        """Yield one finding about the deleted files, and one for each file that could not be deleted."""
        if self.files:
            age_ms = None if self.newest_ms is None else now_ms - self.newest_ms
            yield Finding(kind, name, goes=True, reason=reason, files=self.files, bytes=self.bytes, age_ms=age_ms)
        for path, failure in self.failures.items():
            yield Finding.of_error(kind, path, UnavailableError(f"could not be deleted: {failure}"), files=1)
        if self.more:
            error = UnavailableError("could not be deleted either; try again later")
            yield Finding.of_error(kind, f"{name}: further files", error, files=self.more)


def delete(files: Iterable[Deletable], *, remove: bool, title: str, total: int) -> Deleted:
    """Delete ``files``, each given with its file system; without ``remove``, only count the files as deleted.

    The progress display shows ``title`` and ``total``, the number of files. Errors are part of the result and are
    never raised.
    """
    deleted = Deleted()
    if not remove:
        for _, file in files:
            deleted.add(file)
        return deleted
    waiting, is_down = iter(files), False
    with ThreadPoolExecutor(WORKERS) as workers, Progress(title, total, weight=total, parallel=BATCH) as progress:
        while batch := list(islice(waiting, BATCH)):
            # Each worker gets many files at once, as passing a file to a worker costs as much as deleting a local file.
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
            progress.advance(len(batch), len(batch))
    return deleted


def _delete_all(files: Iterable[Deletable]) -> list[str | None]:
    return [delete_file(*file) for file in files]


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


def _newer(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)
