"""Hashing: the bucket of a key, and its shard within a task; unsalted, the same in every process and engine."""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.lake.key_bytes import bytes_of

_ENDS: Final = 64
"""Number of bytes hashed at each end of a key: keys of megabytes cost no more than others."""
_PRIME: Final = np.uint64(0x100000001B3)
_SMALL_PRIME: Final = np.uint32(0x01000193)
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


def buckets_of(keys: pa.Array, buckets: int) -> NDArray[np.int64]:
    """The bucket of every key, below ``buckets``; 0 for NULL. Equal keys have equal buckets."""
    starts, ends, content = _parts(keys)
    hashes = (ends - starts).astype(np.uint64)
    longest = int((ends - starts).max(initial=0))
    with np.errstate(over="ignore"):
        for step in range(min(longest, _ENDS)):
            for place in (starts + step, ends - 1 - step):
                inside = (place >= starts) & (place < ends)
                # A step past the end of a key changes nothing: the bucket depends on the key alone, not on its batch.
                hashes[inside] = (hashes[inside] ^ content[place[inside]]) * _PRIME
        hashes = (hashes ^ (hashes >> np.uint64(29))) * _MIX
        hashes ^= hashes >> np.uint64(32)
    result = (hashes % np.uint64(buckets)).astype(np.int64)
    if keys.null_count:
        result[keys.is_null().to_numpy(zero_copy_only=False)] = 0
    return result


def shards_of(keys: pa.Array, shards: int) -> NDArray[np.uint8]:
    """The shard of every key, below ``shards`` (at most 256); any for NULL. Equal keys have equal shards.

    Hashing a few bytes is fast; keys that differ elsewhere share a shard, which only costs time.
    """
    starts, ends, content = _parts(keys)
    hashes = (ends - starts).astype(np.uint32)
    if not len(content):
        return np.zeros(len(keys), dtype=np.uint8)
    last = ends - 1
    for place in (last, np.maximum(last - 1, starts), np.maximum(last - 2, starts), (starts + last) >> 1):
        # For an empty key this reads a neighbour's byte, or none; it is undone below.
        hashes = hashes * _SMALL_PRIME + content.take(place, mode="clip")
    hashes[starts == ends] = 0
    hashes ^= hashes >> np.uint32(15)
    return (hashes % np.uint32(shards)).astype(np.uint8)


def _parts(keys: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """The start and end of each key, and the bytes of all keys."""
    held = bytes_of(keys)
    offsets = np.frombuffer(held.buffers()[1], dtype=np.int64)[held.offset : held.offset + len(held) + 1]
    return offsets[:-1], offsets[1:], np.frombuffer(held.buffers()[2] or b"", dtype=np.uint8)
