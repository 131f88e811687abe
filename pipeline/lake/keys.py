"""Record keys as Arrow arrays that compare exactly (C6), whatever columns form them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.lake.hashing import shards_of
from pipeline.lake.key_bytes import joined
from pipeline.lake.numpy_types import Longs

T = TypeVar("T")

NO_KEY: Final = -1
"""Code of NULL, and of a key that is not among the known ones."""

SHARD: Final = 1 << 16
"""Approximate number of keys compared at a time.

Their hash table fits a processor's cache, which is worth more than a second core.
"""
_MOST_SHARDS: Final = 256
_COMPARING: Final = 4
"""Number of shards compared at the same time."""


def keys_of(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """The key of every record of ``batch``; NULL when it has none, or when one of several columns is NULL (C5)."""
    if len(columns) == 1:
        return batch.column(columns[0])
    return joined([batch.column(name) for name in columns])


def codes_of(keys: pa.ChunkedArray) -> tuple[Longs, pa.Array]:
    """A code for every key, equal where keys are equal, NO_KEY for NULL; and the key of each code."""
    shards = _Shards.of(keys, len(keys))
    encoded = _of_each(pc.dictionary_encode, shards.keys)
    # All chunks share one dictionary; only the last has it complete.
    known = [own.chunk(own.num_chunks - 1).dictionary if len(own) else pa.array([], keys.type) for own in encoded]
    starts = np.cumsum([0, *(len(own) for own in known)]).tolist()
    codes = [
        _codes(chunk.indices, start) for own, start in zip(encoded, starts[:-1], strict=True) for chunk in own.chunks
    ]
    return shards.in_order(codes), pa.concat_arrays(known)


def places_in(keys: pa.Array | pa.ChunkedArray, known: pa.Array) -> Longs:
    """The code of each of ``keys`` among the ``known`` ones, which alone need a hash table; NO_KEY for others."""
    asked, among = (_Shards.of(part, len(known)) for part in (keys, known))
    indices = _of_each(_index_in, asked.keys, among.keys)
    starts = np.cumsum([0, *(len(own) for own in among.keys)]).tolist()
    codes = [_codes(chunk, start) for own, start in zip(indices, starts[:-1], strict=True) for chunk in own.chunks]
    places = asked.in_order(codes)
    return places if among.order is None else np.append(among.order, NO_KEY)[places]


def _of_each(function: Callable[..., T], *arguments: Sequence[Any]) -> list[T]:
    """Map ``function`` over all ``arguments`` in parallel, several calls at a time."""
    if len(arguments[0]) == 1:
        return [function(*(own[0] for own in arguments))]
    with ThreadPoolExecutor(_COMPARING) as comparing:
        return list(comparing.map(function, *arguments))


@dataclass(frozen=True)
class _Shards:
    """Keys in shards, equal keys in the same one. ``order``: the original place of each key; None when none moved."""

    keys: Sequence[pa.ChunkedArray]
    order: Longs | None

    @classmethod
    def of(cls, keys: pa.Array | pa.ChunkedArray, compared: int) -> "_Shards":
        """Split ``keys`` into as many shards as ``compared`` keys require."""
        whole = pa.chunked_array([keys]) if isinstance(keys, pa.Array) else keys
        count = min(compared // SHARD, _MOST_SHARDS)
        if count <= 1:
            return cls([whole], None)
        if not len(whole):
            return cls([whole] * count, np.empty(0, dtype=np.int64))
        size = -(-len(whole) // _COMPARING)
        starts = range(0, len(whole), size)
        parts = _of_each(lambda start: _sharded(whole.slice(start, size), start, count), starts)
        own = [pa.chunked_array([taken[shard] for taken, _ in parts]) for shard in range(count)]
        return cls(own, np.concatenate([order[shard] for shard in range(count) for _, order in parts]))

    def in_order(self, codes: Sequence[Longs]) -> Longs:
        """The ``codes`` of the keys, given shard after shard, in the original order of the keys."""
        every = np.concatenate([np.empty(0, dtype=np.int64), *codes])
        if self.order is None:
            return every
        ordered = np.empty_like(every)
        ordered[self.order] = every
        return ordered


def _sharded(keys: pa.ChunkedArray, start: int, count: int) -> tuple[list[pa.Array], list[Longs]]:
    """The ``keys`` of each shard and their places, which count from ``start``."""
    whole = pa.concat_arrays(keys.chunks)
    shards = shards_of(whole, count)
    order = np.argsort(shards, kind="stable")
    taken = whole.take(pa.array(order))
    order += start
    ends = [0, *np.cumsum(np.bincount(shards, minlength=count)).tolist()]
    return [taken.slice(low, high - low) for low, high in pairwise(ends)], [
        order[low:high] for low, high in pairwise(ends)
    ]


def _index_in(keys: pa.ChunkedArray, known: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.index_in(keys, value_set=known)


def _codes(indices: pa.Array, start: int) -> Longs:
    """Convert places in a shard's dictionary, which begins at ``start``, to those in all of them; NO_KEY for NULL."""
    codes: Longs = indices.fill_null(NO_KEY - start).to_numpy(zero_copy_only=False).astype(np.int64)
    codes += start
    return codes
