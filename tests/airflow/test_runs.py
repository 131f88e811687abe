"""DAG runs from end to end: real Airflow tasks, a real Spark, a real catalog."""

import re
import socket
from collections.abc import Iterator

import pytest

from firnlake.job.outcomes import failed_plans
from firnlake.job.stage import stages_of
from tests.airflow.conftest import TABLES, LocalAirflow

pytestmark = pytest.mark.nightly

FOUR_BATCHES = (
    {0: ["a=1", "b=1"], 1: ["x=1"]},
    {0: ["a=2"], 1: ["x=2", "y=1"]},
    {0: ["b="], 1: ["y=2"]},
    {0: ["a=3", "c=1"], 1: ["x=3"]},
)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)  # nobody reads before the run has ended
        found.bind(("127.0.0.1", 0))
        found.settimeout(0.2)
        yield found


def heard(listener: socket.socket) -> dict[str, float]:
    """The gauges among what has arrived, by name."""
    found: dict[str, float] = {}
    while True:
        try:
            lines = listener.recv(65_535).decode().splitlines()
        except TimeoutError:
            return found
        for line in lines:
            name, _, rest = line.partition(":")
            value, _, kind = rest.partition("|")
            if kind.startswith("g"):
                found[name] = float(value)


def test_nothing_due_is_green_and_sends_kafkas_gauges(airflow: LocalAirflow, listener: socket.socket) -> None:
    """No task starts for a lane without work. Gauges go to what listens to Airflow's own StatsD."""
    run = airflow.run(
        "t.idle",
        AIRFLOW__METRICS__STATSD_ON="True",
        AIRFLOW__METRICS__STATSD_HOST="127.0.0.1",
        AIRFLOW__METRICS__STATSD_PORT=str(listener.getsockname()[1]),
        AIRFLOW__METRICS__STATSD_PREFIX="airflow",
    )
    assert run.succeeded, run.errors
    assert run.states == {
        "turn": "success",
        "due": "success",
        "report": "success",
        "verdict": "success",
        "sweep": "success",
    }
    gauges = heard(listener)
    for scope in ("firn", "firn.t.idle"):
        assert gauges[f"airflow.{scope}.max-dirty-percent"] == 0
        assert gauges[f"airflow.{scope}.uncleanable-partitions-count"] == 0
        assert gauges[f"airflow.{scope}.max-compaction-delay-secs"] == 0


def test_all_lanes_run_and_the_newest_records_stay(airflow: LocalAirflow) -> None:
    """C3: the newest record of every key, whatever level it came through; C13, C14 and C16 one after the other."""
    airflow.land("t.busy", *FOUR_BATCHES)
    # Without it, `full` would take all segments, and the other lanes would leave them to it.
    airflow.lake.set_properties("t.busy", {"firn.min.cleanable.dirty.ratio": "1", "firn.full.interval.ms": "-1"})
    before = airflow.seen("t.busy")

    dry = airflow.run("t.busy", {"dry_run": True})
    assert dry.succeeded
    assert "orders-0 merge: 4 segments" in dry.log
    assert airflow.seen("t.busy") == before

    # Without a connection: Spark runs in the task.
    run = airflow.run("t.busy")
    assert run.succeeded, run.errors
    skipped = {task for task, state in run.states.items() if state == "skipped"}
    assert skipped == {"tier.plan", "full.plan"}  # `clean` left one run
    planned = {task for task in run.states if task.endswith(".plan")}
    assert planned - skipped == {"merge.plan", "clean.plan"}
    assert set(run.states.values()) == {"skipped", "success"}
    assert airflow.levels("t.busy") == {0: [2], 1: [2]}
    # Once for each lane's task, which share a process here.
    assert len(re.findall(r"Spark application local-\d+ on local\[\*\]", run.log)) == 2

    by_hand = airflow.run("t.busy", {"lane": "full", "force": True})
    assert by_hand.succeeded, by_hand.errors
    assert airflow.levels("t.busy") == {0: [3], 1: [3]}
    assert airflow.seen("t.busy") == {
        0: [(3, "b", None), (4, "a", "3"), (5, "c", "1")],  # the tombstone stays until its horizon (C9)
        1: [(3, "y", "2"), (4, "x", "3")],
    }
    assert (airflow.lake.reports_folder / "index.html").exists()
    assert stages_of(airflow.lake, "t.busy") == []
    assert [one for one in airflow.lake.all_tables() if one.startswith("t.")] == sorted(TABLES)  # no stage is left


def test_c19_what_is_past_retention_is_dropped_without_spark(airflow: LocalAirflow) -> None:
    airflow.land("t.old", *FOUR_BATCHES)
    with airflow.lake.table("t.old").transaction() as transaction:
        transaction.set_properties({"firn.cleanup.policy": "delete"})
    run = airflow.run("t.old", {"lane": "retain"})
    assert run.succeeded, run.errors
    assert {task: state for task, state in run.states.items() if state == "success"}.keys() == {
        "turn",
        "due",
        "retain.plan",
        "retain.jobs.compact",
        "retain.jobs.validate",
        "retain.publish",
        "report",
        "verdict",
        "sweep",
    }
    # Records carry their offsets as timestamps, so all of them are old; the log end stays (C4).
    assert airflow.seen("t.old") == {0: [(4, "a", "3"), (5, "c", "1")], 1: [(4, "x", "3")]}
    assert stages_of(airflow.lake, "t.old") == []


def test_a_refused_topic_partition_is_red_once(airflow: LocalAirflow) -> None:
    """C20: offset 0 of orders-1 is landed twice with different records, which no second try will change."""
    airflow.land("t.refused", *FOUR_BATCHES)
    airflow.land("t.refused", {1: ["x=another"]})

    run = airflow.run("t.refused", {"lane": "full"})
    assert not run.succeeded
    assert airflow.levels("t.refused") == {0: [3], 1: [0, 0, 0, 0, 0]}
    (failed_plan,) = failed_plans(airflow.lake, "t.refused")
    assert failed_plan.reason in run.errors["verdict"]

    again = airflow.run("t.refused", {"lane": "full"})
    assert again.succeeded, again.errors
    assert again.states["full.plan"] == "skipped"
    assert "orders-1 full waits: its plan failed in" in again.log
    assert failed_plans(airflow.lake, "t.refused") == [failed_plan]  # the sweep leaves it


def test_c20_what_waits_for_a_person_is_red_once(airflow: LocalAirflow) -> None:
    """Another client has set a wrong value, so there is no plan that could fail."""
    airflow.land("t.waits", *FOUR_BATCHES)
    airflow.lake.set_properties("t.waits", {"firn.topic.orders.retention.ms": "7 years"})
    runs = [airflow.run("t.waits") for _ in range(2)]
    assert [run.succeeded for run in runs] == [False, True]
    assert "orders-1 waits for a person: table t.waits: property firn.topic.orders" in runs[0].errors["verdict"]
    assert "2 of 2 topic partitions wait for a person" in runs[1].log


def test_nothing_is_planned_without_the_turn(airflow: LocalAirflow) -> None:
    """The wait for another run has ended, as when somebody marks it as a success, and it still has the turn."""
    airflow.land("t.turnless", *FOUR_BATCHES)
    before = airflow.levels("t.turnless")
    run = airflow.run("t.turnless", marked="turn", AIRFLOW_VAR_FIRN__T__TURNLESS="another run")
    assert run.succeeded, run.errors
    assert {state for task, state in run.states.items() if task.endswith(".plan")} == {"skipped"}
    assert "it is not the turn of this run" in run.log
    assert airflow.levels("t.turnless") == before
    again = airflow.run("t.turnless")
    assert again.succeeded, again.errors
    assert airflow.levels("t.turnless") != before


def test_a_connection_that_a_table_names_has_to_be_there(airflow: LocalAirflow) -> None:
    airflow.land("t.elsewhere", *FOUR_BATCHES)
    run = airflow.run("t.elsewhere")
    assert not run.succeeded
    assert run.states["full.plan"] == "failed"
    assert "the connection spark_elsewhere does not exist" in run.errors["full.plan"]
