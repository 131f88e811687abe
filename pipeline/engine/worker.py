"""Handle one call of a Spark Python worker: pick tasks by number, run them, return rows of SCHEMA."""

import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from pipeline.engine.buckets import Buckets, packed
from pipeline.engine.engine import attempt, portable
from pipeline.engine.identity import identity
from pipeline.engine.local import check_bucket
from pipeline.engine.worker_reuse import keep_reuse_cheap

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
    """Reason why this worker can't serve the Firn ``expected`` (empty: any); None when it can."""
    actual = identity() if expected else ""
    return None if actual == expected else f"its Firn is {actual}, the driver's is {expected}"


def run_map(batches: Batches, function: bytes, tasks: Sequence[bytes], groups: Sequence[Sequence[int]]) -> Batches:
    """The pickled results of the tasks of every group that ``batches`` number."""
    run = attempt(pickle.loads, function)
    for group in _picked(batches, groups):
        yield _rows([(number, 0, 0, portable(_result(run, tasks[number]))) for number in group])
    keep_reuse_cheap()


def run_spread(
    batches: Batches, function: bytes, tasks: Sequence[bytes], groups: Sequence[Sequence[int]], buckets: int
) -> Batches:
    """The tables of every bucket in pieces, one piece per batch; the first group marks all buckets."""
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
                    # Keep the first task's, in whatever order they arrive.
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
