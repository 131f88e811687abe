"""Digests of keys: HMAC-SHA256 of a key's bytes under the table's secret (C30).

Who reads the table's metadata finds the secret beside the digests, and can test a guess of a key. Nobody can read a key
out of a digest, and digests of two tables do not compare.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.erase.requests import Request
from pipeline.lake.key_bytes import bytes_of, joined

SECRET_BYTES: Final = 32
_BLOCK: Final = 64
"""Bytes of a block of SHA-256, to which HMAC pads its key (RFC 2104)."""


def key_bytes(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """The bytes of every record's key; NULL where it has none, or where one of several columns is NULL (C5).

    One column: its bytes; several: each with its length before it. An int counts as a long, because Iceberg promotes a
    column from one to the other, and its values stay the same keys.
    """
    parts = [_promoted(batch.column(name)) for name in columns]
    return bytes_of(parts[0]) if len(parts) == 1 else joined(parts)


def digests_of(keys: pa.Array, secret: bytes) -> list[bytes | None]:
    """The digests, 32 bytes each, of ``keys`` as `key_bytes` gives them; None for NULL."""
    # `hmac.digest` gives up the interpreter's lock for every key, so that threads wait for each other.
    inner, outer = (bytes(byte ^ pad for byte in secret.ljust(_BLOCK, b"\0")) for pad in (0x36, 0x5C))
    sha256 = hashlib.sha256
    return [None if key is None else sha256(outer + sha256(inner + key).digest()).digest() for key in keys.to_pylist()]


class Matcher:
    """Tells which records of one topic partition its ``requests`` ask to erase."""

    def __init__(self, secret: bytes, requests: Iterable[Request]) -> None:
        self._secret = secret
        self._below: dict[bytes, int] = {}
        for one in requests:
            self._below[one.digest] = max(one.below, self._below.get(one.digest, 0))
        self.below = max(self._below.values(), default=0)
        """No record with this offset or a higher one is meant."""

    def matches(self, keys: pa.Array, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """True for each record that is meant, by its key (`key_bytes`) and its offset. Exact, by the digest (C6)."""
        matching = np.zeros(len(keys), np.bool_)
        (places,) = np.nonzero(offsets < self.below)
        if not len(places):
            return matching
        encoded = pc.dictionary_encode(keys.take(pa.array(places)))
        digests = digests_of(encoded.dictionary, self._secret)
        below = np.array([self._below.get(one, 0) if one else 0 for one in digests] + [0], np.int64)
        codes = encoded.indices.fill_null(len(digests)).to_numpy(zero_copy_only=False)
        matching[places] = offsets[places] < below[codes]
        return matching


def _promoted(part: pa.Array) -> pa.Array:
    return part.cast(pa.int64()) if pa.types.is_int32(part.type) else part
