"""Runs that people start, answer, backfill and mend, in an Airflow that runs: through the API that its UI uses."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError

import psutil
import pytest

from firnlake.airflow.configuration import dag_id_of
from firnlake.inspect.status import read
from firnlake.job.outcomes import retry
from firnlake.job.stage import stages_of
from infra.foreign.files import on_disk
from tests.airflow.conftest import LocalAirflow
from tests.airflow.running.tables import ASKED, CUT_OFF, DOWN, FILLED, KILLED, QUIET, TORN
from tests.airflow.server import Server, answer, ended, question, trigger

pytestmark = pytest.mark.nightly

HEARTBEATS = 40  # seconds in which a task hears that it shall end; less than Spark looks for a master
TWO_BATCHES = ({0: ["a=1", "b=1"], 1: ["x=1"]}, {0: ["a=2", "b="], 1: ["x=2"]})
FULL = {"lane": "full", "force": True}


def tasks(server: Server, dag_id: str, run_id: str) -> dict[str, str]:
    """The state of every task of a run; mapped ones with their names."""
    found = server.call(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances?limit=200")["task_instances"]
    return {
        f"{one['task_id']} {one['rendered_map_index'] or ''}".strip(): one["state"] for one in found if one["state"]
    }


def driver(server: Server, dag_id: str, run_id: str) -> psutil.Process | None:
    """The process of the task that compacts in lane `full`, which is Spark's driver; None while it does not run."""
    found = server.call(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances?limit=200")["task_instances"]
    pids = [one["pid"] for one in found if one["task_id"] == "full.jobs.compact" and one["state"] == "running"]
    return psutil.Process(pids[0]) if pids and pids[0] else None


@pytest.mark.parametrize(
    ("dag_id", "conf", "said"),
    [
        (dag_id_of(QUIET), {"lane": "fastest"}, "'fastest' is not one of"),
        (dag_id_of(QUIET), {"force": "yes"}, "'yes' is not of type 'boolean'"),
        (dag_id_of(QUIET), {"topics": "orders"}, "'orders' is not of type"),
        ("firn_maintain", {"tables": ["no.such"]}, "'no.such' is not one of"),
    ],
)
def test_c26_wrong_params_start_nothing(server: Server, dag_id: str, conf: dict[str, object], said: str) -> None:
    with pytest.raises(HTTPError) as caught:
        trigger(server, dag_id, conf)
    assert caught.value.code == 400
    assert said in caught.value.read().decode()


def test_c26_what_is_not_there_fails_the_task_at_once_and_is_named(server: Server) -> None:
    dag_id = dag_id_of(QUIET)
    run_id = trigger(server, dag_id, {"lane": "full", "topics": ["order"]})
    assert ended(server, dag_id, run_id) == "failed"
    assert tasks(server, dag_id, run_id)["full.plan"] == "failed"
    path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/full.plan"
    assert server.call(path)["try_number"] == 1
    assert "table t.quiet has no topic order; found: none" in str(server.call(f"{path}/logs/1?full_content=true"))


def test_a_run_asks_before_it_publishes(airflow: LocalAirflow, server: Server) -> None:
    """It waits in no worker slot, with the figures; what is rejected is not published. (In a browser it is not.)

    Who takes longer than ``deadline_minutes`` to answer is told of.
    """
    dag_id = dag_id_of(ASKED)
    airflow.land(ASKED, *TWO_BATCHES)
    before = airflow.seen(ASKED)

    run_id = trigger(server, dag_id, FULL | {"ask": True})
    found = question(server, dag_id, run_id)
    assert "| orders-0 | 4 | 2 | 2 superseded |" in found["body"]
    assert found["body"].count("| passed |") == 2
    assert "/firn/reports/tables/t.asked.html)" in found["body"]
    assert tasks(server, dag_id, run_id)["full.publish"] == "awaiting_input"
    assert airflow.seen(ASKED) == before
    late = airflow.home / "late.txt"
    server.until(late.exists)
    assert late.read_text() == "t.asked: a run has not finished after 1 minute (deadline_minutes)"
    answer(server, dag_id, run_id, "Reject")
    assert ended(server, dag_id, run_id) == "success"
    assert tasks(server, dag_id, run_id)["full.publish"] == "skipped"
    assert airflow.seen(ASKED) == before
    assert stages_of(airflow.lake, ASKED) == []


def test_a_backfill_cleans_as_of_its_dates_and_does_nothing_twice(airflow: LocalAirflow, server: Server) -> None:
    dag_id = dag_id_of(FILLED)
    server.unpause(dag_id)
    # The schedule's own run, for midnight, has nothing to do yet: later it would do the work of the others.
    (run,) = server.until(lambda: server.runs(dag_id))
    assert ended(server, dag_id, run["dag_run_id"]) == "success"
    airflow.land(FILLED, *TWO_BATCHES)
    # Longer than the dates are apart: else the tombstone's time would be up at the second, which is work.
    airflow.lake.set_properties(FILLED, {"firn.delete.retention.ms": str(10 * 86_400_000)})
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    dates = [today - timedelta(days=2), today - timedelta(days=1)]
    body = {
        "dag_id": dag_id,
        "from_date": dates[0].isoformat(),
        "to_date": dates[1].isoformat(),
        "max_active_runs": 2,
        "dag_run_conf": {"lane": "full"},
    }
    server.post_when_free("/api/v2/backfills", body, HTTPStatus.SERVICE_UNAVAILABLE)

    def filled() -> list[dict[str, Any]]:
        found = [run for run in server.runs(dag_id) if run["run_type"] == "backfill"]
        return found if len(found) == 2 and all(run["state"] in ("success", "failed") for run in found) else []

    runs = server.until(filled)
    assert {run["logical_date"][:10] for run in runs} == {str(date.date()) for date in dates}
    assert [run["state"] for run in runs] == ["success", "success"]
    # Both at a time, and one left nothing to do for the other.
    every = {run["logical_date"]: tasks(server, dag_id, run["dag_run_id"]) for run in runs}
    (worked,) = (date for date, states in every.items() if states.get("full.plan") == "success")
    # The tombstone's time counts from the date of the run that found it clean, plus delete.retention.ms.
    rows = airflow.lake.table(FILLED).scan().to_arrow().to_pylist()
    (horizon,) = (row["delete_horizon"] for row in rows if row["value"] is None)
    assert horizon == datetime.fromisoformat(worked) + timedelta(days=10)


def test_who_mends_what_was_refused_says_retry(airflow: LocalAirflow, server: Server) -> None:
    """C20, C25: the topic partition that failed waits and goes on later, the one that was published stays as it is."""
    dag_id = dag_id_of(TORN)
    airflow.land(TORN, *TWO_BATCHES)
    files = [task.file for task in airflow.lake.table(TORN).scan().plan_files()]
    torn = next(on_disk(file.file_path) for file in files if file.partition[1] == 1)
    whole = torn.read_bytes()
    torn.write_bytes(whole[: len(whole) // 2])

    assert ended(server, dag_id, trigger(server, dag_id, FULL)) == "failed"
    assert airflow.levels(TORN) == {0: [3], 1: [0, 0]}
    published = airflow.lake.table(TORN).metadata.current_snapshot_id
    assert "orders-1 (full): " in (airflow.home / "notice.txt").read_text()

    torn.write_bytes(whole)
    assert [str(marker.plan.topic_partition) for marker in retry(airflow.lake, TORN)] == ["orders-1"]
    assert ended(server, dag_id, trigger(server, dag_id, {"lane": "full"})) == "success"
    assert airflow.levels(TORN) == {0: [3], 1: [3]}
    history = airflow.lake.table(TORN).history()
    assert history[-2].snapshot_id == published  # one more commit, for the other topic partition


def test_a_driver_that_is_killed_is_tried_again(airflow: LocalAirflow, server: Server) -> None:
    dag_id = dag_id_of(KILLED)
    airflow.land(KILLED, *TWO_BATCHES)
    run_id = trigger(server, dag_id, FULL)

    server.until(lambda: driver(server, dag_id, run_id)).kill()
    assert ended(server, dag_id, run_id) == "success"
    assert airflow.levels(KILLED) == {0: [3], 1: [3]}
    compacted = server.call(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/full.jobs.compact/0")
    assert compacted["try_number"] == 2


def test_a_catalog_that_is_down_for_a_while_costs_tries_and_no_run(airflow: LocalAirflow, server: Server) -> None:
    """Down when a lane is planned, and again when Spark starts."""
    dag_id = dag_id_of(CUT_OFF)
    airflow.land(CUT_OFF, *TWO_BATCHES)

    def tried_again(task_id: str, index: int = -1) -> bool:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/{index}"
        found = server.call(path)
        return bool(found["state"] == "up_for_retry" or found["try_number"] > 1)

    with outage(airflow):
        run_id = trigger(server, dag_id, FULL)
        server.until(lambda: tried_again("full.plan"))
    server.until(lambda: driver(server, dag_id, run_id))
    with outage(airflow):
        server.until(lambda: tried_again("full.jobs.compact", 0))
    assert ended(server, dag_id, run_id) == "success"
    assert airflow.levels(CUT_OFF) == {0: [3], 1: [3]}


@contextmanager
def outage(airflow: LocalAirflow) -> Iterator[None]:
    """The catalog can't be reached meanwhile: there is a folder where its database should be."""
    database = airflow.home / "catalog.db"
    aside = database.rename(airflow.home / "aside.db")
    database.mkdir()
    try:
        yield
    finally:
        database.rmdir()
        aside.rename(database)


def test_killing_the_task_kills_its_spark_application(airflow: LocalAirflow, server: Server) -> None:
    """The master never answers: the driver would wait for it for a minute."""
    dag_id = dag_id_of(DOWN)
    airflow.land(DOWN, *TWO_BATCHES)
    before = airflow.seen(DOWN)
    run_id = trigger(server, dag_id, FULL)
    task = server.until(lambda: driver(server, dag_id, run_id))
    running = [task, *server.until(task.children)]
    path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/full.jobs.compact/0"
    server.call(path, "PATCH", {"new_state": "failed"})
    assert psutil.wait_procs(running, timeout=HEARTBEATS)[1] == []
    assert ended(server, dag_id, run_id) == "failed"
    assert airflow.seen(DOWN) == before


def test_maintenance_keeps_every_page_up_to_date(airflow: LocalAirflow, server: Server) -> None:
    run_id = trigger(server, "firn_maintain", {"tables": [KILLED, QUIET]})
    assert ended(server, "firn_maintain", run_id) == "success"
    found = tasks(server, "firn_maintain", run_id)
    assert {name for name in found if name.startswith("look_after")} == {f"look_after {KILLED}", f"look_after {QUIET}"}
    overview = read(airflow.home, QUIET)
    assert overview is not None
    assert overview.snapshot_id == airflow.lake.table(QUIET).metadata.current_snapshot_id
