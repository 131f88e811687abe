"""A reader that looks at a table again and again, in a process of its own."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from pyiceberg.exceptions import NoSuchTableError

from firnlake.iceberg.catalog import Lake
from tests.nightly.crowd.processes import forked
from tests.support.topics import Record, record_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PAUSE_SECONDS = 0.05
LOOKS = 5
"""So often is a table loaded again whose files are gone: somebody may expire what was just loaded."""

Key = tuple[int, bytes]
"""A key in two partitions is two keys."""
View = Mapping[Key, tuple[int, bool]]
"""The reader's view of each key: its newest offset, and true if that is a tombstone."""


def view(seen: Iterable[Record]) -> View:
    """The reader's view of each key."""
    newest: dict[Key, tuple[int, bool]] = {}
    for record in sorted(seen, key=lambda record: record.offset):
        if record.key is not None:
            newest[record.partition, record.key] = record.offset, record.value is None
    return newest


class Step(NamedTuple):
    """A key that was at offset ``before`` and is at ``after`` now, or nowhere."""

    key: Key
    before: int
    after: int | None


@dataclass
class Looks:
    """A reader that looks again and again never sees a key go back to an older value, or vanish and come back."""

    views: int = 0
    backwards: list[Step] = field(default_factory=list)
    _last: View = field(default_factory=dict)
    _gone: dict[Key, int] = field(default_factory=dict)

    def see(self, seen: View) -> None:
        """The next look."""
        self.views += 1
        for key, (offset, tombstone) in self._last.items():
            if key not in seen:
                self._gone[key] = offset
                if not tombstone:
                    self.backwards.append(Step(key, offset, None))
        for key, (offset, _) in seen.items():
            before = self._last[key][0] if key in self._last else self._gone.get(key, -1)
            if offset < before or (offset == before and key not in self._last):
                self.backwards.append(Step(key, before, offset))
        self._last = seen

    def violations(self) -> list[str]:
        """Errors in a reader's view."""
        return [
            f"{step.key} was at offset {step.before} and is {'gone' if step.after is None else f'at {step.after}'}"
            for step in self.backwards
        ]


Seen = tuple[Looks, list[str]]
"""Looks at a table, one after the other, and what could not be read."""


@dataclass
class Reader:
    """Reads the tables that it is told to."""

    _pipe: "Connection[str | None, Seen]"

    def watch(self, table: str) -> None:
        self._pipe.send(table)

    def stop(self) -> Seen:
        """The records that it has seen."""
        self._pipe.send(None)
        return self._pipe.recv()


@contextmanager
def reading(lake: Lake) -> Iterator[Reader]:
    """A reader of ``lake``."""
    # Forked by a server: it shall have nothing of this process, neither its session nor the catalog that it has opened.
    context = forked()
    own, other = context.Pipe()
    process = context.Process(target=_read, args=(replace(lake), other), daemon=True)
    process.start()
    try:
        yield Reader(own)
    finally:
        process.kill()
        process.join()


def _read(lake: Lake, pipe: "Connection[Seen, str | None]") -> None:
    while True:
        table = pipe.recv()
        if table is None:
            continue
        looks = Looks()
        errors: list[str] = []
        last = 0
        while not pipe.poll(PAUSE_SECONDS):
            try:
                found = _look(lake, table, last)
            except (OSError, NoSuchTableError) as error:
                errors.append(f"{type(error).__name__}: {error}")
                continue
            if found:
                last, seen = found
                looks.see(seen)
        pipe.recv()
        pipe.send((looks, errors))


def _look(lake: Lake, identifier: str, last: int) -> tuple[int, View] | None:
    for left in reversed(range(LOOKS)):
        table = lake.table(identifier)
        snapshot = table.current_snapshot()
        if snapshot is None or snapshot.snapshot_id == last:
            return None
        try:
            rows = table.scan().to_arrow().to_pylist()
        except FileNotFoundError:
            if not left:
                raise
            time.sleep(PAUSE_SECONDS)
        else:
            return snapshot.snapshot_id, view(map(record_of, rows))
    return None
