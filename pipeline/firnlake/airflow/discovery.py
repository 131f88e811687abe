"""What patterns in ``firn.toml`` stand for: the tables of records that `firn_maintain` found when it last looked.

Airflow parses DAG files every few seconds and in every task, so parsing reads this file and never asks the catalog.
While the catalog is down, all tables keep their DAGs.
"""

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from firnlake.airflow.configuration import Configured, read_tables

if TYPE_CHECKING:
    from firnlake.iceberg.catalog import Lake

_NAME: Final = "tables.json"

log = logging.getLogger(__name__)


def home() -> Path:
    """Firn's home, as ``Lake.load`` finds it. The workers share this folder with the API server."""
    return Path(os.environ.get("FIRN_HOME", ".firn")).resolve()


def known_tables(home: Path) -> list[str]:
    """The names of the tables of records at the last look; none if there was none, or if its file is damaged."""
    try:
        names = json.loads((home / _NAME).read_bytes())
    except (OSError, ValueError):
        return []
    return sorted(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def configured_in(folder: Path) -> Configured:
    """The tables in the file FIRN_TABLES, by default ``firn.toml`` in ``folder``."""
    return read_tables(Path(os.environ.get("FIRN_TABLES") or folder / "firn.toml"), known_tables(home()))


def look(lake: "Lake") -> list[str]:
    """Store the names of all tables of records in the catalog, and return them.

    A table that can't be loaded keeps its place, so no outage takes its DAG away. Raises UnavailableError, and
    stores nothing, if the catalog does not list its tables.
    """
    from firnlake.errors import FirnError, NotFoundError
    from firnlake.table.records import is_table_of_records
    from firnlake_expectations.templates import write_page

    before = known_tables(lake.home)
    found = []
    for name in lake.all_tables():
        try:
            if is_table_of_records(lake.table(name), name):
                found.append(name)
        except NotFoundError:
            continue
        except FirnError as error:
            log.warning("%s", error)
            if name in before:
                found.append(name)
    write_page(lake.home / _NAME, json.dumps(found))
    return found
