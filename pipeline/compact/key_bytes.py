"""Bytes of values of any type that a key may have."""

from typing import Final

import numpy as np
import pyarrow as pa

LENGTH: Final = np.dtype("<i8")
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
    return fixed(values, len(whole), kind.bit_width // 8, validity).cast(pa.large_binary())


def fixed(values: pa.Buffer, count: int, width: int, validity: pa.Buffer | None = None) -> pa.Array:
    """``count`` values of ``width`` bytes each."""
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [validity, values])
