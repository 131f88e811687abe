"""Run tasks in threads of this process, without a JVM. Arrow, DuckDB and zstd release the interpreter's lock."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from firnlake.engine.engine import attempt, heaviest_first
from firnlake.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa

    from firnlake.engine.worker import Buckets


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

    def shuffle(
        self,
        spread: "Callable[[T], Iterable[tuple[int, pa.Table]]]",
        gather: "Callable[[int, Iterable[pa.Table]], R]",
        tasks: Sequence[T],
        buckets: int,
        *,
        title: str = "",
    ) -> list[R | Exception]:
        """See Engine."""
        from firnlake.engine.worker import Buckets

        with Buckets() as store:
            numbered = list(enumerate(tasks))
            for done in self.map(partial(_spread, spread, store, buckets), numbered, title=title):
                if isinstance(done, Exception):
                    return [done] * buckets
            return self.map(partial(_gather, gather, store), range(buckets), title=title)

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


def _spread(
    spread: "Callable[[T], Iterable[tuple[int, pa.Table]]]", store: "Buckets", buckets: int, task: tuple[int, T]
) -> None:
    from firnlake.engine.worker import packed

    number, own = task
    piece = 0
    for bucket, table in spread(own):
        check_bucket(bucket, buckets)
        for blob in packed(table):
            store.add(bucket, (number, piece), blob)
            piece += 1


def _gather(gather: "Callable[[int, Iterable[pa.Table]], R]", store: "Buckets", bucket: int) -> R:
    return gather(bucket, store.tables(bucket))


def check_bucket(bucket: int, buckets: int) -> None:
    """Raise ValueError for a bucket that is never gathered, because its records would be lost silently."""
    if not 0 <= bucket < buckets:
        raise ValueError(f"bucket {bucket} of a shuffle; allowed: 0 to {buckets - 1}")
