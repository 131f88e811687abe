"""The records of a benchmark: the same for every entry and on every machine, made by numpy as fast as they compress.

A topic partition is a tail, one record per key in the order of their last update, and a head of later updates. Which
records must be left is known from the draw itself: no entry's output is the measure of another's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firnlake.table.records import arrow_schema

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Keys = Literal["uniform", "append"]

TOPIC = "orders"
KEY_BYTES = 16
NOW_MS = 1_767_312_000_000
"""The clock of the benchmarks, epoch milliseconds; all records are a day older."""
DAY_MS = 86_400_000

TOMBSTONES = 0.01
"""Fraction of the head's records without a value. None of them may go in a first cleaning (C9)."""
NEW_PER_UPDATE = 3
"""``append``: so many records of new keys come with every update of an old one."""

_BLOCK = 4096
"""Records whose values are drawn at once."""
_FILLER = b'{"status":"shipped","carrier":"north","currency":"EUR","lines":[{"sku":"firn","quantity":1}],"note":"none"}'


@dataclass(frozen=True)
class Shape:
    """The shape of a benchmark's records.

    ``records`` is the tail's number over all partitions; with ``landed`` files there is no tail yet: all records are as
    they landed, in that many files of each partition. ``superseded`` is the fraction of the tail's keys that the
    head updates at least once; None: as many updates as the tail has records, so that exactly half of all records go.
    ``segments`` is about how many segments the tail has, at least one per partition.

    ``keys``: ``uniform``; ``append``: three of four records have new keys, updates hit the newest keys of the tail.
    """

    value_bytes: int
    keys: Keys
    superseded: float | None
    partitions: int
    records: int
    segments: int = 12
    landed: int = 0

    @property
    def title(self) -> str:
        goes = "half of all records go" if self.superseded is None else f"{self.superseded:.0%} of the tail superseded"
        parts = f"{self.partitions} partition{'s' if self.partitions > 1 else ''}"
        files = f", {self.landed} landed files" if self.landed else ""
        return f"{self.value_bytes:,} B values, {self.keys} keys, {goes}, {parts}{files}"


@dataclass(frozen=True)
class Stream:
    """Keys (as numbers) and offsets of one topic partition in offset order; tail and head are slices of it."""

    partition: int
    keys: Longs
    offsets: Longs
    tail: int
    tombstones: Flags

    def __len__(self) -> int:
        return len(self.keys)

    def survivors(self) -> Flags:
        """True for the newest record of each key."""
        newest = np.full(int(self.keys.max(initial=-1)) + 1, -1, np.int64)
        np.maximum.at(newest, self.keys, self.offsets)
        kept: Flags = newest[self.keys] == self.offsets
        return kept


def stream(shape: Shape, partition: int) -> Stream:
    """The records of ``partition``, without their values."""
    rng = np.random.default_rng([7, shape.value_bytes, shape.partitions, shape.records, partition])
    count = shape.records // shape.partitions
    tail = np.arange(count, dtype=np.int64) if shape.keys == "append" else rng.permutation(count)
    head = _head(shape, tail, rng)
    keys = np.concatenate([tail, head])
    # Cleaned segments have gaps; what was just written has none.
    gaps = np.concatenate([rng.integers(1, 4, len(tail)), np.ones(len(head), np.int64)])
    tombstones = np.zeros(len(keys), bool)
    tombstones[len(tail) :] = rng.random(len(head)) < TOMBSTONES
    return Stream(partition, keys, np.cumsum(gaps), len(tail), tombstones)


def batches(shape: Shape, one: Stream, start: int, stop: int) -> pa.Table:
    """Records ``start`` to ``stop`` of ``one`` in all columns of a table of records, as they land."""
    count = stop - start
    offsets = one.offsets[start:stop]
    stamps = NOW_MS - DAY_MS + offsets // 1000
    columns = {
        "key": _binary(keys_as_text(one.keys[start:stop])),
        "value": _binary(values(shape, one, start, stop), one.tombstones[start:stop]),
        "topic": pa.repeat(TOPIC, count),
        "partition": pa.repeat(pa.scalar(one.partition, pa.int32()), count),
        "offset": pa.array(offsets),
        "timestamp": pa.array(stamps * 1000).cast(pa.timestamp("us", tz="UTC")),
        "timestampType": pa.repeat(pa.scalar(0, pa.int32()), count),
    }
    schema = arrow_schema()
    arrays = [columns.get(name, pa.nulls(count)).cast(schema.field(name).type) for name in schema.names]
    return (
        pa.table(arrays, schema=schema)
        .append_column("level", pa.nulls(count, pa.int32()))
        .append_column("delete_horizon", pa.nulls(count, pa.timestamp("us", tz="UTC")))
    )


def keys_as_text(keys: Longs) -> Bytes:
    """One row of KEY_BYTES characters per key: a letter and decimal digits, so that text order is number order."""
    text = np.empty((len(keys), KEY_BYTES), np.uint8)
    text[:, 0] = ord("k")
    rest = keys.copy()
    for place in range(KEY_BYTES - 1, 0, -1):
        rest, digit = np.divmod(rest, 10)
        text[:, place] = digit + ord("0")
    return text


def values(shape: Shape, one: Stream, start: int, stop: int) -> Bytes:
    """One row per record: half of a value is random text of 64 letters, the other half is the same in all of them.

    A record has the same value whatever slice it is asked for in.
    """
    first = start // _BLOCK
    blocks = [_block(shape.value_bytes, one.partition, number) for number in range(first, -(-stop // _BLOCK))]
    return np.concatenate(blocks)[start - first * _BLOCK : stop - first * _BLOCK]


def _block(width: int, partition: int, number: int) -> Bytes:
    rng = np.random.default_rng([11, width, partition, number])
    random = width // 2
    rows = np.empty((_BLOCK, width), np.uint8)
    letters = np.frombuffer(rng.bytes(_BLOCK * random), np.uint8) & 63
    rows[:, :random] = (letters + ord("0")).reshape(-1, random)
    rest = width - random
    rows[:, random:] = np.frombuffer((_FILLER * (rest // len(_FILLER) + 1))[:rest], np.uint8)
    return rows


def slices(start: int, stop: int, parts: int) -> Iterator[tuple[int, int]]:
    """``parts`` neighbouring ranges from ``start`` to ``stop``, fewer where there are not as many records."""
    edges = np.unique(np.linspace(start, stop, parts + 1).astype(int))
    yield from zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def _head(shape: Shape, tail: Longs, rng: np.random.Generator) -> Longs:
    count = len(tail)
    if shape.keys == "append":
        updates = round(count * (shape.superseded or 1 / NEW_PER_UPDATE))
        keys = np.arange(count, count + updates * (NEW_PER_UPDATE + 1), dtype=np.int64)
        place = rng.choice(len(keys), updates, replace=False)
        keys[place] = rng.permutation(tail[count - updates :])
        return keys
    drawn = rng.integers(0, count, count)
    if shape.superseded is None:
        return drawn
    first = np.zeros(len(drawn), bool)
    first[np.unique(drawn, return_index=True)[1]] = True
    wanted = round(count * shape.superseded)
    enough = int(np.searchsorted(np.cumsum(first), wanted)) + 1
    return drawn[:enough]


def _binary(rows: Bytes, missing: Flags | None = None) -> pa.Array:
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little").tobytes())
    held = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [valid, held]).cast(pa.binary())
