"""Leases on tables: one run at a time works on a table, so no two runs plan the same segments.

Airflow's ``max_active_runs`` does not count backfills, and a cleared run may start again. So the first task of a run
takes the table's lease, and the last task gives it back. If a run ends without giving it back, the next run takes it.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote


def take(folder: Path, table: str, run_id: str, works: Callable[[str], bool]) -> str | None:
    """Take the lease of ``table`` for ``run_id``, or return the id of another run that holds it and still ``works``."""
    with _held(folder, table) as lease:
        holder = lease.read_text(encoding="utf-8", errors="replace")
        if holder and holder != run_id and works(holder):
            return holder
        lease.write_text(run_id, encoding="utf-8")
        return None


def give_back(folder: Path, table: str, run_id: str) -> None:
    """End the lease of ``table`` if ``run_id`` holds it."""
    with _held(folder, table) as lease:
        if lease.read_text(encoding="utf-8", errors="replace") == run_id:
            lease.write_text("", encoding="utf-8")


@dataclass(frozen=True)
class Holder:
    """The run that holds a lease, and the time at which it took the lease (epoch milliseconds)."""

    run_id: str
    since_ms: int


def holder(folder: Path, table: str) -> Holder | None:
    """The run that holds the lease of ``table``, even if it has ended; None when no run holds the lease."""
    path = _file(folder, table)
    if not path.exists():
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        # A shared lock keeps writers out during the read.
        fcntl.flock(file, fcntl.LOCK_SH)
        current = Holder(file.read(), int(path.stat().st_mtime * 1000))
    return current if current.run_id else None


def _file(folder: Path, table: str) -> Path:
    return folder / f"{quote(table, safe='')}.lease"


@contextmanager
def _held(folder: Path, table: str) -> Iterator[Path]:
    """The lease file of ``table``, under an exclusive lock."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _file(folder, table)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield path
