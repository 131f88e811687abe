"""`make up` and `make down`: Airflow with its UI on the embedded lake, and the demo's two tables in it to look at: one
that was filled at once, and one that a small producer keeps landing into.

    python -m infra.airflow.local up|down

Everything lies under FIRN_HOME (default .firn). The server listens on 127.0.0.1 only, port FIRN_AIRFLOW_PORT
(default 8080).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from rich.console import Console

from firnlake.iceberg.catalog import Lake
from infra.demo import changelog, producer
from infra.environment import CHECKOUT, catalog_of
from infra.processes import listens, members, start, start_server, started, stop

PORT = 8080
WRITER_WAITS = 60
"""Seconds that a component waits for SQLite's one writer. With five, the default, busy machines refuse requests."""
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


def environment(home: Path, port: int = PORT) -> dict[str, str]:
    """The whole environment of an Airflow on this machine whose lake is the embedded one under `home`: for `make up`,
    for the demo and for the tests.

    All are Airflow's own variables. A real deployment has its own Airflow, and needs of these only the dags folder, the
    variables that say where the lake is, and a connection to its Spark. The lake is pinned through PyIceberg's own
    variables, so that a catalog that the user has configured elsewhere is never touched by a demo or a test.
    """
    home = home.resolve()
    lake = Lake.embedded(home)
    own = {
        "FIRN_HOME": str(home),
        "PYICEBERG_DEFAULT_CATALOG": lake.name,
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow/airflow.db?timeout={WRITER_WAITS}",
        "AIRFLOW__CORE__DAGS_FOLDER": str(CHECKOUT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # SQLite has one writer, and a small machine room for one Spark: more at a time is not faster.
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__API__HOST": "127.0.0.1",
        # A port of one's own takes all three.
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "PATH": f"{CHECKOUT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    foreign = ("AIRFLOW_", "PYICEBERG_", "SPARK_REMOTE")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return inherited | catalog_of(lake) | own


def up(home: Path, port: int) -> None:
    """Start Airflow unless it runs already, wait until it is healthy, and say where it is."""
    variables = environment(home, port) | {"FIRN_TABLES": str(TABLES)}
    airflow = Path(variables["AIRFLOW_HOME"])
    url = variables["AIRFLOW__API__BASE_URL"]
    if members(started(airflow)):
        announce(airflow, url)
        return
    if listens(port):
        raise SystemExit(f"firn: port {port} is taken; allowed: a free one, by FIRN_AIRFLOW_PORT")
    airflow.mkdir(parents=True, exist_ok=True)
    lake = Lake.embedded(home)
    if changelog.TABLE not in lake.all_tables():
        changelog.load(lake, home / "landing", console)
    producer.create(lake)
    with console.status("Airflow starts (about a minute)"):
        migrate = subprocess.run(
            ["airflow", "db", "migrate"], env=variables, capture_output=True, text=True, check=False
        )
        if migrate.returncode != 0:
            raise SystemExit(f"firn: Airflow's database could not be made: {migrate.stderr.strip()[-2000:]}")
        spark, variables["SPARK_REMOTE"] = start_server(airflow)
        processes = [start(name, command, airflow, variables) for name, command in COMPONENTS.items()]
        wait_until_healthy([spark, *processes], port, airflow)
        # Not earlier: tasks that start before the server answers fail.
        unpause = [
            "airflow",
            "dags",
            "unpause",
            "--yes",
            "--treat-dag-id-as-regex",
            f"{changelog.DAG_ID}|{producer.DAG_ID}",
        ]
        subprocess.run(unpause, env=variables, check=True, capture_output=True)
        start("producer", PRODUCER, airflow, variables)
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
    console.print(f"Airflow: {url}/dags/{producer.DAG_ID} and {url}/dags/{changelog.DAG_ID}")
    for user, password in passwords.items():
        console.print(f"log in as {user}, password {password}", markup=False)
    console.print(
        f"A producer lands into {producer.TABLE}: its DAG starts when a threshold is crossed (log: producer.log)."
    )
    console.print("`make down` stops everything.")


def main() -> None:
    """Entry point."""
    home = Path(os.environ.get("FIRN_HOME", ".firn")).resolve()
    match sys.argv[1:]:
        case ["up"]:
            up(home, int(os.environ.get("FIRN_AIRFLOW_PORT", PORT)))
        case ["down"]:
            stopped = stop(home / "airflow")
            console.print(f"Airflow is stopped, {stopped} processes" if stopped else "Airflow is not running")
        case _:
            raise SystemExit("usage: python -m infra.airflow.local up|down")


if __name__ == "__main__":
    main()
