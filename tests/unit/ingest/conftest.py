"""Tables to adopt, empty."""

import pytest

from firnlake.iceberg.catalog import Lake
from tests.support.adopted import CDC, CDC_SCHEMA, EVENTS, EVENTS_SCHEMA, make


@pytest.fixture
def cdc(lake: Lake) -> str:
    make(lake, CDC, CDC_SCHEMA)
    return CDC


@pytest.fixture
def events(lake: Lake) -> str:
    make(lake, EVENTS, EVENTS_SCHEMA)
    return EVENTS
