"""A server that has imported Firn and forks: one ``firn`` process costs tests milliseconds in place of two seconds.

Each child is a process of its own, with its own environment, folder, process group and output, as if a shell had
started it. The server itself never runs anything of Firn, so a child inherits modules and nothing else.
"""

from __future__ import annotations

import atexit
import importlib
import itertools
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REQUEST_BYTES = 1 << 17
"""Largest request as JSON; most of it is the environment."""
SHORT = 64
"""Bytes that hold a process id or a status."""
STARTS_WITHIN = 15 * 60
"""Seconds for the server's imports: far more than they take where other processes go before."""

IMPORTED = ("great_expectations", "duckdb", "firnlake.cli.run", "firnlake.cli.steps", "firnlake.cli.main")
"""What children find imported: the dear ones."""

_numbers = itertools.count()


class Request(NamedTuple):
    """What a child is to do: arguments of ``firn``, its whole environment, its folder, its files of output."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    outputs: list[str]


@dataclass
class Prepared:
    """A running child: as much of ``subprocess.Popen`` as tests use. Its output is text."""

    args: list[str]
    pid: int
    _server: socket.socket = field(repr=False)
    _outputs: list[str] = field(repr=False)
    returncode: int | None = None
    """Exit code, or the negative number of the signal that ended it; None while it runs."""

    def poll(self) -> int | None:
        """The exit code if it has ended, without waiting."""
        if self.returncode is None and select.select([self._server], [], [], 0)[0]:
            self._receive()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; what it wrote to standard output and standard error.

        Raises TimeoutError when it runs for longer than ``timeout`` seconds.
        """
        self._server.settimeout(timeout)
        if self.returncode is None:
            self._receive()
        out, err = (Path(path).read_text() for path in self._outputs)
        return out, err

    def _receive(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(json.loads(self._server.recv(SHORT)))
        self._server.close()


def start(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> Prepared:
    """Start ``firn`` with ``arguments`` in a process group of its own."""
    server = _server()
    outputs = [str(server.with_name(f"{next(_numbers)}.txt")) for _ in range(2)]
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(server))
    connection.send(json.dumps(Request(list(arguments), dict(environment), str(folder), outputs)).encode())
    return Prepared(["firn", *arguments], json.loads(connection.recv(SHORT)), connection, outputs)


@cache
def _server() -> Path:
    """The address of this process's server, which the first child starts; what children print lies beside it."""
    folder = Path(tempfile.mkdtemp(prefix="firn-prepared-"))
    address = folder / "server"
    # PyIceberg reads its configuration when it is imported: that of a child comes with the child.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYICEBERG_")}
    command = [sys.executable, "-m", "tests.support.prepared", str(address)]
    server = subprocess.Popen(
        command, env=environment, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    assert select.select([server.stdout], [], [], STARTS_WITHIN)[0], "the server of prepared processes does not start"
    assert server.stdout.readline() == b"ready\n"

    def stop() -> None:
        server.kill()
        server.communicate()

    atexit.register(stop)
    return address


def serve(address: Path) -> None:
    """Fork a keeper for each connection, until standard input ends: whoever started this is gone then."""
    for module in IMPORTED:
        importlib.import_module(module)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(address))
    listening.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    print("ready", flush=True)
    while sys.stdin not in (ready := select.select([listening, sys.stdin], [], [])[0]):
        assert ready
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            keep(connection)
        connection.close()


def keep(connection: socket.socket) -> None:
    """Fork the child, and tell its process id, then its status. Returns in no process: each of them ends here."""
    request = Request(*json.loads(connection.recv(REQUEST_BYTES)))
    child = os.fork()
    if child == 0:
        connection.close()
        become(request)
    connection.send(json.dumps(child).encode())
    _, status = os.waitpid(child, 0)
    connection.send(json.dumps(status).encode())
    os._exit(0)


def become(request: Request) -> NoReturn:
    """Run the command as ``python -m firnlake`` does, and leave as it leaves: by SystemExit or with a traceback."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(request.outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    sys.argv = ["firn", *request.arguments]
    runpy.run_module("firnlake", run_name="__main__")
    sys.exit(0)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
