"""R23: what Airflow's form and its question promise: a dry run changes nothing, what was shown is what is published.

A server that does not answer in time fails an assertion: only `pytest.fail` is the finding.
"""

import os
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from firnlake.airflow.configuration import dag_id_of
from firnlake.compact.compact import compact
from firnlake.engine.engine import Engine
from firnlake.job.garbage import collect
from firnlake.job.stage import Stage, stages_of
from firnlake.lanes import Lane
from firnlake.plan.make import plan_table
from infra.foreign.files import files_under, on_disk
from tests.airflow.conftest import LocalAirflow
from tests.airflow.running.tables import CLEARED, DRY, OLD
from tests.airflow.server import Server, answer, ended, question, trigger
from tests.support.topics import NOW

pytestmark = pytest.mark.nightly

ASKING = {"lane": "full", "force": True, "ask": True}
MAINTAIN = "firn_maintain"
HOURS_20 = 20 * 3_600  # seconds: a person may take so long to answer, and a job is published within a day
LANE = ["full.plan", "full.jobs.compact", "full.jobs.validate"]


def asking(airflow: LocalAirflow, server: Server, table: str) -> str:
    """The id of a run that waits for an answer, of a table with something to clean."""
    airflow.land(table, {0: ["a=1", "b=1"]}, {0: ["a=2"]})
    dag_id = dag_id_of(table)
    run_id = trigger(server, dag_id, ASKING)
    assert "| orders-0 | 3 | 2 | 1 superseded |" in question(server, dag_id, run_id)["body"]
    return run_id


def publish(server: Server, table: str, run_id: str) -> None:
    """Answer `Publish`, and wait for the end of the run."""
    answer(server, dag_id_of(table), run_id, "Publish")
    ended(server, dag_id_of(table), run_id)


@pytest.fixture
def unmaintained(server: Server) -> Iterator[None]:
    """The hourly maintenance, which discards stages, does not run meanwhile."""
    server.until(lambda: all(run["state"] in ("success", "failed") for run in server.runs(MAINTAIN)))
    server.call(f"/api/v2/dags/{MAINTAIN}", "PATCH", {"is_paused": True})
    yield
    server.unpause(MAINTAIN)


@pytest.mark.usefixtures("unmaintained")
def test_r23_a_dry_run_discards_no_stage(airflow: LocalAirflow, engine: Engine) -> None:
    airflow.land(DRY, {0: ["a=1", "b=1"]}, {0: ["a=2"]})
    compact(airflow.lake, plan_table(airflow.lake, DRY, Lane.FULL, NOW, force=True), engine)
    airflow.lake.table(DRY).delete("offset < 2")
    before = stages_of(airflow.lake, DRY)
    airflow.run(DRY, {"dry_run": True})
    assert (len(before), stages_of(airflow.lake, DRY)) == (1, before)


def test_r23_an_approval_keeps_its_stage(airflow: LocalAirflow, server: Server) -> None:
    run_id = asking(airflow, server, OLD)
    (name,) = stages_of(airflow.lake, OLD)
    for path in files_under(on_disk(Stage.load(airflow.lake, name).location)):
        os.utime(path, (path.stat().st_atime - HOURS_20, path.stat().st_mtime - HOURS_20))
    collect(airflow.lake, OLD)
    publish(server, OLD, run_id)
    assert airflow.levels(OLD) == {0: [3]}


def test_r23_a_plan_that_nobody_was_shown_is_not_published(airflow: LocalAirflow, server: Server) -> None:
    run_id = asking(airflow, server, CLEARED)
    airflow.land(CLEARED, {1: ["x=1", "y=1"]}, {1: ["x=2"]})
    dag = f"/api/v2/dags/{dag_id_of(CLEARED)}"
    tasks = {
        "dag_run_id": run_id,
        "task_ids": LANE,
        "only_failed": False,
        "dry_run": False,
        "include_downstream": False,
    }
    server.post_when_free(f"{dag}/clearTaskInstances", tasks, HTTPStatus.INTERNAL_SERVER_ERROR)
    server.until(lambda: len(stages_of(airflow.lake, CLEARED)) > 1)
    validated = f"{dag}/dagRuns/{run_id}/taskInstances/full.jobs.validate/0"
    server.until(lambda: server.call(validated)["state"] == "success")
    publish(server, CLEARED, run_id)
    assert airflow.levels(CLEARED)[1] == [0, 0]
