"""Metrics as an installation gets them: Airflow's own StatsD, and something that listens."""

import socket
from collections.abc import Iterator

import pytest

from tests.airflow.conftest import LocalAirflow

pytestmark = pytest.mark.nightly

TABLE = "t.idle"


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


def test_a_run_sends_kafkas_gauges_though_nothing_is_due(airflow: LocalAirflow, listener: socket.socket) -> None:
    run = airflow.run(
        TABLE,
        AIRFLOW__METRICS__STATSD_ON="True",
        AIRFLOW__METRICS__STATSD_HOST="127.0.0.1",
        AIRFLOW__METRICS__STATSD_PORT=str(listener.getsockname()[1]),
        AIRFLOW__METRICS__STATSD_PREFIX="airflow",
    )
    assert run.succeeded, run.errors
    gauges = heard(listener)
    for scope in ("firn", f"firn.{TABLE}"):
        assert gauges[f"airflow.{scope}.max-dirty-percent"] == 0
        assert gauges[f"airflow.{scope}.uncleanable-partitions-count"] == 0
        assert gauges[f"airflow.{scope}.max-compaction-delay-secs"] == 0
