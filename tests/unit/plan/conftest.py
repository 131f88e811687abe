"""A topic with transactions."""

from pathlib import Path

import pytest

from firnlake.iceberg.catalog import Lake
from tests.support.transactional import Log


@pytest.fixture
def log(lake: Lake, tmp_path: Path) -> Log:
    return Log(lake, tmp_path)
