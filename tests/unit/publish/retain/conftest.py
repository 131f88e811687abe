"""A table with retention, and a plan that drops what is past it."""

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.job.plan import Plan
from firnlake.table import records
from tests.support.lakes import TABLE
from tests.support.retained import DELETE, HOUR, land, plans
from tests.support.templates import Templates


@pytest.fixture
def table(lake: Lake, templates: Templates) -> str:
    """An empty table that keeps records for an hour."""

    def make(lake: Lake) -> str:
        records.create(lake, TABLE, DELETE)
        return TABLE

    return templates.step(lake, "an hour", make)


@pytest.fixture
def plan(lake: Lake, table: str, templates: Templates) -> Plan:
    """Drops the first two of four segments of orders-0: offsets 0 to 3 of 0 to 7."""

    def make(lake: Lake) -> Plan:
        land(lake, 3 * HOUR, 2 * HOUR, 0, 0)
        (made,) = plans(lake)
        return made

    return templates.step(lake, "four segments", make)
