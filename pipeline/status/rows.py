"""The topic partitions of a table as an Arrow table, one row each: filtered, sorted, and split into pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.status.document import Level, LevelStatus, PartitionStatus

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
        ("compared_through", pa.int64()),
    ]
)
"""Schema of a stored status. In ``due`` the lane precedes the reason; ``in_the_way`` are the blockers."""

PAGE_ROWS: Final = 25


class Shown(StrEnum):
    """Filter of topic partitions: all, or those in one condition."""

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
    """``parts`` as a table with the schema COLUMNS."""
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
    """The page that ``query`` asks for; the last one when there are fewer."""
    wanted = _filtered(rows, query)
    pages = max(1, -(-wanted.num_rows // PAGE_ROWS))
    number = min(query.page, pages)
    order = pc.sort_indices(wanted, sort_keys=_sort_keys(query))
    chosen = order.slice((number - 1) * PAGE_ROWS, PAGE_ROWS)
    return Page(list(map(_shown, wanted.take(chosen).to_pylist())), number, pages, wanted.num_rows, rows.num_rows)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """``row`` with the figures of each level by name, such as ``l0_bytes``."""
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
