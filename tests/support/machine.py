"""The machine of a test: its clock, beside which plans are made for times in the future, and a disk that SQLite does
not wait for, because nothing in a test outlives a power cut."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from sqlalchemy import Engine, event

from firnlake import clock

LATE_MS = 4_102_444_800_000
"""The year 2100."""
_LATEST = clock.latest_ms


@contextmanager
def judging_late(at_ms: int = LATE_MS) -> Iterator[None]:
    """Plans of times until an hour after ``at_ms``, epoch milliseconds, are carried out in this process."""
    with patch.object(clock, "latest_ms", lambda: at_ms + clock.AHEAD_MS):
        yield


@contextmanager
def machine_at(at_ms: int) -> Iterator[None]:
    """This process runs on a machine whose clock shows ``at_ms``, epoch milliseconds, and stands still."""
    with patch.object(clock, "latest_ms", _LATEST), patch.object(clock, "now_ms", lambda: at_ms):
        yield


@contextmanager
def unsynced() -> Iterator[None]:
    """Within, connections that SQLAlchemy opens to SQLite do not wait for the disk; one block may lie in another."""

    # A listener for each block: the end of an inner one leaves the outer one's alone.
    def do_not_wait(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", do_not_wait)
    try:
        yield
    finally:
        event.remove(Engine, "connect", do_not_wait)
