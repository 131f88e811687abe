"""The catalogs that faults, soak and load run on: the embedded one, or a PostgreSQL of their own."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from infra.processes import stop
from infra.stack import postgres
from infra.stack.settings import SQL, Settings
from pipeline.lake import Lake
from pipeline.lake.catalog import EMBEDDED_NAME

READY_WITHIN = 60  # seconds


class Kind(StrEnum):
    """Where the catalog is kept."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


@contextmanager
def catalog(kind: Kind, folder: Path) -> Iterator[Lake]:
    """A lake whose catalog is of that kind, with its warehouse on this machine's disk; it goes with ``folder``."""
    if kind is Kind.SQLITE:
        yield Lake.embedded(folder / "lake")
        return
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
