"""A table that somebody upserts into."""

import pytest

from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from tests.support.upserts import Upserts, upserts


@pytest.fixture
def table(lake: Lake, engine: Engine) -> Upserts:
    """Partitioned, adopted, with nothing in it."""
    return upserts(lake, engine)
