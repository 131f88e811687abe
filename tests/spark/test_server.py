"""The Spark Connect server that the commands of a run share: one server, one session, and no process left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from firnlake.engine import server
from infra.environment import CHECKOUT, SOURCES
from tests.support.waiting import until

WORK = """
import json, os, sys, time
from firnlake.engine import server
from firnlake.engine.choice import Engines
from firnlake.engine.session import start
from firnlake.errors import FirnError
from pathlib import Path
from tests.support.engine_contract import square

def sleep_in(folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)

def worker(_):
    return os.getppid()

told = []
try:
    if "IDLE" in os.environ:
        server.join(Path(os.environ["FIRN_SPARK_SERVER"]), "firn test", float(os.environ["IDLE"]))
    with Engines("spark", "firn test", tell=told.append) as engines:
        engine = engines.of(0)
        if len(sys.argv) > 1:
            engine.map(sleep_in, [sys.argv[1]])
        found = {
            "told": told,
            "session": start("firn test").session_id,
            "daemons": engine.map(worker, [1, 2, 3]),
            "squares": engine.map(square, [2, 3]),
        }
    print(json.dumps(found))
except FirnError as error:
    sys.exit(str(error))
"""
SQUARES = [4, 9]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    one = tmp_path / "server"
    yield one
    server.stop(one)


def client(folder: Path, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
    """A process that runs tasks on the server of the folder."""
    own = {"FIRN_SPARK_SERVER": str(folder), "FIRN_SPARK_MASTER": "local[2]", "PYTHONPATH": SOURCES}
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    return subprocess.Popen(
        [sys.executable, "-c", WORK, *arguments],
        env=environment | own | variables,
        cwd=folder.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def found_by(process: "subprocess.Popen[str]") -> dict[str, object]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    found: dict[str, object] = json.loads(out.splitlines()[-1])
    return found


def processes(one: server.Server) -> list[psutil.Process]:
    """The server and all that it has started and that is alive."""
    leader = psutil.Process(one.pid)
    every = [leader, *leader.children(recursive=True)]
    return [process for process in every if process.status() != psutil.STATUS_ZOMBIE]


def test_two_processes_at_once_start_one_server_and_share_its_session(folder: Path) -> None:
    both = [client(folder), client(folder)]
    first, second = map(found_by, both)
    third = found_by(client(folder))
    assert first["squares"] == second["squares"] == third["squares"] == SQUARES
    assert first["session"] == second["session"] == third["session"]
    assert first["told"] == second["told"] == third["told"]
    assert first["daemons"] == second["daemons"] == third["daemons"]  # so workers are used again

    live = server.running(folder)
    assert live
    started = processes(live)
    assert [process.name() for process in started].count("java") == 1
    assert all(live.address.partition("token=")[2] not in " ".join(process.cmdline()) for process in started)
    server.stop(folder)
    _, left = psutil.wait_procs(started, timeout=10)
    assert left == []
    assert not folder.exists()


def test_a_killed_client_leaves_neither_its_job_nor_in_the_end_the_server(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    killed = client(folder, str(tmp_path / "workers"), IDLE="45")
    until(lambda: list((tmp_path / "workers").iterdir()), 120)
    (worker,) = (int(path.name) for path in (tmp_path / "workers").iterdir())
    live = server.running(folder)
    assert live
    started = processes(live)
    killed.kill()
    killed.communicate()
    until(lambda: not psutil.pid_exists(worker), 60)
    assert server.running(folder) == live  # not because the server ended
    _, left = psutil.wait_procs(started, timeout=60)
    assert left == []


def test_a_server_that_was_killed_leaves_no_jvm_and_is_started_anew(folder: Path) -> None:
    first = found_by(client(folder))
    live = server.running(folder)
    assert live
    started = processes(live)
    os.kill(live.pid, signal.SIGKILL)
    _, left = psutil.wait_procs(started, timeout=20)
    assert left == []
    assert found_by(client(folder))["told"] != first["told"]


def test_a_server_of_another_firn_is_replaced(folder: Path, tmp_path: Path) -> None:
    first = found_by(client(folder))
    live = server.running(folder)
    assert live
    shutil.copytree(CHECKOUT / "pipeline", tmp_path / "upgraded")
    (tmp_path / "upgraded" / "firnlake" / "more.py").touch()
    second = found_by(client(folder, PYTHONPATH=f"{tmp_path / 'upgraded'}{os.pathsep}{SOURCES}"))
    assert second["squares"] == SQUARES
    assert second["told"] != first["told"]
    assert not psutil.pid_exists(live.pid)


def test_a_session_that_has_ended_is_followed_by_another(folder: Path) -> None:
    found_by(client(folder))
    live = server.running(folder)
    assert live
    end = "import os; from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate().stop()"
    subprocess.run([sys.executable, "-c", end], env=os.environ | {"SPARK_REMOTE": live.address}, check=True)
    next_sessions = {str(found_by(client(folder))["session"]) for _ in range(2)}
    assert len(next_sessions) == 1
    assert next_sessions.isdisjoint({live.address.partition("session_id=")[2]})


def test_what_keeps_the_server_from_starting_is_told(folder: Path) -> None:
    process = client(folder, PYSPARK_SUBMIT_ARGS="--no-such-option pyspark-shell")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    *log, told = err.splitlines()
    assert "--no-such-option" in " ".join(log)
    assert told.startswith("Spark does not start on local[2]: its process has ended: ")
