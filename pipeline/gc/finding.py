"""What the garbage collector says of one thing: whether it goes, and why."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pipeline.lake.folders import Stored, newest_ms


class Kind(StrEnum):
    """What a thing is; the value is what people read."""

    STAGE = "stage"
    STAGE_FOLDER = "stage folder"
    """Metadata of a stage that is no longer in the catalog."""
    PLAN_LIST = "list of plans"
    """The plans of a commit that the table's history does not have."""
    QUARANTINE = "quarantine"
    TOMBSTONES = "removed tombstones"
    SNAPSHOT = "snapshot"
    """Of the quarantine or of removed tombstones."""
    DATA = "data files"
    PLAN = "plan"
    REPORT = "report"


@dataclass(frozen=True)
class Finding:
    """One thing, or the files of one folder. ``bytes`` are those of its ``files``; the age is that of the youngest of
    them, in milliseconds, None where nobody knows."""

    kind: Kind
    name: str
    goes: bool
    reason: str
    files: int = 1
    bytes: int = 0
    age_ms: int | None = None

    @classmethod
    def of_files(
        cls, kind: Kind, name: str, files: Iterable[Stored], now_ms: int, *, goes: bool, reason: str
    ) -> "Finding":
        """What is to be said of ``files`` together."""
        own = list(files)
        newest = newest_ms(own)
        age_ms = None if newest is None else now_ms - newest
        return cls(kind, name, goes, reason, len(own), sum(file.bytes for file in own), age_ms)

    def __str__(self) -> str:
        size = f"{self.files} files, {self.bytes} bytes"
        return f"{self.kind} {self.name} ({size}) {'goes' if self.goes else 'stays'}: {self.reason}"
