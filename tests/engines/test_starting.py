"""Spark as Firn starts it, and Spark elsewhere: a cluster whose Python has Firn and its packages, as from an image, or
has none of them; a Spark Connect server. Each has a process of its own, because a process has one Spark session.

One that can't start is told of soon, by one line that names the address and the cause (R29).
"""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from infra.environment import CHECKOUT, FOREIGN, SOURCES
from infra.processes import members, serving
from infra.processes import started as started_in
from tests.support.commands import firn
from tests.support.topics import Topic, updates

GIVES_UP_SECONDS = 180
"""Spark itself looks for a master that accepts connections for a minute; all other answers come within that."""
OF_THE_JVM = "WARNING: Using incubator modules: jdk.incubator.vector\n"
"""Java's answer to an option that Spark's launcher always adds; nothing takes it back."""
WORK = """
import json, os, sys
from firnlake.engine.engine import Engines
from firnlake.errors import FirnError

def worker(_):
    return os.getppid()

told = []
try:
    with Engines("spark", "firn test", tell=told.append) as engines:
        found = {"told": told, "daemons": engines.of(1).map(worker, [1, 2, 3]), "abs": engines.of(1).map(abs, [-1, -2])}
        if "SPARK_REMOTE" not in os.environ:
            from pyspark.sql import SparkSession
            found["settings"] = dict(SparkSession.builder.getOrCreate().sparkContext.getConf().getAll())
except FirnError as error:
    sys.exit(print(error))
print(json.dumps(found))
"""
STOPPED = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
SESSION = "session_id=11111111-1111-4111-8111-111111111111"

MODULE = "tests/engines/on_master.py"
PYTHON = "spark.sql.execution.pyspark.python"
IMAGE = {
    PYTHON: sys.executable,
    "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(CHECKOUT / "pipeline"), str(CHECKOUT / "expectations")]),
}


def started(within: float = 300, /, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A process that starts Spark and runs tasks, which may take so many seconds."""
    environment = os.environ | {"PYTHONPATH": SOURCES, **variables}
    command = [sys.executable, "-c", WORK]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=within)


def found_by(address: str) -> dict[str, Any]:
    """What a process finds that runs tasks on the server."""
    ran = started(300, SPARK_REMOTE=address)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.nightly
def test_it_has_no_jar_no_catalog_and_no_credential_and_is_quiet() -> None:
    own = {"FIRN_SPARK_MASTER": "local[2]", "PYICEBERG_CATALOG__SHOP__TOKEN": "open sesame", "PYSPARK_PYTHON": "/none"}
    ran = started(**own)
    assert (ran.returncode, ran.stderr) == (0, OF_THE_JVM)
    said = json.loads(ran.stdout)
    assert (said["abs"], len(said["told"])) == ([1, 2], 1)
    assert not {"spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"} & set(said["settings"])
    assert not [name for name in said["settings"] if "catalog" in name]
    assert "open sesame" not in ran.stdout


@pytest.mark.parametrize(
    ("variable", "scheme", "at", "said", "within"),
    [
        ("SPARK_REMOTE", "sc", "closed", "Connection refused", 60),
        ("SPARK_REMOTE", "sc", "silent", "no Spark Connect server answers there", 60),
        ("FIRN_SPARK_MASTER", "spark", "nowhere", "Name or service not known", 60),
        pytest.param("FIRN_SPARK_MASTER", "spark", "silent", STOPPED, GIVES_UP_SECONDS, marks=pytest.mark.nightly),
    ],
)
def test_r29_where_no_spark_answers(variable: str, scheme: str, at: str, said: str, within: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = "nowhere.invalid:7077" if at == "nowhere" else f"127.0.0.1:{listening.getsockname()[1]}"
        if at == "closed":
            listening.close()
        more = "/;token=open-sesame" if at == "closed" else ""
        told = started(within, **{variable: f"{scheme}://{address}{more}"}).stdout
    assert len(told.splitlines()) == 1
    assert f"{scheme}://{address}" in told
    assert said in told
    assert "open-sesame" not in told


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Large, so it does not stay."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)  # Spark removes files of its own at the same time


def run_on(folder: Path, keyword: str, **variables: str) -> None:
    """Run the tests of MODULE that match ``keyword`` on the Spark that ``variables`` name; none may fail."""
    command = [sys.executable, "-m", "pytest", MODULE, "-q", "-k", keyword, f"--basetemp={folder / 'pytest'}"]
    environment = os.environ | variables | {"PYTHONPATH": SOURCES}
    ran = subprocess.run(command, env=environment, cwd=CHECKOUT, capture_output=True, text=True, check=False)
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
    quick = {"spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", "")}  # as the tests' other JVMs
    arguments = [f"--conf {shlex.quote(f'{name}={value}')}" for name, value in {**quick, **settings}.items()]
    return dict.fromkeys(FOREIGN, "") | {
        "FIRN_SPARK_MASTER": f"local-cluster[{executors},1,{megabytes}]",
        "PYSPARK_SUBMIT_ARGS": " ".join([*arguments, "pyspark-shell"]),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(folder),
    }


@pytest.mark.nightly
def test_three_executors_of_which_one_is_killed(folder: Path) -> None:
    settings = IMAGE | {"spark.driver.maxResultSize": "2m"}
    run_on(folder, "Contract or c2 or another or cluster", **cluster(folder, 3, 2048, settings))


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_c20_a_connect_server(tmp_path: Path) -> None:
    """Each command has a session, unless the address names one; the end of the block ends the server."""
    with serving(tmp_path, "local[2]") as address:
        running = members(started_in(tmp_path))
        # Hadoop asks the shell for the user's groups, now and then.
        assert [process.name() for process in running if process.name() != "bash"] == ["java"]
        assert all(address.partition("token=")[2] not in " ".join(process.cmdline()) for process in running)
        run_on(tmp_path, "not cluster", SPARK_REMOTE=address)
        first, second = found_by(address), found_by(address)
        assert (first["abs"], first["told"], second["told"]) == ([1, 2], [], [])
        assert first["daemons"] != second["daemons"]
        first, second = found_by(f"{address};{SESSION}"), found_by(f"{address};{SESSION}")
        assert first["daemons"] == second["daemons"]
    assert [process for process in psutil.Process().children() if process in running] == []
