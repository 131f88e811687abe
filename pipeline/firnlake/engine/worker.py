"""Handle one call of a Spark Python worker: pick tasks by number, run them, and return rows of SCHEMA."""

import gc
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any
from zipimport import zipimporter

import pyarrow as pa

from firnlake.engine.engine import attempt, portable

_NEW_MODULES = 50

_frozen_at = 0


def keep_reuse_cheap() -> None:
    """Drop cached archives of the import path, which reopen on demand, and exempt modules from garbage collection.

    Modules that are loaded later are exempted when there are enough of them.
    """
    global _frozen_at
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]
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


def run_map(batches: Batches, function: bytes, tasks: Sequence[bytes], groups: Sequence[Sequence[int]]) -> Batches:
    """The pickled results of the tasks in every group whose number is in ``batches``."""
    run = attempt(pickle.loads, function)
    for group in _picked(batches, groups):
        results = [portable(_result(run, tasks[number])) for number in group]
        yield pa.RecordBatch.from_arrays([pa.array(group, pa.int32()), pa.array(results, pa.binary())], schema=_ARROW)
    keep_reuse_cheap()


def run_read(batches: Batches, tasks: Mapping[int, bytes]) -> Batches:
    """The record batches of the tasks whose number is in ``batches``."""
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield from pickle.loads(tasks[number])()  # noqa: S301  # the driver's own
    keep_reuse_cheap()


def run_write(batches: Batches, task: bytes) -> Batches:
    """What the task makes of ``batches``."""
    yield from pickle.loads(task)(batches)  # noqa: S301  # the driver's own
    keep_reuse_cheap()


def _picked(batches: Batches, groups: Sequence[Sequence[int]]) -> Iterator[Sequence[int]]:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield groups[number]


def _result(run: Any, task: bytes) -> Any:
    if isinstance(run, Exception):
        return run
    return attempt(partial(_loaded, run, task))


def _loaded(run: Any, task: bytes) -> Any:
    return run(pickle.loads(task))  # noqa: S301  # the driver's own
