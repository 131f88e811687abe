"""The judge's view for lane `retain` (C4, C19): whole segments are dropped, the newest records of keys included, so it
takes metadata alone to judge them.

A segment may be dropped when its newest record is past retention.ms, or when retention.bytes remain in the later
segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firnlake_expectations.duck import Duck


class Retained(NamedTuple):
    """A segment with records of the topic partition of a plan, or a file that may hold some.

    name             its name in reports
    first, last      its offsets, both inclusive
    records, bytes   their number, and the size of the file; 0 if nobody knows how many are of the topic partition
    since_ms         the time from which its age counts, epoch milliseconds; None: unknown
    goes             True when the plan drops it
    retention_ms, retention_bytes   the limits of the topic; -1: none
    """

    name: str
    first: int
    last: int
    records: int
    bytes: int
    since_ms: int | None
    goes: bool
    retention_ms: int = -1
    retention_bytes: int = -1


_SCHEMA = pa.schema(
    {
        "plan": pa.int32(),
        "number": pa.int64(),
        "name": pa.string(),
        "first": pa.int64(),
        "last": pa.int64(),
        "records": pa.int64(),
        "bytes": pa.int64(),
        "since_ms": pa.int64(),
        "goes": pa.bool_(),
        "retention_ms": pa.int64(),
        "retention_bytes": pa.int64(),
    }
)


def derive_retention(duck: Duck, segments: Iterable[Iterable[Retained]]) -> dict[int, dict[str, int]]:
    """Create the table that the promises of lane `retain` query, from the segments of each plan in offset order, and
    `plans`; returns the figures of each plan."""
    rows = [
        {"plan": plan, "number": number, **one._asdict()}
        for plan, every in enumerate(segments)
        for number, one in enumerate(every)
    ]
    with duck.seeing(told=pa.Table.from_pylist(rows, _SCHEMA)):
        duck.run(
            """CREATE TABLE segments AS SELECT told.*, "first" AS "offset", NULL AS key, kept_from, now,
                coalesce(sum(bytes) OVER (PARTITION BY plan ORDER BY number
                    ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), 0)::BIGINT AS later_bytes,
                max("last") FILTER (goes) OVER (PARTITION BY plan) AS dropped_through,
                retention_ms >= 0 AND coalesce(now // 1000 - since_ms > retention_ms, false) AS is_old,
                retention_bytes >= 0 AND later_bytes >= retention_bytes AS is_beyond
            FROM told JOIN plans USING (plan)"""
        )
    counted = duck.dicts(
        """SELECT plan, count_if(goes) AS dropped, count_if(NOT goes AND records > 0) AS staying,
            coalesce(sum(records) FILTER (goes), 0)::BIGINT AS records_in
        FROM plans LEFT JOIN segments USING (plan) GROUP BY plan"""
    )
    return {row.pop("plan"): row for row in counted}
