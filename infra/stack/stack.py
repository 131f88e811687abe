"""A lake as it runs for real, on one machine and without containers: catalogs, object store and Spark cluster.

Each part is a child process with a log in the stack's folder, and listens on 127.0.0.1 only.
"""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from firnlake.iceberg.catalog import Lake
from infra.processes import Process, members, started, stop
from infra.stack import postgres, servers
from infra.stack.settings import SQL, Settings, write_private

READY_WITHIN = 90  # seconds; a slow machine needs a quarter of it


@dataclass(frozen=True)
class Stack:
    """The stack in ``folder``: running, or not."""

    folder: Path
    settings: Settings
    children: list[Process] = field(default_factory=list)
    """The part that this process has started."""

    @classmethod
    def of(cls, folder: Path) -> "Stack":
        """The stack in ``folder``, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, Settings.of(folder))

    @property
    def is_up(self) -> bool:
        """True when any of its processes is alive."""
        return bool(members(started(self.folder)))

    def environment(self, catalog: str = SQL) -> dict[str, str]:
        """A whole environment in which ``firn`` works on ``catalog``, ``sql`` or ``rest``, and on no other lake."""
        foreign = ("PYICEBERG_", "AWS_", "CATALOG_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return inherited | self.settings.environment(catalog)

    def lake(self, catalog: str, home: Path) -> Lake:
        """The lake of ``catalog`` for this process, which has the store's credentials in its environment."""
        return Lake(catalog, dict(self.settings.catalogs()[catalog]), home)

    def up(self, *, cluster: bool = True) -> None:
        """Start all parts, Spark's cluster too unless told otherwise; returns once each of them answers."""
        environment = self.environment()
        self.children.append(postgres.serve(self.folder, self.settings, environment))
        self.children.append(servers.serve_s3(self.folder, self.settings, environment))
        self._wait("PostgreSQL", lambda: postgres.prepared(self.settings))
        self._wait("the object store", lambda: servers.listens(self.settings.s3_port))
        self.children.append(servers.serve_rest(self.folder, self.settings, environment))
        if cluster:
            self.start_cluster()
        self._wait("the REST catalog", lambda: servers.listens(self.settings.rest_port))

    def start_cluster(self) -> None:
        """Start Spark's master and its workers."""
        self.children.append(servers.serve_master(self.folder, self.settings, self.environment()))
        for number in range(1, servers.WORKERS + 1):
            self.start_worker(number)
        self._wait("Spark's cluster", lambda: servers.alive_workers(self.settings) == servers.WORKERS)

    def start_worker(self, number: int) -> int:
        """Start a worker of Spark's, which finds the master as soon as there is one; returns its process id."""
        worker = servers.serve_worker(number, self.folder, self.settings, self.environment())
        self.children.append(worker)
        return worker.pid

    def down(self) -> int:
        """Stop all parts; what they have stored stays. Returns how many processes there were."""
        stopped = stop(self.folder)
        for child in self.children:
            child.wait()
        return stopped

    def remove(self) -> None:
        """Delete everything that a stopped stack has stored."""
        postgres.remove(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    def write_environment(self) -> Path:
        """A file for shells to source, which only its owner can read."""
        own = self.settings.environment(SQL) | {"FIRN_SPARK_MASTER": self.settings.master}
        path = self.folder / "environment"
        write_private(path, "".join(f"export {name}='{value}'\n" for name, value in own.items()))
        return path

    def _wait(self, part: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while not ready():
            if time.monotonic() > deadline:
                raise SystemExit(f"firn: {part} does not answer after {READY_WITHIN} s, see {self.folder}/*.log")
            time.sleep(0.2)
