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
        with Progress(title, len(tasks)) as progress:
            if min(self.parallelism, len(tasks)) == 1:
                for position in order:
                    results[position] = attempt(function, tasks[position])
                    progress.advance()
            else:
                with ThreadPoolExecutor(min(self.parallelism, len(tasks)) or 1, "firn") as pool:
                    running = {pool.submit(attempt, function, tasks[position]): position for position in order}
                    _collect(pool, running, results, progress)
        return [results[position] for position in range(len(tasks))]

    def close(self) -> None:
        """Do nothing: no thread outlives a call."""


def _collect(
    pool: ThreadPoolExecutor,
    running: dict[Future[R | Exception], int],
    results: dict[int, R | Exception],
    progress: Progress,
) -> None:
    try:
        for done in as_completed(running):
            results[running[done]] = done.result()
            progress.advance()
    except BaseException:
        # After an interrupt, or if a task exits, never start the remaining tasks.
        pool.shutdown(wait=False, cancel_futures=True)
        raise
