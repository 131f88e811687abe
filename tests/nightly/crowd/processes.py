"""Processes of their own, forked by a server that has imported everything: ten that import it all take minutes."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

T = TypeVar("T")

PRELOADED = (
    "duckdb",
    "firnlake_expectations.suites",
    "firnlake.compact.compact",
    "firnlake.publish.publish",
    "firnlake.validate.validate",
)
ENDS_WITHIN = 600
"""Seconds; a process that takes longer hangs, and so would whoever waits for it."""


def forked() -> ForkServerContext:
    """The context whose processes share nothing with this one, as spawned ones do."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(list(PRELOADED))
    return found


@contextmanager
def working(work: Callable[..., T], arguments: Iterable[tuple[object, ...]]) -> Iterator[Callable[[], list[T]]]:
    """Processes that do ``work``, each with arguments of its own and an event at which it ends.

    What is yielded tells them to end, and returns what they have returned.
    """
    context = forked()
    stop, results = context.Event(), context.Queue()
    processes = [context.Process(target=_work, args=(results, work, *one, stop), daemon=True) for one in arguments]
    for process in processes:
        process.start()

    def ended() -> list[T]:
        stop.set()
        return [results.get(timeout=ENDS_WITHIN) for _ in processes]

    try:
        yield ended
    finally:
        for process in processes:
            process.kill()
            process.join()


def _work(results: "Queue[T]", work: Callable[..., T], *arguments: object) -> None:
    results.put(work(*arguments))
