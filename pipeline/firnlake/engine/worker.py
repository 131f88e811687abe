"""Handle one call of a Spark Python worker: pick tasks by number, run them, and return rows of SCHEMA.

Tables on their way from `spread` to `gather` are kept by bucket, in memory up to a limit and then in temporary files.
"""

import gc
import pickle
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self
from zipimport import zipimporter

import pyarrow as pa

from firnlake.engine.engine import attempt, identity, portable
from firnlake.engine.local import check_bucket

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


MEMORY_BYTES = 128 * 2**20
"""Maximum bytes of all buckets in memory; the rest goes to files."""

BLOB_BYTES = 32 * 2**20
"""Size of the pieces of a table, in bytes, small enough for every limit of 2 GB on a single value."""

Place = tuple[int, int]
"""Number of the task, and of the piece within the task. The pieces of a bucket are read in this order."""


class Buckets:
    """Pieces of tables, as Arrow IPC streams. Threads may add pieces concurrently, but not once reading has begun."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._left = memory_bytes
        self._kept: dict[int, list[tuple[Place, bytes | int]]] = defaultdict(list)
        self._folder = tempfile.TemporaryDirectory(prefix="firn-buckets-", ignore_cleanup_errors=True)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def add(self, bucket: int, place: Place, blob: bytes) -> None:
        """Add a piece."""
        with self._lock:
            if self._left >= len(blob):
                self._left -= len(blob)
                self._kept[bucket].append((place, blob))
                return
            path = self._path(bucket)
            start = path.stat().st_size if path.exists() else 0
            with path.open("ab") as file:
                file.write(blob)
            self._kept[bucket].append((place, start))

    def tables(self, bucket: int) -> Iterator[pa.Table]:
        """The pieces of a bucket in order, one at a time in memory."""
        kept = sorted(self._kept.get(bucket, ()), key=lambda one: one[0])
        if not any(isinstance(held, int) for _, held in kept):
            yield from (unpacked(held) for _, held in kept)
            return
        with pa.memory_map(str(self._path(bucket))) as file:
            for _, held in kept:
                if isinstance(held, int):
                    file.seek(held)
                    yield pa.ipc.open_stream(file).read_all()
                else:
                    yield unpacked(held)

    def _path(self, bucket: int) -> Path:
        return Path(self._folder.name, str(bucket))


def packed(table: pa.Table) -> Iterator[bytes]:
    """Split a table into Arrow IPC streams of about BLOB_BYTES at most; an empty table gives one without rows."""
    rows = max(1, table.num_rows * BLOB_BYTES // max(table.nbytes, 1))
    for start in range(0, max(table.num_rows, 1), rows):
        sink = pa.BufferOutputStream()
        piece = table.slice(start, rows)
        with pa.ipc.new_stream(sink, piece.schema) as writer:
            writer.write_table(piece)
        yield sink.getvalue().to_pybytes()


def unpacked(blob: "bytes | int") -> pa.Table:
    """The table of one Arrow IPC stream."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()


SCHEMA = "id int, task int, piece int, blob binary"
"""``id``: number of the task or bucket. ``task`` and ``piece``: position of a blob in its bucket."""

REFUSED = -1
"""``id`` of a row whose blob explains why this worker can't be used."""
FAILED = -1
"""``piece`` of a row whose blob is the exception that `spread` raised."""
MARK = -2
"""``piece`` of a row that only marks the existence of its bucket."""

_ARROW = pa.schema([("id", pa.int32()), ("task", pa.int32()), ("piece", pa.int32()), ("blob", pa.binary())])

Row = tuple[int, int, int, bytes]
Batches = Iterator[pa.RecordBatch]


def complaint(expected: str) -> str | None:
    """Reason why this worker can't serve version ``expected`` of Firn (any version if empty); None if it can."""
    actual = identity() if expected else ""
    return None if actual == expected else f"its Firn is {actual}, the driver's is {expected}"


def run_map(batches: Batches, function: bytes, tasks: Sequence[bytes], groups: Sequence[Sequence[int]]) -> Batches:
    """The pickled results of the tasks in every group whose number is in ``batches``."""
    run = attempt(pickle.loads, function)
    for group in _picked(batches, groups):
        yield _rows([(number, 0, 0, portable(_result(run, tasks[number]))) for number in group])
    keep_reuse_cheap()


def run_spread(
    batches: Batches, function: bytes, tasks: Sequence[bytes], groups: Sequence[Sequence[int]], buckets: int
) -> Batches:
    """The tables of every bucket in pieces, one per batch; the first group also yields a marker row per bucket."""
    spread = attempt(pickle.loads, function)
    for group in _picked(batches, groups):
        if group == groups[0]:
            yield _rows([(bucket, 0, MARK, b"") for bucket in range(buckets)])
        for number in group:
            pieces = _pieces(spread, tasks[number], number, buckets)
            while True:
                row = attempt(next, pieces, None)
                if row is None:
                    break
                if isinstance(row, Exception):
                    error = portable(row)
                    yield _rows([(bucket, number, FAILED, error) for bucket in range(buckets)])
                    break
                yield _rows([row])
    keep_reuse_cheap()


def run_gather(batches: Batches, function: bytes) -> Batches:
    """The pickled results of all buckets in this partition."""
    gather = attempt(pickle.loads, function)
    failed: dict[int, tuple[int, bytes]] = {}
    buckets: set[int] = set()
    with Buckets() as store:
        for batch in batches:
            for row in batch.to_pylist():
                bucket, task, piece, blob = row["id"], row["task"], row["piece"], row["blob"]
                if bucket == REFUSED:
                    yield _rows([(REFUSED, 0, 0, blob)])
                    continue
                buckets.add(bucket)
                if piece == FAILED:
                    # Keep the exception of the first task, in whatever order exceptions arrive.
                    failed[bucket] = min(failed.get(bucket, (task, blob)), (task, blob))
                elif piece != MARK:
                    store.add(bucket, (task, piece), blob)
        for bucket in sorted(buckets):
            if bucket in failed:
                yield _rows([(bucket, 0, 0, failed[bucket][1])])
                continue
            if isinstance(gather, Exception):
                result: Any = gather
            else:
                result = attempt(gather, bucket, store.tables(bucket))
            yield _rows([(bucket, 0, 0, portable(result))])
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


def _pieces(spread: Any, task: bytes, number: int, buckets: int) -> Iterator[Row]:
    if isinstance(spread, Exception):
        raise spread
    piece = 0
    for bucket, table in _loaded(spread, task):
        check_bucket(bucket, buckets)
        for blob in packed(table):
            yield bucket, number, piece, blob
            piece += 1


def _rows(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _ARROW, strict=True)],
        schema=_ARROW,
    )
