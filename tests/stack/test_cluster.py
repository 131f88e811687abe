"""Firn on Spark's own cluster manager, of which a worker dies, or the driver."""

from pathlib import Path

import psutil
import pytest

from infra.processes import members
from infra.stack import servers
from infra.stack.settings import SQL
from infra.stack.stack import Stack
from tests.stack.workload import Workload

EXECUTOR = "CoarseGrainedExecutorBackend"


@pytest.fixture(scope="module")
def cluster(stack: Stack) -> Stack:
    """The stack with its Spark cluster."""
    stack.start_cluster()
    return stack


@pytest.fixture
def workload(cluster: Stack, tmp_path: Path, request: pytest.FixtureRequest) -> Workload:
    """A table of its own for each test, with enough to do for both workers."""
    master = cluster.settings.master
    table = f"cluster.{request.node.name}"
    made = Workload(cluster, SQL, table, tmp_path / "home", "spark", master).create()
    made.land(12)
    return made


def test_a_worker_that_is_killed_while_it_works(workload: Workload, cluster: Stack) -> None:
    """SIGKILL to a worker and its executor, as if the machine was gone: Spark gives its tasks to the others."""
    doomed = cluster.start_worker(servers.WORKERS + 1)
    with workload.firn("run", workload.table, "--until-idle") as running:
        running.wait_until(workload.staged_files)
        lost = members({doomed})
        executors = [process for process in lost if EXECUTOR in _command(process)]
        for process in lost:
            process.kill()
        assert running.ended() == 0, running.output
    assert executors
    workload.check_clean()


def test_a_driver_that_is_killed_while_it_works(workload: Workload) -> None:
    """C25: the next run discards what is half done. The dead driver's executors end by themselves."""
    with workload.firn("run", workload.table, "--until-idle") as killed:
        killed.wait_until(workload.staged_files)
        killed.kill()
    workload.check()
    workload.run("--until-idle")
    workload.check_clean()
    assert workload.leaks() == []


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""  # ended while we looked
