"""The status of a table: topic partitions as Arrow, the table's figures and lists in the schema's metadata.

A run stores it as one file per table under ``$FIRN_HOME/status``. The file is written atomically, so readers need no
lock, and it is memory-mapped: a page of 10,000 topic partitions costs milliseconds. It can be rebuilt at any time, and
no decision depends on it.
"""

import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
from pydantic import ValidationError

from pipeline.errors import RefusedError
from pipeline.status.document import Details, PartitionStatus, Summary
from pipeline.status.rows import COLUMNS, Page, Query, page_of, parts_of

FOLDER: Final = "status"
SUFFIX: Final = ".arrow"
_SUMMARY, _DETAILS = b"firn.summary", b"firn.details"


def path_of(home: Path, table: str) -> Path:
    """Path of the status file of ``table``; the name can't lead out of the folder."""
    return home / FOLDER / f"{quote(table, safe='')}{SUFFIX}"


def tables(home: Path) -> list[str]:
    """The tables that have a status file, by name."""
    return sorted(unquote(path.name.removesuffix(SUFFIX)) for path in (home / FOLDER).glob(f"[!.]*{SUFFIX}"))


@dataclass(frozen=True)
class Status:
    """One table as of one snapshot. Its ``rows`` have the COLUMNS; ``path`` is the file that stores it, or would."""

    path: Path
    summary: Summary
    rows: pa.Table

    @classmethod
    def of(cls, home: Path, summary: Summary, details: Details, rows: pa.Table) -> "Status":
        """Build a status from its parts."""
        said = {_SUMMARY: summary.model_dump_json(), _DETAILS: details.model_dump_json()}
        return cls(path_of(home, summary.table), summary, rows.replace_schema_metadata(said))

    @property
    def table(self) -> str:
        """The table's name."""
        return self.summary.table

    @property
    def partitions(self) -> tuple[PartitionStatus, ...]:
        """The topic partitions as objects; suitable for thousands of them, not for a million."""
        return parts_of(self.rows)

    @property
    def strays(self) -> tuple[str, ...]:
        """As in ``Details``."""
        return self.details().strays

    @property
    def doubts(self) -> tuple[str, ...]:
        """As in ``Details``."""
        return self.details().doubts

    def to_dict(self) -> dict[str, Any]:
        """The status as JSON-ready names and values."""
        parts = [part.model_dump(mode="json") for part in self.partitions]
        return self.summary.model_dump(mode="json") | self.details().model_dump(mode="json") | {"partitions": parts}

    def details(self) -> Details:
        """The lists about the table. Raises RefusedError when they are not Firn's."""
        try:
            return Details.model_validate_json(self.rows.schema.metadata[_DETAILS])
        except (ValidationError, KeyError) as error:
            raise _unreadable(self.table, self.path, error) from error

    def page(self, query: Query) -> Page:
        """The topic partitions that ``query`` asks for. Raises RefusedError when the rows are damaged."""
        try:
            # Arrow trusts the offsets in a file, and wrong ones crash the process.
            self.rows.validate(full=True)
        except pa.ArrowException as error:
            raise _unreadable(self.table, self.path, error) from error
        return page_of(self.rows, query)


def write(status: Status) -> Path:
    """Store ``status`` and return its path. Raises RefusedError when it can't be written."""
    path = status.path
    unfinished = path.with_name(f".{uuid.uuid4().hex}{SUFFIX}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, status.rows.schema) as writer:
            writer.write_table(status.rows)
        unfinished.replace(path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise RefusedError(
            f"the status of table {status.table} can't be written to {path}: {error}; allowed: a writable folder "
            "(FIRN_HOME)"
        ) from error
    return path


def read(home: Path, table: str) -> Status | None:
    """Read the status of ``table``; None when there is no file. Raises RefusedError if it is torn or not Firn's."""
    path = path_of(home, table)
    try:
        # Memory-mapped, because the page of all tables reads no row.
        with pa.memory_map(str(path)) as mapped:
            rows = pa.ipc.open_file(mapped).read_all()
        status = Status(path, Summary.model_validate_json((rows.schema.metadata or {})[_SUMMARY]), rows)
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException, ValidationError, KeyError) as error:
        raise _unreadable(table, path, error) from error
    if status.table != table or not rows.schema.equals(COLUMNS):
        raise _unreadable(table, path, f"it belongs to table {status.table} and has the columns {rows.column_names}")
    return status


def _unreadable(table: str, path: Path, why: Exception | str) -> RefusedError:
    reason = next(iter(str(why).splitlines()), repr(why))
    return RefusedError(
        f"the status of table {table} can't be read from {path}: {reason}; allowed: a status written by this version "
        "of Firn (the next run writes one)"
    )
