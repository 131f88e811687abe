"""Executors get Firn from the archive that `firn spark pack` writes, and have nothing but Python besides."""

import shutil
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from firnlake.engine.pack import pack
from tests.support.commands import firn
from tests.support.masters import cluster, run_on
from tests.support.topics import Topic, updates

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Large, so it does not stay."""
    made = tmp_path_factory.mktemp("cluster")
    yield made
    shutil.rmtree(made, ignore_errors=True)  # Spark removes files of its own at the same time


@pytest.fixture(scope="module")
def settings(folder: Path) -> dict[str, str]:
    """The archive's settings, for a Python without packages."""
    archive = pack(folder / "firn.zip", level=0)
    venv.create(folder / "python", symlinks=True)
    return archive.settings | {"spark.sql.execution.pyspark.python": str(folder / "python" / "bin" / "python")}


def test_three_executors_of_which_one_is_killed(folder: Path, settings: dict[str, str]) -> None:
    run_on(
        folder,
        "Contract or c2 or another or cluster",
        **cluster(folder, 3, 2048, settings | {"spark.driver.maxResultSize": "2m"}),
    )


def test_c26_an_executor_without_the_archive_is_one_line(topic: Topic, folder: Path, settings: dict[str, str]) -> None:
    """The contract, which the other test runs on a cluster, has an executor with another version of Firn."""
    given = {name: value for name, value in settings.items() if name != "spark.archives"}
    topic.land(updates("a=1"), updates("a=2"))
    ran = firn(topic.lake, "run", topic.table, "--engine", "spark", variables=cluster(folder, 1, 1024, given))
    assert ran.returncode == 1, ran.stderr
    (line,) = (line for line in ran.stderr.splitlines() if "can't be used" in line)
    assert line.startswith("firn: a Spark worker can't be used: ModuleNotFoundError: No module named 'pyarrow'")
    assert "; allowed: the driver's Firn and Python on every worker, from the archive that `firn spark pack`" in line
