"""Keys of records as Arrow arrays that can be compared exactly (C6), whatever columns make them."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.compact.latest_per_key import NO_KEY, Longs

_LENGTH: Final = np.dtype("<i8")


def keys_of(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """The key of every record of ``batch``; NULL where there is none, or where one of several columns is NULL (C5)."""
    if len(columns) == 1:
        return batch.column(columns[0])
    return joined([batch.column(name) for name in columns])


def joined(parts: Sequence[pa.Array]) -> pa.Array:
    """The bytes of several columns as one column, each after its length, so that no two records get the same."""
    pieces = [piece for part in parts for piece in _with_length(part)]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()), null_handling="emit_null")


def codes_of(keys: pa.ChunkedArray) -> tuple[Longs, pa.Array]:
    """A code for every key, equal where keys are equal, NO_KEY for NULL; and the key of each code."""
    if keys.num_chunks == 0:
        return np.empty(0, dtype=np.int64), pa.array([], keys.type)
    encoded = pc.dictionary_encode(keys)
    codes = np.concatenate([_codes(chunk.indices) for chunk in encoded.chunks])
    # All chunks share one dictionary, which the last has whole.
    return codes, encoded.chunk(encoded.num_chunks - 1).dictionary


def places_in(keys: pa.Array | pa.ChunkedArray, known: pa.Array) -> Longs:
    """The code of every one of ``keys`` among the ``known`` ones; NO_KEY for others."""
    found = pc.index_in(keys, value_set=known)
    return _codes(found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found)


def _codes(indices: pa.Array) -> Longs:
    found: Longs = pc.fill_null(indices, NO_KEY).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _with_length(part: pa.Array) -> tuple[pa.Array, pa.Array]:
    held = bytes_of(part)
    lengths = pc.fill_null(pc.binary_length(held), 0).to_numpy(zero_copy_only=False).astype(_LENGTH)
    return _fixed(pa.py_buffer(lengths), len(lengths), _LENGTH.itemsize).cast(pa.large_binary()), held


def bytes_of(part: pa.Array) -> pa.Array:
    """Every value as its bytes, NULL where it is NULL."""
    kind = part.type
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) or pa.types.is_fixed_size_binary(kind):
        return part.cast(pa.large_binary())
    if pa.types.is_boolean(kind):
        return bytes_of(part.cast(pa.int8()))
    whole = pa.concat_arrays([part]) if part.offset else part
    validity, values = whole.buffers()[:2]
    return _fixed(values, len(whole), kind.bit_width // 8, validity).cast(pa.large_binary())


def _fixed(values: pa.Buffer, count: int, width: int, validity: pa.Buffer | None = None) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [validity, values])
