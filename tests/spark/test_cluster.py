"""Executors of a cluster whose Python has Firn and its packages, as from an image, or has none of them."""

import os
import shutil
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.environment import CHECKOUT
from tests.support.commands import firn
from tests.support.masters import cluster, run_on
from tests.support.topics import Topic, updates

pytestmark = pytest.mark.nightly

PYTHON = "spark.sql.execution.pyspark.python"
IMAGE = {
    PYTHON: sys.executable,
    "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(CHECKOUT / "pipeline"), str(CHECKOUT / "expectations")]),
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Large, so it does not stay."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)  # Spark removes files of its own at the same time


def test_three_executors_of_which_one_is_killed(folder: Path) -> None:
    settings = IMAGE | {"spark.driver.maxResultSize": "2m"}
    run_on(folder, "Contract or c2 or another or cluster", **cluster(folder, 3, 2048, settings))


def test_c26_an_executor_without_packages_is_one_line(topic: Topic, folder: Path) -> None:
    """The contract, which the other test runs on a cluster, has an executor with another version of Firn."""
    venv.create(folder / "python", symlinks=True)
    bare = {PYTHON: str(folder / "python" / "bin" / "python")}
    topic.land(updates("a=1"), updates("a=2"))
    ran = firn(topic.lake, "run", topic.table, "--engine", "spark", variables=cluster(folder, 1, 1024, bare))
    assert ran.returncode == 1, ran.stderr
    (line,) = (line for line in ran.stderr.splitlines() if "can't be used" in line)
    assert line.startswith("firn: a Spark worker can't be used: ModuleNotFoundError: No module named 'pyarrow'")
    assert "; allowed: workers with the driver's version of Firn, from an archive or an image" in line
