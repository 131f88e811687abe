"""Record keys as Arrow arrays that are compared exactly (C6), whatever columns form a key; bytes and hashes of keys."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Longs = NDArray[np.int64]

_LENGTH: Final = np.dtype("<i8")
"""Encoding of the length of a key part."""


def bytes_of(part: pa.Array) -> pa.Array:
    """The bytes of every value; NULL stays NULL."""
    kind = part.type
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) or pa.types.is_fixed_size_binary(kind):
        return part.cast(pa.large_binary())
    if pa.types.is_boolean(kind):
        return bytes_of(part.cast(pa.int8()))
    whole = pa.concat_arrays([part]) if part.offset else part
    validity, values = whole.buffers()[:2]
    return _fixed(values, len(whole), kind.bit_width // 8, validity).cast(pa.large_binary())


def joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Join the bytes of several columns, each prefixed with its length, so that different keys stay different."""
    pieces = [piece for part in parts for piece in _with_length(part)]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()), null_handling="emit_null")


def _with_length(part: pa.Array) -> tuple[pa.Array, pa.Array]:
    held = bytes_of(part)
    lengths = pc.fill_null(pc.binary_length(held), 0).to_numpy(zero_copy_only=False).astype(_LENGTH)
    return _fixed(pa.py_buffer(lengths), len(lengths), _LENGTH.itemsize).cast(pa.large_binary()), held


def _fixed(values: pa.Buffer, count: int, width: int, validity: pa.Buffer | None = None) -> pa.Array:
    """``count`` values of ``width`` bytes each."""
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [validity, values])


_SMALL_PRIME: Final = np.uint32(0x01000193)


def shards_of(keys: pa.Array, shards: int) -> NDArray[np.uint8]:
    """The shard number of every key, less than ``shards`` (at most 256); any number for NULL. Equal keys have equal
    shards.

    Only a few bytes of a key are hashed, which is fast. Keys that differ only in other bytes share a shard, which costs
    nothing but time.
    """
    starts, ends, content = _parts(keys)
    hashes = (ends - starts).astype(np.uint32)
    if not len(content):
        return np.zeros(len(keys), dtype=np.uint8)
    last = ends - 1
    for place in (last, np.maximum(last - 1, starts), np.maximum(last - 2, starts), (starts + last) >> 1):
        # For an empty key, this reads a byte of another key; therefore the hash of empty keys is reset below.
        hashes = hashes * _SMALL_PRIME + content.take(place, mode="clip")
    hashes[starts == ends] = 0
    hashes ^= hashes >> np.uint32(15)
    return (hashes % np.uint32(shards)).astype(np.uint8)


def _parts(keys: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """The start and end of each key, and the bytes of all keys."""
    held = bytes_of(keys)
    offsets = np.frombuffer(held.buffers()[1], dtype=np.int64)[held.offset : held.offset + len(held) + 1]
    return offsets[:-1], offsets[1:], np.frombuffer(held.buffers()[2] or b"", dtype=np.uint8)


T = TypeVar("T")

NO_KEY: Final = -1
"""Code of NULL, and of a key that is not among the known keys."""

SHARD: Final = 1 << 16
"""Approximate number of keys in a shard.

A hash table of this size fits into a processor's cache, which saves more time than a second core would.
"""
_MOST_SHARDS: Final = 256
_COMPARING: Final = 4
"""Number of shards compared at the same time."""


def keys_of(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """The key of every record of ``batch``; NULL for a record without key, or with NULL in one of ``columns`` (C5)."""
    if len(columns) == 1:
        return batch.column(columns[0])
    return joined([batch.column(name) for name in columns])


def codes_of(keys: pa.ChunkedArray) -> tuple[Longs, pa.Array]:
    """A code for every key (equal codes for equal keys, NO_KEY for NULL), and the key of each code."""
    shards = _Shards.of(keys, len(keys))
    encoded = _of_each(pc.dictionary_encode, shards.keys)
    # All chunks share one dictionary; only the last chunk has the complete dictionary.
    known = [own.chunk(own.num_chunks - 1).dictionary if len(own) else pa.array([], keys.type) for own in encoded]
    starts = np.cumsum([0, *(len(own) for own in known)]).tolist()
    codes = [
        _codes(chunk.indices, start) for own, start in zip(encoded, starts[:-1], strict=True) for chunk in own.chunks
    ]
    return shards.in_order(codes), pa.concat_arrays(known)


def places_in(keys: pa.Array | pa.ChunkedArray, known: pa.Array) -> Longs:
    """The place of each of ``keys`` in ``known``; NO_KEY for an unknown key. Only ``known`` needs a hash table."""
    asked, among = (_Shards.of(part, len(known)) for part in (keys, known))
    indices = _of_each(lambda shard, known_shard: pc.index_in(shard, value_set=known_shard), asked.keys, among.keys)
    starts = np.cumsum([0, *(len(own) for own in among.keys)]).tolist()
    codes = [_codes(chunk, start) for own, start in zip(indices, starts[:-1], strict=True) for chunk in own.chunks]
    places = asked.in_order(codes)
    return places if among.order is None else np.append(among.order, NO_KEY)[places]


def _of_each(function: Callable[..., T], *arguments: Sequence[Any]) -> list[T]:
    """Map ``function`` over ``arguments``, as ``map`` does, with several calls in parallel."""
    if len(arguments[0]) == 1:
        return [function(*(own[0] for own in arguments))]
    with ThreadPoolExecutor(_COMPARING) as comparing:
        return list(comparing.map(function, *arguments))


@dataclass(frozen=True)
class _Shards:
    """Keys in shards, with equal keys in the same shard. ``order`` is the original place of each key; None when every
    key is at its original place."""

    keys: Sequence[pa.ChunkedArray]
    order: Longs | None

    @classmethod
    def of(cls, keys: pa.Array | pa.ChunkedArray, compared: int) -> "_Shards":
        """Split ``keys`` into shards. The number of shards grows with ``compared``, the number of keys to be hashed."""
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
        """Bring ``codes``, which are given shard by shard, into the original order of the keys."""
        every = np.concatenate([np.empty(0, dtype=np.int64), *codes])
        if self.order is None:
            return every
        ordered = np.empty_like(every)
        ordered[self.order] = every
        return ordered


def _sharded(keys: pa.ChunkedArray, start: int, count: int) -> tuple[list[pa.Array], list[Longs]]:
    """The ``keys`` of each shard, and the places of these keys, counted from ``start``."""
    whole = pa.concat_arrays(keys.chunks)
    shards = shards_of(whole, count)
    order = np.argsort(shards, kind="stable")
    taken = whole.take(pa.array(order))
    order += start
    ends = [0, *np.cumsum(np.bincount(shards, minlength=count)).tolist()]
    return [taken.slice(low, high - low) for low, high in pairwise(ends)], [
        order[low:high] for low, high in pairwise(ends)
    ]


def _codes(indices: pa.Array, start: int) -> Longs:
    """Convert places in the dictionary of one shard to places in the concatenated dictionaries of all shards, in which
    this dictionary begins at ``start``; NO_KEY for NULL."""
    codes: Longs = indices.fill_null(NO_KEY - start).to_numpy(zero_copy_only=False).astype(np.int64)
    codes += start
    return codes
