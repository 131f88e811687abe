"""Handle one call of a Spark Python worker: run its tasks, and return their rows."""

import gc
import pickle
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from firnlake.engine.engine import attempt

_NEW_MODULES = 50

_frozen_at = 0


def keep_reuse_cheap() -> None:
    """Exempt modules from the garbage collection with which Spark ends each task.

    Modules that are loaded later are exempted when there are enough of them.
    """
    global _frozen_at
    if len(sys.modules) >= _frozen_at + _NEW_MODULES:
        gc.collect()
        gc.freeze()
        _frozen_at = len(sys.modules)


SCHEMA = "task int, result binary"
"""``task``: number of the task. ``result``: its pickled result, or the exception that it raised."""

_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_(), "string": pa.string(), "binary": pa.binary()}


def in_arrow(columns: str) -> pa.Schema:
    """The Arrow schema of ``columns`` as Spark declares them."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in map(str.split, columns.split(","))])


_ARROW = in_arrow(SCHEMA)

Batches = Iterator[pa.RecordBatch]


def complaint(expected: str) -> str | None:
    """Reason why this worker can't serve a driver with version ``expected`` of Firn; None if it can."""
    actual = version("firnlake")
    return None if actual == expected else f"it has Firn {actual}, the driver has Firn {expected}"


def run(batches: Batches, task: bytes) -> Batches:
    """What the pickled ``task`` makes of ``batches``."""
    yield from pickle.loads(task)(batches)  # noqa: S301  # the driver's own
    keep_reuse_cheap()


def read(tasks: Mapping[int, bytes], batches: Batches) -> Batches:
    """The record batches of the pickled ``tasks`` whose number is in ``batches``."""
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield from pickle.loads(tasks[number])()  # noqa: S301  # the driver's own


def results(function: bytes, tasks: Mapping[int, bytes]) -> Batches:
    """What the pickled ``function`` returns for each of the pickled ``tasks``, by number; rows of SCHEMA."""
    called = attempt(pickle.loads, function)
    returned = [portable(_result(called, task)) for task in tasks.values()]
    columns = [pa.array(list(tasks), pa.int32()), pa.array(returned, pa.binary())]
    yield pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _result(run: Any, task: bytes) -> Any:
    return run if isinstance(run, Exception) else attempt(lambda: run(pickle.loads(task)))  # noqa: S301  # the driver's own


def pickled(value: object) -> bytes:
    """Pickle ``value``, including functions that belong to no module."""
    from pyspark import cloudpickle

    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def portable(value: object) -> bytes:
    """Pickle ``value``; an exception gets the worker's stack as a note. What can't be unpickled becomes a RuntimeError
    that says what it was."""
    what = f"a result of type {type(value).__name__} can't be sent back by its worker"
    note = ""
    if isinstance(value, Exception):
        what, note = f"{type(value).__name__}: {value}", "".join(traceback.format_exception(value))
        value.add_note(note)
    try:
        document = pickled(value)
        pickle.loads(document)  # noqa: S301  # made in the line above
    except Exception as error:  # noqa: BLE001  # whatever pickling calls
        plain = RuntimeError(what if note else f"{what}: {error}")
        plain.add_note(note or traceback.format_exc())
        return pickle.dumps(plain)
    return document
