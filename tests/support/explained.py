"""A key's records in a table under test."""

from collections.abc import Mapping

from firnlake.clock import from_ms
from firnlake.iceberg.catalog import Lake
from firnlake.table import records
from tests.support.lakes import TABLE, Row, row

HOUR = 3_600_000
NEVER_FULL = {"firn.min.cleanable.dirty.ratio": "1", "firn.full.interval.ms": "-1", "firn.tombstone.fraction": "1"}


def create(lake: Lake, properties: Mapping[str, str]) -> None:
    records.create(lake, TABLE, properties)


def dead(offset: int, horizon_ms: int | None = None, level: int | None = None) -> Row:
    """A tombstone, stamped when it has a horizon."""
    return row(offset, value=None, level=level, delete_horizon=None if horizon_ms is None else from_ms(horizon_ms))
