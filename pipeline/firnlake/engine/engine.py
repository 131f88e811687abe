"""Where tasks run: the contract of an engine, threads of this process, and the choice between these and Spark."""

import heapq
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from firnlake.errors import RefusedError, UnavailableError
from firnlake.progress import Progress

if TYPE_CHECKING:
    from firnlake.engine.spark import SparkEngine

BYTES_PER_GROUP = 256 * 2**20
MOST_ROUNDS = 4
"""Maximum number of groups per worker: more groups even out wrong weights, but past four the calls cost more."""


def balanced(weights: Sequence[int], workers: int) -> list[list[int]]:
    """Positions of ``weights`` (bytes) in balanced groups: heaviest group first, and in each the heaviest weight first.

    There are as many groups as workers, for large work up to four times as many, but never more groups than positions.
    """
    rounds = min(max(sum(weights) // (workers * BYTES_PER_GROUP), 1), MOST_ROUNDS)
    groups: list[list[int]] = [[] for _ in range(min(workers * rounds, len(weights)))]
    # Each position goes to the lightest group so far. A weight of zero still counts as 1, because each task is a call.
    lightest = [(0, number) for number in range(len(groups))]
    for position in heaviest_first(weights):
        weight, number = lightest[0]
        groups[number].append(position)
        heapq.heapreplace(lightest, (weight + max(weights[position], 1), number))
    return [groups[number] for _, number in sorted(lightest, key=lambda one: (-one[0], one[1]))]


def heaviest_first(weights: Sequence[int]) -> list[int]:
    """Positions of ``weights`` from the heaviest to the lightest; ties keep their order."""
    return sorted(range(len(weights)), key=lambda position: -weights[position])


MOST_THREADS = 4
"""Maximum number of threads per task when there are fewer tasks than workers."""


def threads_per_task(workers: int, tasks: int) -> int:
    """Number of threads that each of ``tasks`` large tasks may use."""
    return max(1, min(workers // max(1, tasks), MOST_THREADS))


T = TypeVar("T")
R = TypeVar("R")


class WorkerLostError(UnavailableError):
    """The worker of a task died, and died again with only this task: out of memory, or a crash of native code."""


class Engine(Protocol):
    """Runs tasks. Functions, tasks and results can be pickled; results are small (facts and counts, never records)."""

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at the same time."""

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], *, weights: Sequence[int] | None = None, title: str = ""
    ) -> list[R | Exception]:
        """Call ``function`` on every task; returns the results in the order of ``tasks``.

        ``weights`` are the bytes that the tasks read: the heaviest start first. ``title`` describes the work in
        progress bars and in Spark's UI. An exception of a task takes the place of its result and is never raised here.
        If a task repeatedly kills its worker, only this task's result becomes a WorkerLostError (C20).
        """


def attempt(function: Callable[..., R], *arguments: object) -> R | Exception:
    """Call ``function``; returns its result or its Exception. Interrupts and exits propagate."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001  # errors of tasks are data
        return error


class LocalEngine:
    """Threads of this process, without a JVM: ``threads`` tasks at a time, by default one per processor of the machine.

    Arrow, DuckDB and zstd release the interpreter's lock.
    Threads start and end with each call, so that the process may fork between two calls.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.parallelism = threads or os.cpu_count() or 1

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], *, weights: Sequence[int] | None = None, title: str = ""
    ) -> list[R | Exception]:
        """See Engine."""
        order = heaviest_first(weights) if weights is not None else list(range(len(tasks)))
        results: dict[int, R | Exception] = {}
        threads = min(self.parallelism, len(tasks))
        with Progress(title, len(tasks)) as progress:
            if threads == 1:
                for position in order:
                    results[position] = attempt(function, tasks[position])
                    progress.advance()
            else:
                with ThreadPoolExecutor(threads or 1, "firn") as pool:
                    running = {pool.submit(attempt, function, tasks[position]): position for position in order}
                    try:
                        for done in as_completed(running):
                            position = running[done]
                            results[position] = done.result()
                            progress.advance()
                    except BaseException:
                        # After an interrupt, or if a task exits, never start the remaining tasks.
                        pool.shutdown(wait=False, cancel_futures=True)
                        raise
        return [results[position] for position in range(len(tasks))]


CHOICES = ("spark", "local", "auto")
LOCAL_MAX_BYTES = 256 * 2**20


class Engines:
    """The engines of one command. Each engine starts at its first use, and only once.

    ``choice`` is one of CHOICES, by default FIRN_ENGINE, or ``auto`` if that is not set. With ``auto``, a job runs in
    this process if it has fewer input bytes than FIRN_LOCAL_MAX_BYTES (256 MiB if that is not set), or if Spark can't
    run. ``title`` names the Spark application. ``tell`` gets a line about the application once it runs, or the reason
    why Spark can't run. Raises RefusedError for any other ``choice``.
    """

    def __init__(
        self,
        choice: str | None = None,
        title: str = "firn",
        *,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.choice = choice or os.environ.get("FIRN_ENGINE") or "auto"
        if self.choice not in CHOICES:
            raise RefusedError(f"engine {self.choice!r}; allowed: {', '.join(CHOICES)}")
        self.local_max_bytes = _local_max_bytes()
        self._title = title
        self._tell = tell
        self._spark: SparkEngine | None = None
        self._without: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spark:
            self._spark.close()
            self._spark = None

    def of(self, input_bytes: int) -> Engine:
        """The engine for a job that reads ``input_bytes`` bytes; if these are none, this process.

        Raises UnavailableError when Spark does not start, and RefusedError when Spark is not installed or its workers
        can't run Firn.
        """
        if self.choice == "local" or not input_bytes or (self.choice == "auto" and not self._spark_suits(input_bytes)):
            return LocalEngine()
        if self._spark is None:
            self._spark = self._started()
        return self._spark

    def _spark_suits(self, input_bytes: int) -> bool:
        if input_bytes < self.local_max_bytes or self._without:
            return False
        from firnlake.engine.spark import lacking

        self._without = lacking()
        if self._without and self._tell:
            self._tell(f"{input_bytes:,} bytes are compacted in this process: {self._without}")
        return not self._without

    def _started(self) -> "SparkEngine":
        from firnlake.engine.spark import SparkEngine, application, ends_with_command, start

        session = start(self._title)
        said = application(session)
        if said and self._tell:
            self._tell(said)
        engine = SparkEngine(session, owned=ends_with_command())
        engine.check()
        return engine


def _local_max_bytes() -> int:
    text = os.environ.get("FIRN_LOCAL_MAX_BYTES") or str(LOCAL_MAX_BYTES)
    try:
        return int(text)
    except ValueError:
        raise RefusedError(f"FIRN_LOCAL_MAX_BYTES is {text!r}; allowed: a number of bytes") from None
