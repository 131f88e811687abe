"""A writer in a process of its own that appends as fast as the catalog lets it; its records follow from a seed."""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Event, Semaphore
from random import Random
from typing import TYPE_CHECKING

from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import OperationalError

from firnlake.iceberg.catalog import Lake
from tests.nightly.crowd.processes import forked
from tests.support.topics import NOW, Record, foreign_rows, kafka_rows

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess
    from multiprocessing.queues import Queue

KEYS = 40
BATCH = 10
"""At most so many records a commit."""


@dataclass(frozen=True)
class Appended:
    """The account of one writer: all offsets below ``log_end`` of its partition are in the table.

    The rest is what it did since it began, or since ``Appenders.count``, until ``Appenders.enough``.
    """

    partition: int
    log_end: int
    commits: int
    refused: int
    """Commits that the catalog refused though PyIceberg had tried again and again."""
    seconds: float


def record(seed: int, partition: int, offset: int) -> Record:
    """The record that is at ``offset``, whoever asks."""
    random = Random(f"{seed} {partition} {offset}")  # noqa: S311  # a seed is what it is for
    key = None if random.random() < 0.02 else b"k%d" % random.randrange(KEYS)
    value = None if key is not None and random.random() < 0.15 else random.randbytes(20)
    return Record(offset, key, value, partition, NOW - 1_000_000 + offset)


@dataclass(frozen=True)
class _Signals:
    """Shared by all writers and their starter."""

    stop: Event
    counts: Event
    enough: Event
    started: Semaphore
    results: "Queue[Appended]"


@dataclass
class Appenders:
    """Writers that are under way, one for each partition."""

    _signals: _Signals
    _processes: "list[BaseProcess]"

    def count(self) -> None:
        """Count from the moment on when each of them has committed something: before, processes start."""
        for _ in self._processes:
            self._signals.started.acquire()
        self._signals.counts.set()

    def enough(self) -> None:
        """Count no longer, and go on."""
        self._signals.enough.set()

    def stop(self) -> list[Appended]:
        """Let them end what they are at; what they did."""
        self._signals.stop.set()
        return [self._signals.results.get() for _ in self._processes]


@contextmanager
def appending(
    lake: Lake, table: str, partitions: Iterable[int], seed: int, pause_seconds: float = 0.0
) -> Iterator[Appenders]:
    """Writers of ``table``; each goes on where the log of its partition ends."""
    context = forked()
    signals = _Signals(context.Event(), context.Event(), context.Event(), context.Semaphore(0), context.Queue())
    processes = [
        context.Process(target=_append, args=(replace(lake), table, one, seed, pause_seconds, signals), daemon=True)
        for one in partitions
    ]
    for process in processes:
        process.start()
    try:
        yield Appenders(signals, list(processes))
    finally:
        for process in processes:
            process.kill()
            process.join()


def _append(lake: Lake, table: str, partition: int, seed: int, pause_seconds: float, signals: _Signals) -> None:
    # PyIceberg warns of each try that loses a race, and of each metadata file that a REST server has deleted before it:
    # hundreds of lines among the figures.
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    random = Random(f"{seed} {partition}")  # noqa: S311  # a seed is what it is for
    log_end = _log_end(lake, table, partition)
    commits = refused = 0
    began, counting = time.monotonic(), False
    counted: tuple[int, int, float] | None = None
    while not signals.stop.is_set():
        if signals.counts.is_set() and not counting:
            commits = refused = 0
            began, counting = time.monotonic(), True
        if signals.enough.is_set() and counted is None:
            counted = commits, refused, time.monotonic() - began
        batch = [record(seed, partition, log_end + one) for one in range(random.randint(1, BATCH))]
        try:
            lake.table(table).append(foreign_rows(kafka_rows(batch, "orders")))
        except (CommitFailedException, OperationalError):
            refused += 1
            log_end = _log_end(lake, table, partition)
            continue
        log_end += len(batch)
        commits += 1
        if commits == 1:
            signals.started.release()
        time.sleep(pause_seconds)
    signals.results.put(Appended(partition, log_end, *(counted or (commits, refused, time.monotonic() - began))))


def _log_end(lake: Lake, table: str, partition: int) -> int:
    """The log end is never removed (C4)."""
    offsets = lake.table(table).scan(f"partition == {partition}", selected_fields=("offset",)).to_arrow()
    return max(offsets["offset"].to_pylist(), default=-1) + 1
