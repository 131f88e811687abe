"""The catalogs that faults, soak and load run on: the embedded one, or servers of their own."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import typer

from firnlake.iceberg.catalog import EMBEDDED_NAME, Lake
from infra.processes import stop
from infra.stack import postgres
from infra.stack.settings import REST, SQL, Settings
from infra.stack.stack import Stack

READY_WITHIN = 60  # seconds


class Kind(StrEnum):
    """The store of the catalog."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"
    REST = "rest"


def sql_only(kind: Kind) -> Kind:
    """``kind``, for what makes calls to the catalog fail: it does so in a SQL catalog's class."""
    if kind is Kind.REST:
        raise typer.BadParameter("faults are made in SQL catalogs only")
    return kind


@contextmanager
def catalog(kind: Kind, folder: Path) -> Iterator[Lake]:
    """A lake whose catalog is of that kind; it goes with ``folder``.

    Its warehouse is on this machine's disk; that of a REST catalog is in an object store of the stack's.
    """
    if kind is Kind.SQLITE:
        yield Lake.embedded(folder / "lake")
    elif kind is Kind.REST:
        yield from _rest(folder)
    else:
        yield from _postgres(folder)


def _rest(folder: Path) -> Iterator[Lake]:
    stack = Stack.of(folder / "stack")
    try:
        stack.up(cluster=False)
        yield stack.lake(REST, folder / "home")
    finally:
        stack.down()
        stack.remove()


def _postgres(folder: Path) -> Iterator[Lake]:
    place = folder / "postgres"
    place.mkdir()
    settings = Settings.of(place)
    server = postgres.serve(place, settings, dict(os.environ))
    try:
        deadline = time.monotonic() + READY_WITHIN
        while not postgres.prepared(settings):
            if time.monotonic() > deadline:
                raise SystemExit(f"firn: PostgreSQL does not answer after {READY_WITHIN} s, see {place}/postgres.log")
            time.sleep(0.2)
        properties = {
            "type": "sql",
            "uri": settings.catalogs()[SQL]["uri"],
            "warehouse": f"file://{folder / 'warehouse'}",
        }
        yield Lake(EMBEDDED_NAME, properties, folder / "home")
    finally:
        stop(place)
        server.wait()
        postgres.remove(place)
