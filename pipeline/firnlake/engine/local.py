"""Run tasks in threads of this process, without a JVM. Arrow, DuckDB and zstd release the interpreter's lock."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from firnlake.engine.engine import attempt, heaviest_first
from firnlake.progress import Progress

T = TypeVar("T")
R = TypeVar("R")


class LocalEngine:
    """Runs ``threads`` tasks at a time; by default one per processor of the machine.

    Threads start and end with each call, so that the process may fork between two calls.
    """

    name = "local"

    def __init__(self, threads: int | None = None) -> None:
        self.parallelism = threads or os.cpu_count() or 1

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], *, weights: Sequence[int] | None = None, title: str = ""
    ) -> list[R | Exception]:
        """See Engine."""
        order = heaviest_first(weights) if weights is not None else list(range(len(tasks)))
        results: dict[int, R | Exception] = {}
        threads = min(self.parallelism, len(tasks))
        work = weights or [0] * len(tasks)
        with Progress(title, len(tasks), weight=sum(work), parallel=threads) as progress:
            if threads == 1:
                for position in order:
                    results[position] = attempt(function, tasks[position])
                    progress.advance(weight=work[position])
            else:
                with ThreadPoolExecutor(threads or 1, "firn") as pool:
                    running = {pool.submit(attempt, function, tasks[position]): position for position in order}
                    _collect(pool, running, results, progress, work)
        return [results[position] for position in range(len(tasks))]

    def close(self) -> None:
        """Do nothing: no thread outlives a call."""


def _collect(
    pool: ThreadPoolExecutor,
    running: dict[Future[R | Exception], int],
    results: dict[int, R | Exception],
    progress: Progress,
    weights: Sequence[int],
) -> None:
    try:
        for done in as_completed(running):
            position = running[done]
            results[position] = done.result()
            progress.advance(weight=weights[position])
    except BaseException:
        # After an interrupt, or if a task exits, never start the remaining tasks.
        pool.shutdown(wait=False, cancel_futures=True)
        raise
