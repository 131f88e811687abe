"""Bytes of keys: of values of any type that a key may have, and of keys of several columns."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
