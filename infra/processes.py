"""Processes that outlive the command that starts them: started with a log each, found again, stopped together; the
ports on which they serve this machine alone; and a Spark Connect server, for the demo, `make up`, benchmarks and tests.
"""

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import psutil

from infra.environment import CHECKOUT, SOURCES

Process = subprocess.Popen[bytes]
HOST = "127.0.0.1"
STOPPED_WITHIN = 20  # seconds
PIDS = "firn.pids"
SPARK_READY_WITHIN = 120  # seconds; a slow machine needs a quarter of it
SPARK_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


def start(
    name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str], user: str | None = None
) -> Process:
    """Start a process in a session of its own: a Ctrl-C here must not reach it, and ``stop`` must find it.

    Its output goes to ``<name>.log`` in ``folder``. As ``user`` when one is given, which only root may.
    """
    with (folder / f"{name}.log").open("w") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=CHECKOUT if user is None else "/",
            stdout=output,
            stderr=output,
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
    with (folder / PIDS).open("a") as pids:
        print(process.pid, file=pids)
    return process


def started(folder: Path) -> set[int]:
    """The process ids of what was started with this ``folder`` since it was stopped last."""
    pids = folder / PIDS
    return {int(line) for line in pids.read_text().split()} if pids.exists() else set()


def members(leaders: set[int]) -> list[psutil.Process]:
    """The live processes of the leaders' sessions, and their descendants wherever those are."""
    processes = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) in leaders and process.status() != psutil.STATUS_ZOMBIE:
                processes += [process, *process.children(recursive=True)]
        except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            continue  # ended while we looked, or somebody else's
    return list(dict.fromkeys(processes))


def stop(folder: Path) -> int:
    """Stop all that was started with ``folder``: asked first, then made to. Returns how many processes there were."""
    processes = members(started(folder))
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, left = psutil.wait_procs(processes, timeout=STOPPED_WITHIN)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=STOPPED_WITHIN)
    (folder / PIDS).unlink(missing_ok=True)
    return len(processes)


def listens(port: int) -> bool:
    """True when a server answers on ``port``."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different: held together while they are chosen."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def spark_home() -> Path:
    """The folder of the installed pyspark."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    return Path(pyspark.origin).parent


@contextmanager
def serving(folder: Path, master: str = "local[*]") -> Iterator[str]:
    """The address of a Spark Connect server that runs until the block ends; its log is in ``folder``."""
    process: Process | None = None
    try:
        process, address = start_server(folder, master)
        yield address
    finally:
        stop(folder)
        if process is not None:
            process.wait()


def start_server(folder: Path, master: str = "local[*]") -> tuple[Process, str]:
    """Start a Spark Connect server and return it with its address, once it answers; ``stop`` on ``folder`` ends it.

    It runs whatever a client sends, so it listens on 127.0.0.1 only, and asks for a token.
    """
    home = spark_home()
    (port,) = free_ports(1)
    token = secrets.token_urlsafe()
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": SOURCES,
        # Not a setting, which everybody could read in the command line of the JVM.
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
    }
    environment.pop("SPARK_REMOTE", None)  # it would make the server a client
    settings = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command = [
        str(home / "bin" / "spark-submit"),
        "--class",
        SPARK_CONNECT,
        "--master",
        master,
        "--name",
        "firn",
        *options,
    ]
    process = start("spark", command, folder, environment)
    deadline = time.monotonic() + SPARK_READY_WITHIN
    while not listens(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"firn: the Spark Connect server does not answer, see {folder / 'spark.log'}")
        time.sleep(0.1)
    # Spark's client sends a token without TLS to a host of this name only.
    return process, f"sc://localhost:{port}/;token={token}"
