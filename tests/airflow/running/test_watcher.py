"""The watcher in a real triggerer: a crossed threshold starts the DAG, which says why it ran and what it did."""

import json
import time
from collections.abc import Callable

import pytest

from firnlake.airflow.configuration import dag_id_of
from tests.airflow.conftest import LocalAirflow, tear_manifest
from tests.airflow.running.tables import STUCK, TORN_WATCHED, UNWATCHED, WATCHED
from tests.airflow.server import Server, ended

DAG_ID = dag_id_of(WATCHED)


def test_a_crossed_threshold_starts_the_dag_and_publishing_tells_who_waits(
    airflow: LocalAirflow, server: Server, record_property: Callable[[str, object], None]
) -> None:
    only_merge(airflow, WATCHED)
    airflow.land(WATCHED, {0: ["a=1"]})
    cached = set(airflow.lake.cache_folder.rglob("*.arrow"))
    server.unpause(DAG_ID)
    # A watcher starts at the next parse after the DAG was unpaused.
    server.until(lambda: watching(server))
    # A look at the table leaves its segments in the cache.
    server.until(lambda: set(airflow.lake.cache_folder.rglob("*.arrow")) - cached)
    assert server.runs(DAG_ID) == []
    record_property("MiB resident of the triggerer's processes while it waits", server.resident("triggerer"))

    airflow.land(WATCHED, {0: ["a=2"]}, first=1)
    crossed = time.monotonic()
    (run,) = server.until(lambda: server.runs(DAG_ID))
    record_property("s from the crossing to the run", round(time.monotonic() - crossed, 1))
    assert run["run_type"] == "asset_triggered"
    # Airflow 3.3 can't list events while a run that one of them has made waits for its start.
    server.until(lambda: server.runs(DAG_ID)[0]["start_date"])
    (event,) = server.events_of(f"{WATCHED} is due")
    assert "orders-0 merge: 2 segments" in json.dumps(event)

    state = ended(server, DAG_ID, run["dag_run_id"])
    record_property("s from the crossing to everything published and reported", round(time.monotonic() - crossed, 1))
    assert state == "success"
    assert airflow.levels(WATCHED) == {0: [1]}
    told = [(event["lane"], event["records_in"], event["records_out"]) for event in server.events_of(WATCHED)]
    assert told == [("merge", 2, 2)]
    # What the run has done itself crosses nothing.
    assert len(server.runs(DAG_ID)) == 1


@pytest.mark.nightly
def test_what_is_crossed_while_there_is_no_triggerer_starts_the_dag_once(airflow: LocalAirflow, server: Server) -> None:
    dag_id = dag_id_of(UNWATCHED)
    only_merge(airflow, UNWATCHED)
    airflow.land(UNWATCHED, {0: ["a=1"]})
    server.unpause(dag_id)
    server.until(lambda: watching(server))
    server.kill("triggerer")
    airflow.land(UNWATCHED, {0: ["a=2"]}, first=1)
    server.start("triggerer")
    server.until(lambda: {run["state"] for run in server.runs(dag_id)} == {"success"})
    assert airflow.levels(UNWATCHED) == {0: [1]}
    assert [event["payload"]["crossed"] for event in server.events_of(f"{UNWATCHED} is due")] == [1]


@pytest.mark.nightly
def test_r19_beside_a_torn_table_nothing_is_fired_twice(airflow: LocalAirflow, server: Server) -> None:
    dag_id = dag_id_of(STUCK)
    airflow.land(TORN_WATCHED, {0: ["a=1"]})
    tear_manifest(airflow.lake, TORN_WATCHED)
    server.unpause(dag_id_of(TORN_WATCHED))
    server.unpause(dag_id)
    airflow.land(STUCK, {0: ["a=1"]})
    airflow.land(STUCK, {0: ["a=2"]}, first=1)
    server.until(lambda: len(server.runs(dag_id)) == 1)
    server.until(lambda: server.logs("triggerer", f"{TORN_WATCHED} can't be watched at the moment"))
    server.until(lambda: server.runs(dag_id)[0]["state"] == "failed")

    # What is crossed now is told, and not again what was due before.
    airflow.land(STUCK, {1: ["a=1"]})
    airflow.land(STUCK, {1: ["a=2"]}, first=1)
    server.until(lambda: len(server.runs(dag_id)) == 2)
    server.until(lambda: {run["state"] for run in server.runs(dag_id)} == {"failed"})
    events = [event["payload"] for event in server.events_of(f"{STUCK} is due")]
    assert [{reason.split(" ")[0] for reason in event["reasons"]} for event in events] == [{"orders-0"}, {"orders-1"}]


def watching(server: Server) -> bool:
    """True when the triggerer that was started last runs a trigger."""
    return server.logs("triggerer", "trigger ID")


def only_merge(airflow: LocalAirflow, table: str) -> None:
    """Nothing but `merge` can be due, with the second segment: the records are as old as 1970, and never cleaned."""
    no_clean = {"firn.clean.segments": "9"}
    no_full = {"firn.min.cleanable.dirty.ratio": "1", "firn.full.interval.ms": "-1"}
    airflow.lake.set_properties(table, no_clean | no_full)
