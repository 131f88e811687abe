"""One workload on PostgreSQL's SQL catalog and on a REST catalog, both with an S3 warehouse, and on Spark's own cluster
manager, of which a worker dies, or the driver.
"""

from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from firnlake import clock
from firnlake.compact.compact import compact
from firnlake.door import OpenCatalog
from firnlake.engine.engine import LocalEngine
from firnlake.iceberg.branches import QUARANTINE, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import Kind
from firnlake.job.stage import open_stages
from firnlake.lanes import Lane
from firnlake.plan.make import plan_table
from firnlake.publish.publish import publish
from firnlake.validate.validate import validate
from infra.processes import members
from infra.stack.stack import REST, SQL, WORKERS, Stack
from tests.stack.workload import Workload
from tests.support.records import DAY

EXECUTOR = "CoarseGrainedExecutorBackend"
TWICE = range(2)


@pytest.mark.parametrize("catalog", [SQL, REST])
def test_killed_in_the_middle_then_run_beside_an_appender(stack: Stack, tmp_path: Path, catalog: str) -> None:
    """C22, C25: appenders never fail, nothing is lost or seen twice, and nothing is left lying about.

    Four days later the collector finds what a dead writer has left in the store, and nothing else.
    """
    workload = Workload(stack, catalog, "shop.orders", tmp_path / "home").create()
    workload.land(8)
    with workload.firn("run", workload.table, "--until-idle") as killed:
        killed.wait_until(workload.staged_files)
        killed.kill()
    workload.check()
    with workload.firn("run", workload.table, "--until-idle") as running:
        with workload.appending():
            before = workload.published()
            running.wait_until(lambda: workload.published() >= before + 2)
            running.note_command_lines()
        assert running.ended() == 0, running.output
    workload.check_clean()
    quarantine = on_branch(workload.loaded(), QUARANTINE)
    quarantined = quarantine.scan().to_arrow().to_pylist()
    assert [(row["partition"], row["offset"], row["key"]) for row in quarantined] == [(0, 3, None)]
    left = workload.leave_behind()
    later_ms = clock.now_ms() + 4 * DAY
    later = OpenCatalog(workload.lake, lambda: later_ms).table(workload.table)
    shown = later.maintain(dry_run=True)
    # A clock that is ahead makes no file old: its age counts by the store's clock.
    assert [one for one in shown if one.goes and one.kind is Kind.STAGE] == []
    assert later.maintain() == shown
    assert left in workload.staged_files()
    workload.check()
    assert workload.leaks() == []


@pytest.mark.parametrize("catalog", [SQL, REST])
def test_each_step_on_a_machine_of_its_own(stack: Stack, tmp_path: Path, catalog: str) -> None:
    """C25: machines share the catalog and the warehouse, and no folder. Two do each step, and it is done once."""
    workload, engine = Workload(stack, catalog, "shop.apart", tmp_path / "home").create(), LocalEngine()
    workload.land(8)

    def machine() -> Lake:
        return stack.lake(catalog, tmp_path / uuid4().hex)

    plans = plan_table(machine(), workload.table, Lane.FULL, clock.now_ms())
    stages = open_stages(machine(), plans)
    assert open_stages(machine(), plans) == stages
    for done in (
        *(compact(machine(), plans, engine) for _ in TWICE),
        *(validate(machine(), stages, engine) for _ in TWICE),
    ):
        assert [(one.plan_id, one.error) for one in done] == [(plan.id, None) for plan in plans]
    assert [{one.repeated for one in publish(machine(), stages)} for _ in TWICE] == [{False}, {True}]
    assert workload.published() == len(stages)
    workload.check_clean()


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
    doomed = cluster.start_worker(WORKERS + 1)
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
