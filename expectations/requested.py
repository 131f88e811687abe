"""The requests that the judge of lane `erase` holds, and the digest of a key, by SQL alone (C30).

A request names a key by HMAC-SHA256 (RFC 2104) under the table's secret, and the offsets below a bound. A key's bytes
are those of its value: bytes and UUIDs as they are, text as UTF-8, numbers little-endian (integers in 8 bytes, decimals
unscaled in 16, dates as days in 4, times as microseconds in 8); of several columns each with its length in 8 bytes
before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from expectations.fingerprint import plain_type

if TYPE_CHECKING:
    from expectations.column_mapping import Reading
    from expectations.duck import Duck

_BLOCK: Final = 64
"""Bytes of a block of SHA-256, to which HMAC pads its secret."""


@dataclass(frozen=True)
class Requested:
    """The requests that plans serve: index of the claim, digest of the key, and the offset below which it goes."""

    secret: bytes = field(repr=False)
    rows: tuple[tuple[int, bytes, int], ...] = field(repr=False)

    def make(self, duck: Duck) -> None:
        """Create the table of requests."""
        kinds = pa.schema([("plan", pa.int32()), ("digest", pa.binary()), ("below", pa.int64())])
        columns = list(zip(*self.rows, strict=True)) or [(), (), ()]
        told = pa.table([pa.array(column, kind.type) for column, kind in zip(columns, kinds, strict=True)], kinds)
        with duck.seeing(told=told):
            duck.run("CREATE TABLE requests AS SELECT * FROM told")

    def digest(self, key: str, schema: pa.Schema, reading: Reading) -> str:
        """SQL for the digest of `key`, as the tables hold it."""
        inner, outer = (_literal(bytes(byte ^ pad for byte in self.secret.ljust(_BLOCK, b"\0"))) for pad in (54, 92))
        return f"unhex(sha256({outer} || unhex(sha256({inner} || {key_bytes(key, schema, reading)}))))"

    def only_named(self, query: str, schema: pa.Schema, reading: Reading, *, control: bool) -> str:
        """The records of `query` that a request may name."""
        user = "key IS NOT NULL" + (" AND NOT control" if control else "")
        return f"""SELECT * FROM ({query}) AS stays SEMI JOIN requests ON requests.plan = stays.plan
            AND stays."offset" < requests.below AND requests.digest = {self.digest("stays.key", schema, reading)}
            WHERE {user} AND "offset" < (SELECT max(below) FROM requests)"""


def key_bytes(key: str, schema: pa.Schema, reading: Reading) -> str:
    """SQL for the bytes of `key`, which has the columns of `reading` in `schema`."""
    kinds = [plain_type(schema.field(name).type) for name in reading.key]
    if len(kinds) == 1:
        return _bytes(key, kinds[0])
    parts = [_bytes(f"{key}.k{number}", kind) for number, kind in enumerate(kinds)]
    return " || ".join(f"{_little_endian(f'octet_length({part})', 8)} || {part}" for part in parts)


def _bytes(value: str, kind: pa.DataType) -> str:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"encode({value})"
    if pa.types.is_boolean(kind):
        return _little_endian(f"{value}::INTEGER", 1)
    if pa.types.is_integer(kind):
        return _little_endian(f"{value}::BIGINT", 8)
    if pa.types.is_date(kind):
        return _little_endian(f"({value} - DATE '1970-01-01')", 4)
    if pa.types.is_timestamp(kind):
        return _little_endian(f"epoch_us({value})", 8)
    if pa.types.is_decimal(kind):
        return _little_endian(f"replace({value}::VARCHAR, '.', '')::HUGEINT", 16)
    return value


def _little_endian(number: str, width: int) -> str:
    """SQL for the two's complement of a number."""
    # `lpad` would cut a negative number, of which `hex` gives all digits, at the wrong end.
    digits = f"right(lpad(hex({number}), 32, '0'), {2 * width})"
    return f"unhex(array_to_string(list_reverse(regexp_extract_all({digits}, '..')), ''))"


def _literal(value: bytes) -> str:
    return f"unhex('{value.hex()}')"
