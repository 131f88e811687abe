"""A reader that looks at a table again and again, in a process of its own."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError

from firnlake.iceberg.catalog import Lake
from tests.faults.harness.model import Looks, View, view
from tests.faults.harness.processes import forked
from tests.support.topics import record_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PAUSE_SECONDS = 0.05
LOOKS = 5
"""So often is a table loaded again whose files are gone: somebody may expire what was just loaded."""

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
