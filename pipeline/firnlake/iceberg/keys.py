"""Record keys as Arrow arrays that are compared exactly (C6), whatever columns form a key; bytes and hashes of keys."""

from collections.abc import Sequence
from typing import Final

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


def rows_of(batch: pa.RecordBatch) -> pa.Array:
    """The bytes of each row, over all columns. NULL equals NULL, and differs from every value."""
    valid = [column.is_valid().cast(pa.int8()) for column in batch.columns]
    held = map(bytes_of, batch.columns)
    return joined([*valid, *(one.fill_null(pa.scalar(b"", one.type)) if one.null_count else one for one in held)])


def _with_length(part: pa.Array) -> tuple[pa.Array, pa.Array]:
    held = bytes_of(part)
    lengths = pc.fill_null(pc.binary_length(held), 0).to_numpy(zero_copy_only=False).astype(_LENGTH)
    return _fixed(pa.py_buffer(lengths), len(lengths), _LENGTH.itemsize).cast(pa.large_binary()), held


def _fixed(values: pa.Buffer, count: int, width: int, validity: pa.Buffer | None = None) -> pa.Array:
    """``count`` values of ``width`` bytes each."""
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [validity, values])


NO_KEY: Final = -1
"""Code of NULL, and of a key that is not among the known keys."""


def keys_of(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """The key of every record of ``batch``; NULL for a record without key, or with NULL in one of ``columns`` (C5)."""
    if len(columns) == 1:
        return batch.column(columns[0])
    return joined([batch.column(name) for name in columns])


def codes_of(keys: pa.ChunkedArray) -> tuple[Longs, pa.Array]:
    """A code for every key (equal codes for equal keys, NO_KEY for NULL), and the key of each code."""
    encoded = pc.dictionary_encode(keys)
    # All chunks share one dictionary; only the last chunk has the complete dictionary.
    known = encoded.chunk(encoded.num_chunks - 1).dictionary if encoded.num_chunks else pa.array([], keys.type)
    return _codes(pa.chunked_array([chunk.indices for chunk in encoded.chunks], pa.int32())), known


def places_in(keys: pa.Array | pa.ChunkedArray, known: pa.Array) -> Longs:
    """The place of each of ``keys`` in ``known``; NO_KEY for an unknown key. Only ``known`` needs a hash table."""
    return _codes(pc.index_in(keys, value_set=known))


def _codes(indices: pa.Array | pa.ChunkedArray) -> Longs:
    codes: Longs = indices.fill_null(NO_KEY).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
