"""A reader that looks at a table again and again: no key goes back to an older value, or vanishes and comes back."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event

from pyiceberg.exceptions import NoSuchTableError

from firnlake.iceberg.catalog import Lake
from tests.support.topics import record_of

PAUSE_SECONDS = 0.05
LOOKS = 5
"""So often is a table loaded again whose files are gone: somebody may expire what was just loaded."""

Key = tuple[int, bytes]
"""A key in two partitions is two keys."""
View = Mapping[Key, tuple[int, bool]]
"""The reader's view of each key: its newest offset, and true if that is a tombstone."""


@dataclass
class Looks:
    """What a reader has seen, and what of it no reader may see."""

    views: int = 0
    violations: list[str] = field(default_factory=list)
    _last: View = field(default_factory=dict)
    _gone: dict[Key, int] = field(default_factory=dict)

    def see(self, seen: View) -> None:
        """The next look."""
        self.views += 1
        for key, (offset, tombstone) in self._last.items():
            if key not in seen:
                self._gone[key] = offset
                if not tombstone:
                    self.violations.append(f"{key} was at offset {offset} and is gone")
        for key, (offset, _) in seen.items():
            before = self._last[key][0] if key in self._last else self._gone.get(key, -1)
            if offset < before or (offset == before and key not in self._last):
                self.violations.append(f"{key} was at offset {before} and is at {offset}")
        self._last = seen


def look(lake: Lake, table: str, stop: Event) -> Looks:
    """Look until ``stop``."""
    looks, last = Looks(), 0
    while not stop.wait(PAUSE_SECONDS):
        try:
            found = _look(lake, table, last)
        except (OSError, NoSuchTableError) as error:
            looks.violations.append(f"{type(error).__name__}: {error}")
            continue
        if found:
            last, seen = found
            looks.see(seen)
    return looks


def _look(lake: Lake, identifier: str, last: int) -> tuple[int, View] | None:
    for left in reversed(range(LOOKS)):
        table = lake.table(identifier)
        snapshot = table.current_snapshot()
        if snapshot is None or snapshot.snapshot_id == last:
            return None
        try:
            records = sorted(map(record_of, table.scan().to_arrow().to_pylist()), key=lambda record: record.offset)
        except FileNotFoundError:
            if not left:
                raise
            time.sleep(PAUSE_SECONDS)
        else:
            view = {(one.partition, one.key): (one.offset, one.value is None) for one in records if one.key is not None}
            return snapshot.snapshot_id, view
    return None
