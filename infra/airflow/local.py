"""`make up` and `make down`: Airflow with its UI on the embedded lake, and the demo's two tables in it to look at: one
that was filled at once, and one that a small producer keeps landing into.

    python -m infra.airflow.local up|down

Everything lies under FIRN_HOME (default .firn). The server listens on 127.0.0.1 only, port FIRN_AIRFLOW_PORT
(default 8080).
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from rich.console import Console

from firnlake.iceberg.catalog import Lake
from infra.airflow import settings
from infra.demo import load, producer
from infra.environment import CHECKOUT
from infra.processes import members, start, started, stop
from infra.spark_server import start_server

HEALTHY_WITHIN = 300  # seconds; a slow and busy machine needs half of it
PASSWORDS = "simple_auth_manager_passwords.json.generated"
"""File to which Airflow writes the users of its first start."""
TABLES = CHECKOUT / "infra" / "demo" / "tables.toml"

# What `airflow standalone` starts, but for its two log servers, which would listen on all interfaces: the server
# reads the logs from the same disk.
COMPONENTS = {
    "api-server": ("airflow", "api-server"),
    "scheduler": ("airflow", "scheduler", "--skip-serve-logs"),
    "dag-processor": ("airflow", "dag-processor"),
    "triggerer": ("airflow", "triggerer", "--skip-serve-logs"),
}
PRODUCER = (sys.executable, "-m", "infra.demo.producer")

console = Console(highlight=False)


def up(home: Path, port: int) -> None:
    """Start Airflow unless it runs already, wait until it is healthy, and say where it is."""
    environment = settings.environment(home, port) | {"FIRN_TABLES": str(TABLES)}
    airflow = Path(environment["AIRFLOW_HOME"])
    url = environment["AIRFLOW__API__BASE_URL"]
    if members(started(airflow)):
        announce(airflow, url)
        return
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise SystemExit(f"firn: port {port} is taken; allowed: a free one, by FIRN_AIRFLOW_PORT")
    airflow.mkdir(parents=True, exist_ok=True)
    lake = Lake.embedded(home)
    if load.TABLE not in lake.tables(load.TABLE.split(".", maxsplit=1)[0]):
        load.load(lake, home / "landing", console)
    producer.create(lake)
    with console.status("Airflow starts (about a minute)"):
        migrate = subprocess.run(
            ["airflow", "db", "migrate"], env=environment, capture_output=True, text=True, check=False
        )
        if migrate.returncode != 0:
            raise SystemExit(f"firn: Airflow's database could not be made: {migrate.stderr.strip()[-2000:]}")
        spark, environment["SPARK_REMOTE"] = start_server(airflow)
        processes = [start(name, command, airflow, environment) for name, command in COMPONENTS.items()]
        wait_until_healthy([spark, *processes], port, airflow)
        # Not earlier: tasks that start before the server answers fail.
        unpause = ["airflow", "dags", "unpause", "--yes", "--treat-dag-id-as-regex", f"{load.DAG_ID}|{producer.DAG_ID}"]
        subprocess.run(unpause, env=environment, check=True, capture_output=True)
        start("producer", PRODUCER, airflow, environment)
    announce(airflow, url)


def wait_until_healthy(processes: Sequence[subprocess.Popen[bytes]], port: int, logs: Path) -> None:
    """Return once the scheduler and the DAG processor say, through the server, that they are healthy."""
    deadline = time.monotonic() + HEALTHY_WITHIN
    while time.monotonic() < deadline:
        for process in processes:
            if process.poll() is not None:
                raise SystemExit(f"firn: a component ended with code {process.returncode}, see {logs}/*.log")
        try:
            server = HTTPConnection("127.0.0.1", port, timeout=5)
            server.request("GET", "/api/v2/monitor/health")
            health = json.load(server.getresponse())
        except (OSError, HTTPException, ValueError):
            health = {}
        if all(health.get(part, {}).get("status") == "healthy" for part in ("scheduler", "dag_processor")):
            return
        time.sleep(1)
    raise SystemExit(f"firn: Airflow is not healthy after {HEALTHY_WITHIN} s, see {logs}/*.log; `make down` stops it")


def announce(airflow: Path, url: str) -> None:
    """Say where Airflow is and how to get in."""
    passwords = json.loads((airflow / PASSWORDS).read_text())
    console.print(f"Airflow: {url}/dags/{producer.DAG_ID} and {url}/dags/{load.DAG_ID}")
    for user, password in passwords.items():
        console.print(f"log in as {user}, password {password}", markup=False)
    console.print(
        f"A producer lands into {producer.TABLE}: its DAG starts when a threshold is crossed (log: producer.log)."
    )
    console.print("`make down` stops everything.")


def down(home: Path) -> None:
    """Stop all that `up` started."""
    stopped = stop(home / "airflow")
    console.print(f"Airflow is stopped, {stopped} processes" if stopped else "Airflow is not running")


def main() -> None:
    """Entry point."""
    home = Path(os.environ.get("FIRN_HOME", ".firn")).resolve()
    match sys.argv[1:]:
        case ["up"]:
            up(home, int(os.environ.get("FIRN_AIRFLOW_PORT", settings.PORT)))
        case ["down"]:
            down(home)
        case _:
            raise SystemExit("usage: python -m infra.airflow.local up|down")


if __name__ == "__main__":
    main()
