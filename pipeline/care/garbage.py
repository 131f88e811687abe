"""A finding of the garbage collector: an item, whether it goes, and why."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pipeline.errors import FirnError
from pipeline.lake.folders import Stored, newest_ms


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
    """To erase keys: old tombstones became one."""
    CERTIFICATE = "certificate"
    """Of an erasure: it is issued, or tells why it is not."""
    MANIFESTS = "manifests"
    """Manifests written anew as fewer; snapshots before that still hold them."""


@dataclass(frozen=True)
class Garbage:
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
    ) -> "Garbage":
        """A finding about all of ``files``."""
        own = list(files)
        newest = newest_ms(own)
        age_ms = None if newest is None else now_ms - newest
        return cls(kind, name, goes, reason, len(own), sum(file.bytes for file in own), age_ms)

    @classmethod
    def of_error(cls, kind: Kind, name: str, error: FirnError, files: int = 0) -> "Garbage":
        """A finding about what could not be looked at or removed."""
        return cls(kind, name, goes=False, reason=str(error), files=files, exit_code=error.exit_code)

    def __str__(self) -> str:
        size = f"{self.files} files, {self.bytes} bytes"
        return f"{self.kind} {self.name} ({size}) {'goes' if self.goes else 'stays'}: {self.reason}"
