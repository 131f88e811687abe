"""One file per table under ``$FIRN_HOME/status``: an Arrow file of topic partitions, the table's figures in its schema.

It appears whole or not at all, so a reader needs no lock, and is mapped into memory: a page of 10,000 topic partitions
costs milliseconds. It can be made again at any time and decides nothing.
"""

import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

import pyarrow as pa
from pydantic import ValidationError

from pipeline.errors import RefusedError
from pipeline.overview.facts import Details, Summary
from pipeline.overview.rows import COLUMNS, Page, Query, page_of

FOLDER: Final = "status"
SUFFIX: Final = ".arrow"
_SUMMARY, _DETAILS = b"firn.summary", b"firn.details"


def path_of(home: Path, table: str) -> Path:
    """Where the file of ``table`` lies; a name from anywhere stays a name in that folder."""
    return home / FOLDER / f"{quote(table, safe='')}{SUFFIX}"


def tables(home: Path) -> list[str]:
    """The tables that have a file, by name."""
    return sorted(unquote(path.name.removesuffix(SUFFIX)) for path in (home / FOLDER).glob(f"[!.]*{SUFFIX}"))


@dataclass(frozen=True)
class Overview:
    """The file of one table, opened. Its rows have the COLUMNS."""

    path: Path
    summary: Summary
    rows: pa.Table

    def details(self) -> Details:
        """What only the table's own page shows. Raises RefusedError when it is not Firn's."""
        try:
            return Details.model_validate_json(self.rows.schema.metadata[_DETAILS])
        except (ValidationError, KeyError) as error:
            raise _unreadable(self.summary.table, self.path, error) from error

    def page(self, query: Query) -> Page:
        """The topic partitions that ``query`` asks for. Raises RefusedError when the rows are damaged."""
        try:
            # Arrow believes the offsets in a file, and ends the process over wrong ones.
            self.rows.validate(full=True)
        except pa.ArrowException as error:
            raise _unreadable(self.summary.table, self.path, error) from error
        return page_of(self.rows, query)


def write(home: Path, summary: Summary, details: Details, rows: pa.Table) -> Path:
    """Write the file of a table; its path. Raises RefusedError when it can't be written."""
    path = path_of(home, summary.table)
    unfinished = path.with_name(f".{uuid.uuid4().hex}{SUFFIX}")
    said = {_SUMMARY: summary.model_dump_json(), _DETAILS: details.model_dump_json()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, COLUMNS.with_metadata(said)) as writer:
            writer.write_table(rows.select(COLUMNS.names).replace_schema_metadata(said))
        unfinished.replace(path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise RefusedError(
            f"the status of table {summary.table} can't be written to {path}: {error}; allowed: a folder that can be "
            "written to (FIRN_HOME)"
        ) from error
    return path


def read(home: Path, table: str) -> Overview | None:
    """The file of ``table``; None when there is none. Raises RefusedError for one that is torn, or not Firn's."""
    path = path_of(home, table)
    try:
        # Mapped: the overview of all tables touches no row.
        with pa.memory_map(str(path)) as mapped:
            rows = pa.ipc.open_file(mapped).read_all()
        found = Overview(path, Summary.model_validate_json((rows.schema.metadata or {})[_SUMMARY]), rows)
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException, ValidationError, KeyError) as error:
        raise _unreadable(table, path, error) from error
    if found.summary.table != table or not rows.schema.equals(COLUMNS):
        raise _unreadable(table, path, f"it is of table {found.summary.table}, with the columns {rows.column_names}")
    return found


def _unreadable(table: str, path: Path, why: Exception | str) -> RefusedError:
    reason = next(iter(str(why).splitlines()), repr(why))
    return RefusedError(
        f"the status of table {table} can't be read from {path}: {reason}; allowed: as a run of this version of Firn "
        "writes it (the next run does)"
    )
