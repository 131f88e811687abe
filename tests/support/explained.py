"""A key's records in a table under test."""

from firnlake.clock import from_ms
from tests.support.lakes import Row, row

HOUR = 3_600_000


def dead(offset: int, horizon_ms: int | None = None, level: int | None = None) -> Row:
    """A tombstone, stamped when it has a horizon."""
    return row(offset, value=None, level=level, delete_horizon=None if horizon_ms is None else from_ms(horizon_ms))
