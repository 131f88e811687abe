"""Processes that outlive the command that starts them: started with a log each, found again, stopped together; and the
ports on which they serve this machine alone."""

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from infra.environment import CHECKOUT

Process = subprocess.Popen[bytes]
HOST = "127.0.0.1"
STOPPED_WITHIN = 20  # seconds
PIDS = "firn.pids"


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
