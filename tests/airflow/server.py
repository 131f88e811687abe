"""A running Airflow, all four components of it, as `make up` starts it: its REST API, its processes, its users."""

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil

from infra.airflow import local
from infra.processes import members, start

if TYPE_CHECKING:
    from tests.airflow.conftest import LocalAirflow

MIB = 1 << 20
LOOK_SECONDS = 1.0
ANSWER_WITHIN = 3 * 60
HANGS = 15 * 60
"""Seconds after which something hangs: far more than anything takes where three other processes are at work."""


@dataclass(frozen=True)
class Server:
    """A running Airflow and a user who may do everything."""

    url: str
    home: Path
    environment: dict[str, str]
    components: dict[str, subprocess.Popen[bytes]]
    """Each a session of its own."""
    user: str = ""
    password: str = ""
    token: str = ""

    def call(self, path: str, method: str = "GET", body: object = None) -> dict[str, Any]:
        """Ask the REST API."""
        return ask(f"{self.url}{path}", method, body, {"Authorization": f"Bearer {self.token}"})

    def post_when_free(self, path: str, body: object, busy: HTTPStatus) -> None:
        """Ask to change something, again while the answer is ``busy``: Airflow on SQLite refuses while another of its
        processes writes."""

        def accepted() -> bool:
            try:
                self.call(path, "POST", body)
            except HTTPError as error:
                if error.code != busy:
                    raise
                return False
            return True

        self.until(accepted)

    def unpause(self, dag_id: str) -> None:
        """Let the scheduler start runs of a DAG, once Airflow has parsed its file."""
        self.until(lambda: dag_id in [one["dag_id"] for one in self.call("/api/v2/dags?limit=100")["dags"]])
        self.call(f"/api/v2/dags/{dag_id}", "PATCH", {"is_paused": False})

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call(f"/api/v2/dags/{dag_id}/dagRuns")["dag_runs"]
        return found

    def events_of(self, asset: str) -> list[dict[str, Any]]:
        """Content of the events of an asset, oldest first."""
        events = self.call("/api/v2/assets/events?order_by=timestamp&limit=100")["asset_events"]
        return [event["extra"] for event in events if event["name"] == asset]

    def resident(self, component: str) -> list[int]:
        """MiB of resident memory of each process of a component; what they share counts in each."""
        found = members({self.components[component].pid})
        return [process.memory_info().rss // MIB for process in found]

    def kill(self, component: str) -> None:
        """SIGKILL to all processes of a component."""
        found = members({self.components[component].pid})
        for process in found:
            process.kill()
        psutil.wait_procs(found)
        self.components[component].wait()

    def start(self, component: str) -> None:
        """Start a component, again if it was killed."""
        command = local.COMPONENTS[component]
        self.components[component] = start(component, command, self.home, self.environment)

    def logs(self, component: str, text: str) -> bool:
        """True when the log of a component, since its last start, has ``text``."""
        return text in (self.home / f"{component}.log").read_text()

    def until(self, found: Callable[[], Any]) -> Any:
        """The first true result of ``found``; fails when it hangs, and at once when a component ends."""
        deadline = time.monotonic() + HANGS
        while not (value := found()):
            assert time.monotonic() < deadline, f"nothing after {HANGS} s"
            with suppress(subprocess.TimeoutExpired):
                next(iter(self.components.values())).wait(LOOK_SECONDS)
            ended = [name for name, process in self.components.items() if process.poll() is not None]
            assert not ended, f"{ended} ended, see {self.home}"
        return value


def ask(url: str, method: str, body: object, headers: dict[str, str]) -> dict[str, Any]:
    """One request with a JSON body, and the JSON that answers it."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, headers | {"Content-Type": "application/json"}, method=method)  # noqa: S310
    with urlopen(request, timeout=ANSWER_WITHIN) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)
        return found


def at_free_port(airflow: "LocalAirflow") -> tuple[int, dict[str, str]]:
    """A port that nobody listens on, and the environment in which components find each other there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    own = local.environment(airflow.home, port).items()
    return port, airflow.environment | {name: value for name, value in own if name.startswith("AIRFLOW__")}


@contextmanager
def serving(airflow: "LocalAirflow") -> Iterator[Server]:
    """Start all components on a free port, and end them whatever happens."""
    port, environment = at_free_port(airflow)
    home = airflow.home / "airflow"
    server = Server(f"http://127.0.0.1:{port}", home, environment, {})
    try:
        for component in local.COMPONENTS:
            server.start(component)
        local.wait_until_healthy(list(server.components.values()), port, home)
        yield logged_in(server)
    finally:
        for component in server.components:
            server.kill(component)


def logged_in(server: Server) -> Server:
    """The server with its user, who is the only one."""
    ((user, password),) = json.loads((server.home / local.PASSWORDS).read_text()).items()
    token = ask(f"{server.url}/auth/token", "POST", {"username": user, "password": password}, {})["access_token"]
    return replace(server, user=user, password=password, token=token)


def trigger(server: Server, dag_id: str, conf: dict[str, object]) -> str:
    """Trigger the DAG as its form does; the id of the run."""
    server.unpause(dag_id)
    body = {"logical_date": None, "conf": conf}
    run_id: str = server.call(f"/api/v2/dags/{dag_id}/dagRuns", "POST", body)["dag_run_id"]
    return run_id


def ended(server: Server, dag_id: str, run_id: str) -> str:
    """The final state of the run."""
    run = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}"
    server.until(lambda: server.call(run)["state"] in ("success", "failed"))
    return str(server.call(run)["state"])


def answer(server: Server, dag_id: str, run_id: str, word: str) -> None:
    """Answer what the run's lane `full` asks before it publishes."""
    path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/full.publish/-1/hitlDetails"
    server.call(path, "PATCH", {"chosen_options": [word]})


def question(server: Server, dag_id: str, run_id: str = "~") -> dict[str, Any]:
    """The question that a run, or any run of the DAG, asks people, once the scheduler has heard that its task waits.

    Airflow 3.3 asks a second time when the answer comes earlier.
    """
    path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/hitlDetails"
    (found,) = server.until(lambda: server.call(path)["hitl_details"])
    task = found["task_instance"]
    heard = f"TaskInstance Finished: dag_id={dag_id}, task_id={task['task_id']}, run_id={task['dag_run_id']},"
    server.until(lambda: server.logs("scheduler", heard))
    return dict(found)
