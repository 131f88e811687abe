"""Spark elsewhere: a cluster whose Python has Firn and its packages, as from an image, or has none of them; a Spark
Connect server. Each has a process of its own, because a process has one Spark session.
"""

import os
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest

from infra.environment import CHECKOUT, FOREIGN, SOURCES
from infra.spark_server import serving
from tests.support.commands import firn
from tests.support.topics import Topic, updates

pytestmark = pytest.mark.nightly

CLUSTER = "local-cluster"
MODULE = "tests/spark/on_master.py"
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


def run_on(folder: Path, keyword: str, **variables: str) -> None:
    """Run the tests of MODULE that match ``keyword`` on the Spark that ``variables`` name; none may fail."""
    options = ["-q", "-k", keyword, f"--basetemp={folder / 'pytest'}"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", MODULE, *options],
        env={**os.environ, **variables, "PYTHONPATH": SOURCES},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def cluster(folder: Path, executors: int, megabytes: int, settings: Mapping[str, str]) -> dict[str, str]:
    """Variables for a cluster of ``executors`` processes on this machine, each with one core, whose files are in
    ``folder``. Its Python workers have no package but by ``settings``.
    """
    home = folder / "spark"
    home.mkdir(exist_ok=True)
    for part in ("bin", "jars", "python"):  # Spark's executors write below SPARK_HOME
        if not (home / part).exists():
            (home / part).symlink_to(Path(pyspark.__file__).parent / part)
    quick = {
        "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),  # as the tests' other JVMs
    }
    given = quick | dict(settings)
    arguments = [f"--conf {shlex.quote(f'{name}={value}')}" for name, value in given.items()]
    return dict.fromkeys(FOREIGN, "") | {
        "FIRN_SPARK_MASTER": f"{CLUSTER}[{executors},1,{megabytes}]",
        "PYSPARK_SUBMIT_ARGS": " ".join([*arguments, "pyspark-shell"]),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(folder),
    }


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


def test_c20_a_connect_server(tmp_path: Path) -> None:
    with serving(tmp_path, "local[2]") as address:
        run_on(tmp_path, "not cluster", SPARK_REMOTE=address)
