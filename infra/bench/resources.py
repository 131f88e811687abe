"""Resources of a run: processor seconds, and the largest resident size of its processes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import psutil

INTERVAL_SECONDS = 0.05
"""Between two looks at the processes' memory."""
_JVM = "java"


class Share(StrEnum):
    """The processes that do the work of a run."""

    HERE = "here"
    """This one."""
    SPARK = "spark"
    """This one, Spark's JVM, and its Python workers."""
    OWN = "own"
    """Those that are started for it, and what they start."""


@dataclass
class Peak:
    """The largest sums of resident sizes, bytes: of the JVMs, and of all other processes."""

    jvm: int = 0
    others: int = 0

    def see(self, processes: list[psutil.Process]) -> None:
        """One look."""
        jvm = others = 0
        for process in processes:
            try:
                size = process.memory_info().rss
                if process.name() == _JVM:
                    jvm += size
                else:
                    others += size
            except psutil.NoSuchProcess:
                continue  # it ended while we looked
        self.jvm, self.others = max(self.jvm, jvm), max(self.others, others)


@contextmanager
def watched(share: Share) -> Iterator[Peak]:
    """The peak of the block, looked at from a thread."""
    here = psutil.Process()
    before = {process.pid for process in here.children(recursive=True)}

    def concerned() -> list[psutil.Process]:
        if share is Share.HERE:
            return [here]
        children = here.children(recursive=True)
        return [here, *children] if share is Share.SPARK else [one for one in children if one.pid not in before]

    peak, over = Peak(), threading.Event()

    def watch() -> None:
        while not over.wait(INTERVAL_SECONDS):
            peak.see(concerned())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()
        peak.see(concerned())


def processor_seconds() -> float:
    """Those of all threads of this process and of what it has started, of ended processes as well."""
    own = psutil.Process()
    return sum(sum(one.cpu_times()[:4]) for one in (own, *own.children(recursive=True)))
