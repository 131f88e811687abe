"""The catalogs that a soak runs on: the embedded one, or a PostgreSQL server of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from firnlake.iceberg.catalog import EMBEDDED_NAME, Lake
from infra.processes import stop
from infra.stack import postgres
from infra.stack.settings import SQL, Settings
from tests.support.commands import until


class Kind(StrEnum):
    """The store of the catalog."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


@contextmanager
def catalog(kind: Kind, folder: Path) -> Iterator[Lake]:
    """A lake whose catalog is of that kind; it goes with ``folder``, where its warehouse is."""
    if kind is Kind.SQLITE:
        yield Lake.embedded(folder / "lake")
        return
    place = folder / "postgres"
    place.mkdir()
    settings = Settings.of(place)
    server = postgres.serve(place, settings, dict(os.environ))
    try:
        until(lambda: postgres.prepared(settings))
        uri = settings.catalogs()[SQL]["uri"]
        properties = {"type": "sql", "uri": uri, "warehouse": f"file://{folder / 'warehouse'}"}
        yield Lake(EMBEDDED_NAME, properties, folder / "home")
    finally:
        stop(place)
        server.wait()
        postgres.remove(place)
