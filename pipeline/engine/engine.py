"""The interface of an engine, and how errors of tasks come back as data."""

import pickle
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from pipeline.errors import UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")


class WorkerLostError(UnavailableError):
    """The worker of a task died, and died again on this task alone: out of memory, or a crash of native code."""


class Engine(Protocol):
    """Runs tasks. Functions, tasks and results can be pickled; results are small (facts and counts, never records)."""

    @property
    def name(self) -> str:
        """``local`` or ``spark``."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at the same time."""

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], *, weights: Sequence[int] | None = None, title: str = ""
    ) -> list[R | Exception]:
        """``function`` of every task, in the order of ``tasks``.

        ``weights`` are the bytes that the tasks read: the heaviest start first. ``title`` says in progress and in
        Spark's UI what is done. What a task raised stands in its place and is never raised here; a worker that dies
        again and again on a task gives a WorkerLostError in place of that task only (C20).
        """

    def shuffle(
        self,
        spread: "Callable[[T], Iterable[tuple[int, pa.Table]]]",
        gather: "Callable[[int, Iterable[pa.Table]], R]",
        tasks: Sequence[T],
        buckets: int,
        *,
        title: str = "",
    ) -> list[R | Exception]:
        """``gather(bucket, tables)`` of every bucket from 0 to ``buckets`` - 1, in that order.

        ``spread`` of each task yields (bucket, table); the tables of a bucket come in the order of the tasks, maybe cut
        into smaller ones. A bucket that nobody filled has none. What ``gather`` raised stands in its bucket's place;
        where a ``spread`` raised, no bucket is whole, and what it raised stands in place of all.
        """

    def close(self) -> None:
        """Give back what was started for this engine."""


def attempt(function: Callable[..., R], *arguments: object) -> R | Exception:
    """What ``function`` gives or raises. What is no Exception (an interrupt, an exit) goes up."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001  # errors of tasks are data
        return error


def pickled(found: object) -> bytes:
    """``found`` pickled, functions that no module holds included."""
    from pyspark import cloudpickle

    return bytes(cloudpickle.dumps(found))  # type: ignore[no-untyped-call]


def portable(found: object) -> bytes:
    """``found`` pickled; an exception, or a result that can't be pickled, so that it can be raised where it arrives."""
    if isinstance(found, Exception):
        return _portable_error(found)
    try:
        return pickled(found)
    except Exception as error:  # noqa: BLE001  # whatever pickling calls
        return _portable_error(TypeError(f"a result of type {type(found).__name__} can't leave its worker: {error}"))


def _portable_error(error: Exception) -> bytes:
    """With the worker's stack as a note; as a RuntimeError of the same text where its class can't be pickled."""
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
