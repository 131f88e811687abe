"""A topic with retention, records of any age in it, and the plans that drop them."""

from typing import Any

from firnlake.clock import from_ms
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.plan.make import plan_table
from tests.support.lakes import NOW, TABLE, Row, append, row

HOUR = 3_600_000
DELETE = {"firn.cleanup.policy": "delete", "firn.retention.ms": str(HOUR)}


def aged(offset: int, age: int = 0, **others: Any) -> Row:
    """A record of orders-0 with a key of its own, ``age`` milliseconds old."""
    return row(offset, b"%d" % offset, timestamp=from_ms(NOW - age), **others)


def land(lake: Lake, *ages: int, start: int = 0, **others: Any) -> None:
    """A segment of two records for each age, one after the other."""
    for number, age in enumerate(ages):
        first = start + 2 * number
        append(lake, [aged(first, age, **others), aged(first + 1, age, **others)])


def change(lake: Lake, **properties: str) -> None:
    """Change ``firn.`` properties online, underscores standing for dots."""
    with lake.table(TABLE).transaction() as transaction:
        transaction.set_properties({f"firn.{name.replace('_', '.')}": value for name, value in properties.items()})


def plans(lake: Lake, now_ms: int = NOW) -> list[Plan]:
    return plan_table(lake, TABLE, Lane.RETAIN, now_ms)
