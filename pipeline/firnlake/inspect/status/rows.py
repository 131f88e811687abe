"""The status of a table as an Arrow table with a row per topic partition, to be filtered, sorted and split into pages.

The schema's metadata has the figures and lists of the whole table. A run stores the status of a table as a file
under ``$FIRN_HOME/status``. The file is written atomically, so readers need no lock. It is memory-mapped, so a
page of a table with 10,000 topic partitions takes milliseconds. A status can be rebuilt, and no decision depends on it.
"""

import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from firnlake.errors import RefusedError, WaitingError
from firnlake.inspect.status.document import Details, Level, LevelStatus, PartitionCondition, PartitionStatus, Summary
from firnlake_expectations.table_report import Seen
from firnlake_expectations.wording import count, log_name

LEVELS: Final = range(4)

_LEVEL: Final = pa.struct([(name, pa.int64()) for name in LevelStatus.model_fields])
COLUMNS: Final = pa.schema(
    [
        ("name", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int64()),
        ("condition", pa.string()),
        ("levels", pa.list_(_LEVEL)),
        ("segments", pa.int64()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("dirty_ratio", pa.float64()),
        ("lag_ms", pa.int64()),
        ("cleanable_bytes", pa.int64()),
        ("uncleanable_bytes", pa.int64()),
        ("cleaned_through", pa.int64()),
        ("first_dirty_offset", pa.int64()),
        ("due_in_ms", pa.int64()),
        ("quarantined", pa.int64()),
        ("due", pa.list_(pa.string())),
        ("in_the_way", pa.list_(pa.string())),
        ("waiting", pa.list_(pa.string())),
        ("retained", pa.string()),
    ]
)
"""Schema of a stored status. ``due`` has texts ``lane: reason``; ``in_the_way`` has the blockers."""

PAGE_ROWS: Final = 25
FOR_PEOPLE: Final = (PartitionCondition.UNCLEANABLE.value, PartitionCondition.REFUSED.value)
"""The conditions in which a topic partition waits until a person does something."""
_WORST: Final = pa.array([*FOR_PEOPLE, PartitionCondition.DUE.value])
_WORST_FIRST: Final = [
    ("rank", "ascending"),
    ("dirty_ratio", "descending"),
    ("topic", "ascending"),
    ("partition", "ascending"),
]


class Shown(StrEnum):
    """Filter of topic partitions: all partitions, or only those in one condition."""

    ALL = "all"
    DUE = "due"
    UNCLEANABLE = "uncleanable"
    REFUSED = "refused"
    WAITING = "waiting"
    IDLE = "idle"


class Sort(StrEnum):
    """The columns that rows can be sorted by."""

    NAME = "name"
    CONDITION = "condition"
    SEGMENTS = "segments"
    RECORDS = "records"
    BYTES = "bytes"
    DIRTY_RATIO = "dirty_ratio"
    LAG = "lag_ms"
    QUARANTINED = "quarantined"


@dataclass(frozen=True)
class Query:
    """A request for a page of rows. ``page`` counts from 1; ``text`` is searched for in names and reasons."""

    text: str = ""
    shown: Shown = Shown.ALL
    sort: Sort = Sort.DIRTY_RATIO
    descending: bool = True
    page: int = 1


@dataclass(frozen=True)
class Page:
    """The rows of one page, as dictionaries by column; ``found`` of ``total`` rows match the query."""

    rows: list[dict[str, Any]]
    number: int
    pages: int
    found: int
    total: int


def rows_of(parts: Sequence[PartitionStatus]) -> pa.Table:
    """``parts`` as an Arrow table with the schema COLUMNS."""
    return pa.Table.from_pylist([_row(part) for part in parts], schema=COLUMNS)


def parts_of(rows: pa.Table) -> tuple[PartitionStatus, ...]:
    """The topic partitions in ``rows``, in their order: the inverse of ``rows_of``."""
    return tuple(map(_part, rows.to_pylist()))


def _row(part: PartitionStatus) -> dict[str, Any]:
    return part.model_dump() | {
        "name": part.name,
        "segments": sum(level.segments for level in part.levels),
        "records": sum(level.records for level in part.levels),
        "bytes": sum(level.bytes for level in part.levels),
        "due": [f"{lane}: {reason}" for lane, reason in part.due.items()],
        "in_the_way": part.blockers,
    }


def _part(row: dict[str, Any]) -> PartitionStatus:
    told = {name: row[name] for name in PartitionStatus.model_fields if name in row}
    due = dict(text.split(": ", 1) for text in row["due"])
    return PartitionStatus(**told | {"due": due, "blockers": row["in_the_way"]})


def page_of(rows: pa.Table, query: Query) -> Page:
    """The page that ``query`` asks for; the last page if there are fewer pages."""
    wanted = _filtered(rows, query)
    pages = max(1, -(-wanted.num_rows // PAGE_ROWS))
    number = min(query.page, pages)
    order = pc.sort_indices(wanted, sort_keys=_sort_keys(query))
    chosen = order.slice((number - 1) * PAGE_ROWS, PAGE_ROWS)
    return Page(list(map(_shown, wanted.take(chosen).to_pylist())), number, pages, wanted.num_rows, rows.num_rows)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """``row`` with a column for each figure of each level, such as ``l0_bytes``."""
    flat = dict.fromkeys((f"l{level}_{what}" for level in LEVELS for what in Level.model_fields), 0)
    return row | flat | {f"l{one['level']}_{what}": one[what] for one in row["levels"] for what in Level.model_fields}


def _sort_keys(query: Query) -> list[tuple[str, str]]:
    direction = "descending" if query.descending else "ascending"
    # Partition 10 comes after partition 9. Missing values come last in either direction: Arrow's default.
    place = ["topic", "partition"]
    if query.sort is Sort.NAME:
        return [(name, direction) for name in place]
    return [(query.sort.value, direction), *((name, "ascending") for name in place)]


def _filtered(rows: pa.Table, query: Query) -> pa.Table:
    if query.shown is not Shown.ALL:
        rows = rows.filter(pc.equal(rows["condition"], query.shown.value))
    text = query.text.strip()
    if not text:
        return rows
    matches = pc.match_substring(rows["name"], text, ignore_case=True)
    for name in ("due", "in_the_way", "waiting"):
        reasons = pc.binary_join(rows[name], "\n")
        matches = pc.or_(matches, pc.match_substring(reasons, text, ignore_case=True))
    return rows.filter(matches)


FOLDER: Final = "status"
SUFFIX: Final = ".arrow"
_SUMMARY, _DETAILS = b"firn.summary", b"firn.details"


def path_of(home: Path, table: str) -> Path:
    """Path of the status file of ``table``, which is inside the folder whatever the table's name is."""
    return home / FOLDER / f"{quote(table, safe='')}{SUFFIX}"


def tables(home: Path) -> list[str]:
    """The tables that have a status file, by name."""
    return sorted(unquote(path.name.removesuffix(SUFFIX)) for path in (home / FOLDER).glob(f"[!.]*{SUFFIX}"))


@dataclass(frozen=True)
class Status:
    """The status of one table at one snapshot. ``rows`` have the schema COLUMNS; ``path`` is the path of its file."""

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

    def worst(self, limit: int) -> tuple[PartitionStatus, ...]:
        """At most ``limit`` topic partitions: first those that wait for a person, then due ones, then the dirtiest."""
        # NULL, which comes last, for the other conditions.
        rank = pc.index_in(self.rows["condition"], value_set=_WORST)
        order = pc.sort_indices(self.rows.append_column("rank", rank), sort_keys=_WORST_FIRST)
        return parts_of(self.rows.take(order.slice(0, limit)))

    def due_lanes(self) -> frozenset[str]:
        """The lanes that are due in any topic partition."""
        return frozenset(text.partition(":")[0] for text in pc.list_flatten(self.rows["due"]).to_pylist())

    def to_dict(self) -> dict[str, Any]:
        """The status as a dictionary of JSON values."""
        parts = [part.model_dump(mode="json") for part in self.partitions]
        return self.summary.model_dump(mode="json") | self.details().model_dump(mode="json") | {"partitions": parts}

    def details(self) -> Details:
        """The lists about the table. Raises RefusedError if Firn can't read them."""
        try:
            return Details.model_validate_json(self.rows.schema.metadata[_DETAILS])
        except (ValidationError, KeyError) as error:
            raise _unreadable(self.table, self.path, error) from error

    def held(self) -> dict[tuple[str, str], str]:
        """Why topic partitions wait for a person: a reason by name and condition, sorted by name."""
        held = self.rows.filter(pc.is_in(self.rows["condition"], pa.array(FOR_PEOPLE))).sort_by("name")
        return {
            # What can't be cleaned is told first, and what was refused last.
            (one["name"], one["condition"]): one["in_the_way"][
                -1 if one["condition"] == PartitionCondition.REFUSED else 0
            ]
            for one in held.select(["name", "condition", "in_the_way"]).to_pylist()
        }

    def waiting(self, told: Collection[str] = ()) -> WaitingError | None:
        """What waits for a person, in one line, without the topic partitions that are ``told`` already; None if nothing
        else does."""
        held = {place: reason for place, reason in self.held().items() if place[0] not in told}
        if not held:
            return None
        (name, _), reason = next(iter(held.items()))
        why = reason if reason.startswith(f"{name} ") else f"{name}: {reason}"
        more = f"; `firn status {self.table}` names the others" if len(held) > 1 else ""
        wait = "waits" if len(held) == 1 else "wait"
        return WaitingError(
            f"{self.table}: {len(held):,} of {count(self.rows.num_rows, 'topic partition')} {wait} for a person: "
            f"{why}{more}"
        )

    def seen(self) -> Seen:
        """What the data-quality pages need of this."""
        summary, rows = self.summary, self.rows.select(["topic", "partition", "condition"]).to_pylist()
        return Seen(
            table=summary.table,
            snapshot_id=summary.snapshot_id,
            taken_ms=summary.taken_ms,
            topic_partitions={log_name(one["topic"], one["partition"]): one["condition"] for one in rows},
            held={name: reason for (name, _), reason in self.held().items()},
            tombstones=summary.tombstones,
            published={one.validation: one.snapshot_id for one in self.details().publications if one.validation},
        )

    def page(self, query: Query) -> Page:
        """The topic partitions that ``query`` asks for. Raises RefusedError when the rows are damaged."""
        try:
            # Arrow does not check the offsets in a file when it reads them, and wrong offsets crash the process.
            self.rows.validate(full=True)
        except pa.ArrowException as error:
            raise _unreadable(self.table, self.path, error) from error
        return page_of(self.rows, query)


def write(status: Status) -> Path:
    """Store ``status`` and return its path. Raises RefusedError when the file can't be written."""
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
    """Read the status of ``table``; None if it has no file. Raises RefusedError for a damaged or foreign file."""
    path = path_of(home, table)
    try:
        # Memory-mapped, because the overview of all tables reads no rows.
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
