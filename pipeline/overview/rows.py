"""The topic partitions of a table as columns, one row each: filtered, sorted, and cut into pages."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

LEVELS: Final = range(4)

COLUMNS: Final = pa.schema(
    [
        ("name", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int64()),
        ("condition", pa.string()),
        *[(f"l{level}_{what}", pa.int64()) for level in LEVELS for what in ("segments", "records", "bytes")],
        ("segments", pa.int64()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("dirty_ratio", pa.float64()),
        ("lag_ms", pa.int64()),
        ("cleanable_bytes", pa.int64()),
        ("uncleanable_bytes", pa.int64()),
        ("first_dirty_offset", pa.int64()),
        ("due_in_ms", pa.int64()),
        ("quarantined", pa.int64()),
        ("due", pa.list_(pa.string())),
        ("in_the_way", pa.list_(pa.string())),
        ("waiting", pa.list_(pa.string())),
    ]
)

PAGE_ROWS: Final = 25


class Shown(StrEnum):
    """Which topic partitions are wanted: all, or those in one condition."""

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
    """What somebody wants to see. ``page`` counts from 1; ``text`` is looked for in names and reasons."""

    text: str = ""
    shown: Shown = Shown.ALL
    sort: Sort = Sort.DIRTY_RATIO
    descending: bool = True
    page: int = 1


@dataclass(frozen=True)
class Page:
    """The rows of one page, as dictionaries by column, among ``found`` that were wanted of ``total``."""

    rows: list[dict[str, Any]]
    number: int
    pages: int
    found: int
    total: int


def page_of(rows: pa.Table, query: Query) -> Page:
    """The page that ``query`` asks for; the last one when there are fewer."""
    wanted = _filtered(rows, query)
    pages = max(1, -(-wanted.num_rows // PAGE_ROWS))
    number = min(query.page, pages)
    order = pc.sort_indices(wanted, sort_keys=_sort_keys(query))
    chosen = order.slice((number - 1) * PAGE_ROWS, PAGE_ROWS)
    return Page(wanted.take(chosen).to_pylist(), number, pages, wanted.num_rows, rows.num_rows)


def _sort_keys(query: Query) -> list[tuple[str, str]]:
    direction = "descending" if query.descending else "ascending"
    # Partition 10 comes after partition 9. What has no value comes last in either direction: Arrow's default.
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
    found = pc.match_substring(rows["name"], text, ignore_case=True)
    for name in ("due", "in_the_way", "waiting"):
        reasons = pc.binary_join(rows[name], "\n")
        found = pc.or_(found, pc.match_substring(reasons, text, ignore_case=True))
    return rows.filter(found)
