"""What a piece of work takes, as figures by name, and entries of a case measured in turns. Imports nothing of Firn."""

import gc
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import psutil
import pyarrow as pa

INTERVAL_SECONDS = 0.05
"""Between two looks at the processes' memory."""
LARGEST = ("peak", "peak of JVM")
"""Figures of which the largest of all runs counts, and not the median."""
_JVM = "java"

Figures = dict[str, float]
"""Seconds, bytes and numbers by name. ``seconds`` are those of the clock, ``processor`` those of all threads of this
process and of what it has started; ``peak`` is the largest resident size, but for JVMs, ``peak of JVM`` theirs."""
Run = Callable[[], Figures]


class WrongOutputError(Exception):
    """An entry left something else than it should have."""


class Share(StrEnum):
    """The processes that do the work of a run."""

    HERE = "here"
    """This one."""
    SPARK = "spark"
    """This one, Spark's JVM, and its Python workers."""
    OWN = "own"
    """Those that are started for it, and what they start."""


@dataclass(frozen=True)
class Measured:
    """One entry of a case: figures over its runs, and the seconds of each; with a ``problem`` neither of them."""

    entry: str
    figures: Figures
    runs: list[float]
    problem: str = ""

    @classmethod
    def of(cls, entry: str, runs: Sequence[Figures]) -> "Measured":
        """Medians of the runs, the largest of memory."""
        over = {name: max if name in LARGEST else statistics.median for name in runs[0]}
        figures = {name: float(of_all(run[name] for run in runs)) for name, of_all in over.items()}
        return cls(entry, figures, [run["seconds"] for run in runs if "seconds" in run])


def in_turns(entries: Mapping[str, Run], runs: int, warm_up: Sequence[Run] = ()) -> list[Measured]:
    """Measure ``entries`` after the runs of ``warm_up``: one after the other, so that what the machine does meanwhile
    is shared by all. An entry that leaves something wrong runs no more."""
    for run in warm_up:
        run()
    ran: dict[str, list[Figures]] = {name: [] for name in entries}
    problems: dict[str, str] = {}
    for _ in range(runs):
        for name in [name for name in entries if name not in problems]:
            # What others wrote goes to disk now, and not in this entry's time; what they held is not its memory.
            os.sync()
            gc.collect()
            pa.default_memory_pool().release_unused()
            try:
                ran[name].append(entries[name]())
            except WrongOutputError as problem:
                problems[name] = str(problem)
        print("    " + ", ".join(f"{name} {_last(ran[name], problems.get(name))}" for name in entries))
    return [
        Measured(name, {}, [], problems[name]) if name in problems else Measured.of(name, ran[name]) for name in entries
    ]


def _last(runs: Sequence[Figures], problem: str | None) -> str:
    if problem is not None:
        return f"is wrong: {problem}"
    return f"{runs[-1]['seconds']:.2f} s" if "seconds" in runs[-1] else "done"


@contextmanager
def measured(share: Share = Share.HERE) -> Iterator[Figures]:
    """The figures of the block, complete once it is over; its memory is that of the processes that ``share`` names."""
    figures: Figures = {}
    with _watched(share) as peaks:
        started, used = time.monotonic(), processor_seconds()
        yield figures
        figures["seconds"] = time.monotonic() - started
        figures["processor"] = processor_seconds() - used
    figures |= peaks


def processor_seconds() -> float:
    """Those of all threads of this process and of what it has started, of ended processes as well."""
    own = psutil.Process()
    return sum(sum(one.cpu_times()[:4]) for one in (own, *own.children(recursive=True)))


@contextmanager
def _watched(share: Share) -> Iterator[Figures]:
    """The largest sums of resident sizes during the block, looked at from a thread."""
    here = psutil.Process()
    before = {process.pid for process in here.children(recursive=True)}
    peaks = dict.fromkeys(LARGEST, 0.0)
    over = threading.Event()

    def look() -> None:
        children = [] if share is Share.HERE else here.children(recursive=True)
        concerned = [one for one in children if one.pid not in before] if share is Share.OWN else [here, *children]
        sizes = dict.fromkeys(LARGEST, 0)
        for process in concerned:
            try:
                sizes[LARGEST[process.name() == _JVM]] += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue  # it ended while we looked
        peaks.update({name: max(size, peaks[name]) for name, size in sizes.items()})

    def watch() -> None:
        while not over.wait(INTERVAL_SECONDS):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peaks
    finally:
        over.set()
        watcher.join()
        look()
