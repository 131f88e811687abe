"""What was found in the files that were read for a request to erase keys (C30).

Files never change, so what was found in a file, by path and length, is true for ever and in every history of the
table. It never says which key was found, only which of the request's keys, by their positions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from firnlake.iceberg.files import FrozenModel


@dataclass
class Read:
    """What was found in one file for one request. Offsets decide alone; the file's sequence number is not looked at."""

    path: str
    bytes: int
    searched: bool = False
    """True if a search has read the file, whatever lane `erase` says of it."""
    records: int = 0
    """Number of records of requested keys below the log end; in a file without offsets, of all such records."""
    lowest: int = -1
    """Lowest offset of these records; -1 without any, or without offsets."""
    newer_records: int = 0
    """Number of records of requested keys at or past the log end."""
    found: set[int] = field(default_factory=set)
    """Positions of the keys of ``records`` among the request's keys."""
    newer: set[int] = field(default_factory=set)
    """Positions of the keys of ``newer_records``."""

    def add(self, position: int, offset: int | None, log_end: int | None) -> bool:
        """Count a record of the key at ``position``; returns True if it is below the log end.

        ``offset`` or ``log_end`` is None if nothing tells it; then the record counts as below the log end.
        """
        if offset is not None and log_end is not None and offset >= log_end:
            self.newer_records += 1
            self.newer.add(position)
            return False
        self.records += 1
        self.found.add(position)
        if offset is not None:
            self.lowest = offset if self.lowest < 0 else min(self.lowest, offset)
        return True


class Reads(FrozenModel):
    """A document that says what was found in files that were read for one request."""

    files: tuple[Read, ...]
    served: Mapping[int, int]
    """The partitions of which no live segment held a covered record, with the sequence number of main's snapshot of
    which that is true."""
