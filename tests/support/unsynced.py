"""SQLite without waiting for the disk: nothing in a test outlives a power cut."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, event


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
