"""Delete many files, several at a time, and tell which of them stay.

No file system of Arrow deletes in bulk, so requests are sent in parallel. Files that are gone already count as deleted:
another process was faster.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Final

from pyarrow.fs import FileSystem, LocalFileSystem

from pipeline.care.garbage import Garbage, Kind
from pipeline.engine.progress import Progress
from pipeline.errors import UnavailableError
from pipeline.lake.folders import Stored, newest_ms

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

    def findings(self, kind: Kind, name: str, reason: str, now_ms: int) -> Iterator[Garbage]:
        """One finding about the files that go, and one for each that could not."""
        if self.files:
            age_ms = None if self.newest_ms is None else now_ms - self.newest_ms
            yield Garbage(kind, name, goes=True, reason=reason, files=self.files, bytes=self.bytes, age_ms=age_ms)
        for path, failure in self.failures.items():
            yield Garbage.of_error(kind, path, UnavailableError(f"could not be deleted: {failure}"), files=1)
        if self.more:
            error = UnavailableError("could not be deleted either; try again later")
            yield Garbage.of_error(kind, f"{name}: {self.more} more files", error, files=self.more)


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
