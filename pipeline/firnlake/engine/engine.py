"""The interface of an engine, and helpers of engines: task errors as data, balanced groups."""

import heapq
import pickle
import traceback
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from firnlake.errors import UnavailableError

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
    by_group = {number: weight for weight, number in lightest}
    return [groups[number] for number in sorted(by_group, key=lambda number: (-by_group[number], number))]


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
    def name(self) -> str:
        """``local`` or ``spark``."""

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

    def close(self) -> None:
        """Release the resources started for this engine."""


def attempt(function: Callable[..., R], *arguments: object) -> R | Exception:
    """Call ``function``; returns its result or its Exception. Interrupts and exits propagate."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001  # errors of tasks are data
        return error


def pickled(value: object) -> bytes:
    """Pickle ``value``, including functions that belong to no module."""
    from pyspark import cloudpickle

    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def portable(value: object) -> bytes:
    """Pickle ``value``. If it is an exception or can't be pickled, pickle an exception that can be unpickled."""
    if isinstance(value, Exception):
        return _portable_error(value)
    try:
        return pickled(value)
    except Exception as error:  # noqa: BLE001  # whatever pickling calls
        return _portable_error(
            TypeError(f"a result of type {type(value).__name__} can't be sent back by its worker: {error}")
        )


def _portable_error(error: Exception) -> bytes:
    """Pickle ``error`` with the worker's stack as a note, or a RuntimeError with its text if that fails."""
    stack = "".join(traceback.format_exception(error))
    try:
        error.add_note(stack)
        document = pickle.dumps(error)
        pickle.loads(document)  # noqa: S301  # made in the line above
    except Exception:  # noqa: BLE001  # whatever pickling calls
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        plain.add_note(stack)
        return pickle.dumps(plain)
    return document
