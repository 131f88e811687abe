"""A table that somebody upserts into."""

import pytest

from pipeline.engine import Engine
from pipeline.lake import Lake
from tests.support.upserts import Upserts, upserts


@pytest.fixture
def table(lake: Lake, engine: Engine) -> Upserts:
    """Partitioned, adopted, with nothing in it."""
    return upserts(lake, engine)
