"""A Spark Connect server on this machine, for the demo, `make up`, benchmarks and tests.

It runs whatever a client sends, so it listens on 127.0.0.1 only, and asks for a token.
"""

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from infra.environment import SOURCES
from infra.processes import HOST, Process, free_ports, listens, start, stop

READY_WITHIN = 120  # seconds; a slow machine needs a quarter of it
MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def serving(folder: Path, master: str = "local[*]") -> Iterator[str]:
    """The address of a server that runs until the block ends; its log is in ``folder``."""
    process: Process | None = None
    try:
        process, address = start_server(folder, master)
        yield address
    finally:
        stop(folder)
        if process is not None:
            process.wait()


def start_server(folder: Path, master: str = "local[*]") -> tuple[Process, str]:
    """Start a server and return it with its address, once it answers; `infra.processes.stop` on ``folder`` ends it."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    home = Path(pyspark.origin).parent
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
    command = [str(home / "bin" / "spark-submit"), "--class", MAIN, "--master", master, "--name", "firn", *options]
    process = start("spark", command, folder, environment)
    deadline = time.monotonic() + READY_WITHIN
    while not listens(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"firn: the Spark Connect server does not answer, see {folder / 'spark.log'}")
        time.sleep(0.1)
    # Spark's client sends a token without TLS to a host of this name only.
    return process, f"sc://localhost:{port}/;token={token}"
