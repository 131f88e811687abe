"""Firn's tasks on a Spark Connect server: the same engine, and no JVM in this process."""

from pathlib import Path

import pytest

from infra.spark_server import serving
from tests.support.masters import run_on

pytestmark = pytest.mark.nightly


def test_c20_map_and_a_worker_that_dies(tmp_path: Path) -> None:
    with serving(tmp_path, "local[2]") as address:
        run_on(tmp_path, "not cluster", SPARK_REMOTE=address)
