"""A Spark Connect server that the commands of one run share, with one session, on the machine on which they all run.

    python -m firnlake.engine.server FOLDER NAME IDLE_SECONDS

The first command that needs Spark starts the server, as a process of its own, and later ones find it by its folder.
The server runs whatever a client sends, so it listens on the loopback address only, and asks for a token that only this
user can read. It ends when it is told to, or when no client was alive for a while. Its JVM ends with it, however it
ends, because the JVM waits for the end of its standard input.

Files in the folder: `server`, which the server keeps locked as long as it lives; `clients`, of which each client holds
a shared lock as long as it lives; `starting`, locked by the client that starts the server; and `log`.
"""

import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO

from firnlake.errors import RefusedError, UnavailableError

IDLE_SECONDS = 600.0
LOOK_SECONDS = 1.0
"""Between two looks of the server at its clients and its JVM."""
END_SECONDS = 10.0
"""Seconds that the server gets to end by itself before it is killed."""
_LOG_BYTES = 10_000

_held: list[IO[str]] = []
"""The lock of this process as a client, until the process ends."""


@dataclass(frozen=True)
class Server:
    """A live server. The port is 0 until it is ready."""

    pid: int
    port: int = 0
    address: str = ""
    """What a client connects to: with the session that all clients share, and the token."""
    application: str = ""
    """The Spark application, for logs."""
    firn: str = ""
    """The version of Firn that its workers run."""

    def answers(self) -> bool:
        """True if its JVM accepts connections."""
        with socket.socket() as probe:
            probe.settimeout(END_SECONDS)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def join(folder: Path, name: str, idle_seconds: float = IDLE_SECONDS) -> Server:
    """The server of ``folder``, which lives at least as long as this process; started if there is none.

    ``name`` is that of the Spark application. Raises RefusedError if others can use the folder, and UnavailableError
    if the server does not start.
    """
    _make(folder)
    _held.append(_locked(folder / "clients", fcntl.LOCK_SH))
    with _locked(folder / "starting", fcntl.LOCK_EX):
        started: subprocess.Popen[bytes] | None = None
        while True:
            server = running(folder)
            if server and server.port:
                if server.answers() and server.firn == version("firnlake"):
                    return server
                _end(server)  # also if Firn was upgraded meanwhile: its workers would be refused until the run ends
            elif server is None and started is None:
                started = _start(folder, name, idle_seconds)
            elif server is None and started and started.poll() is not None:
                said = _log(folder)
                sys.stderr.write(f"{said}\n")
                raise UnavailableError(f"its process has ended: {said.splitlines()[-1] if said else 'without a word'}")
            time.sleep(0.1)


def running(folder: Path) -> Server | None:
    """The live server of ``folder``; None if there is none."""
    with suppress(FileNotFoundError), (folder / "server").open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if lines := file.read().splitlines():
                return Server(**json.loads(lines[-1]))
    return None


def stop(folder: Path) -> str:
    """End the server of ``folder``, if there is one, and remove the folder; returns the end of the server's log."""
    if not folder.exists():
        return ""
    _make(folder)
    if server := running(folder):
        _end(server)
    said = _log(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return said


def _make(folder: Path) -> None:
    """Make the folder. Refuse one that is somebody else's: whoever can write to it could send us to their server."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise RefusedError(f"{folder} is not private; allowed: a folder of this user, with mode 700")


def _locked(path: Path, kind: int) -> IO[str]:
    """The file at ``path``, locked until it is closed."""
    file = path.open("a+", encoding="utf-8")
    fcntl.flock(file, kind)
    return file


def _start(folder: Path, name: str, idle_seconds: float) -> "subprocess.Popen[bytes]":
    from firnlake.engine.session import SERVER_FOLDER

    command = [sys.executable, "-m", "firnlake.engine.server", str(folder), name, str(idle_seconds)]
    (folder / "server").unlink(missing_ok=True)  # of a server that has died
    # These variables would make it a client.
    environment = {key: value for key, value in os.environ.items() if key not in (SERVER_FOLDER, "SPARK_REMOTE")}
    with (folder / "log").open("w") as log:
        # A session of its own, because the process must outlive this one, and all that ends this one's group.
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _end(server: Server) -> None:
    """End the server and its JVM, which are a process group."""
    with suppress(ProcessLookupError):
        for number in (signal.SIGTERM, signal.SIGKILL):
            os.killpg(server.pid, number)
            deadline = time.monotonic() + END_SECONDS
            while time.monotonic() < deadline:
                os.killpg(server.pid, 0)
                time.sleep(0.05)


def _log(folder: Path) -> str:
    with suppress(OSError):
        return (folder / "log").read_text(encoding="utf-8", errors="replace")[-_LOG_BYTES:].strip()
    return ""


def serve(folder: Path, name: str, idle_seconds: float) -> None:
    """Start Spark, tell clients where it is, and return when nobody needs it any more."""
    from firnlake.engine.session import application, start_here, with_session

    with _locked(folder / "server", fcntl.LOCK_EX) as file:
        _tell(file, Server(os.getpid()))
        # Not a setting, which everybody could read in the command line of the JVM.
        token = os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = secrets.token_urlsafe()
        port = _free_port()
        session = start_here(name, _settings(port))
        # Spark's client sends a token without TLS to a host of this name only.
        address = with_session(f"sc://localhost:{port}/;token={token}", uuid.uuid4())
        server = Server(os.getpid(), port, address, application(session) or "", version("firnlake"))
        _tell(file, server)
        _watch(server, folder / "clients", idle_seconds)
        session.stop()


def _settings(port: int) -> Mapping[str, str]:
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        # Clients share a session for as long as there is a server: a session that has ended can't be opened again.
        "spark.connect.session.manager.defaultSessionTimeout": "-1",
        # The jobs of a client that was killed end soon.
        "spark.connect.execute.manager.detachedTimeout": "30s",
        "spark.connect.execute.manager.maintenanceInterval": "10s",
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _tell(file: IO[str], server: Server) -> None:
    """Add a line to the file. Clients read the last one, as soon as the file is locked."""
    print(json.dumps(asdict(server)), file=file, flush=True)


def _watch(server: Server, clients: Path, idle_seconds: float) -> None:
    """Return when the JVM has died, or when no client was alive for ``idle_seconds``."""
    file = clients.open("a+")  # stays locked until this process has ended: a client that comes meanwhile starts another
    used = time.monotonic()
    while server.answers():
        time.sleep(LOOK_SECONDS)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            used = time.monotonic()
            continue
        if time.monotonic() - used >= idle_seconds:
            _held.append(file)
            return
        fcntl.flock(file, fcntl.LOCK_UN)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
