"""Tests in a process of its own, because a process has one Spark session."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

from infra.environment import CHECKOUT, FOREIGN, SOURCES

CLUSTER = "local-cluster"
MODULE = "tests/spark/on_master.py"


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
