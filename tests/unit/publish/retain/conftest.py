"""A table with retention, and a plan that drops what is past it."""

import pytest

from pipeline.lake import Lake, records
from pipeline.plan import Plan
from tests.support.lakes import TABLE
from tests.support.retained import DELETE, HOUR, land, plans


@pytest.fixture
def table(lake: Lake) -> str:
    """An empty table that keeps records for an hour."""
    records.create(lake, TABLE, DELETE)
    return TABLE


@pytest.fixture
def plan(lake: Lake, table: str) -> Plan:
    """Drops the first two of four segments of orders-0: offsets 0 to 3 of 0 to 7."""
    land(lake, 3 * HOUR, 2 * HOUR, 0, 0)
    (made,) = plans(lake)
    return made
