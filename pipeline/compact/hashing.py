"""The bucket of a key: fixed and unsalted, the same in every process and for every engine."""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.compact.keys import bytes_of

_ENDS: Final = 64
"""So many bytes of the beginning and of the end of a key are looked at: keys of megabytes cost no more than others."""
_PRIME: Final = np.uint64(0x100000001B3)
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


def buckets_of(keys: pa.Array, buckets: int) -> NDArray[np.int64]:
    """The bucket of every key, below ``buckets``; that of NULL is 0. Equal keys have equal buckets."""
    held = bytes_of(keys)
    offsets = np.frombuffer(held.buffers()[1], dtype=np.int64)[held.offset : held.offset + len(held) + 1]
    content = np.frombuffer(held.buffers()[2] or b"", dtype=np.uint8)
    starts, ends = offsets[:-1], offsets[1:]
    found = (ends - starts).astype(np.uint64)
    longest = int((ends - starts).max(initial=0))
    with np.errstate(over="ignore"):
        for step in range(min(longest, _ENDS)):
            for place in (starts + step, ends - 1 - step):
                inside = (place >= starts) & (place < ends)
                # A step past the end of a key changes nothing: the bucket depends on the key alone, not on its batch.
                found[inside] = (found[inside] ^ content[place[inside]]) * _PRIME
        found = (found ^ (found >> np.uint64(29))) * _MIX
        found ^= found >> np.uint64(32)
    result = (found % np.uint64(buckets)).astype(np.int64)
    if keys.null_count:
        result[keys.is_null().to_numpy(zero_copy_only=False)] = 0
    return result
