"""The judge's views for lane `erase` (C30): which records the requests name, and what became of all records.

A request names a key by its HMAC-SHA256 (RFC 2104) under the table's UUID, and covers the offsets below a bound.
The HMAC covers these bytes: bytes and UUIDs unchanged, text as UTF-8, numbers little-endian (integers in 8 bytes,
unscaled decimals in 16, dates as days in 4, times as microseconds in 8). In a composite key, the length of each column
in 8 bytes precedes its bytes. The digest is computed by SQL alone.

All other records are copies (see `views`): a record that was read and is not named must be written with the same
horizon and level, except that a tail may be written as a run, because a level never decides which record survives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from firnlake_expectations.claim import BURIED, RUN, TAIL
from firnlake_expectations.fingerprint import plain_type
from firnlake_expectations.tables import IN_PLACE

if TYPE_CHECKING:
    from firnlake_expectations.claim import JudgedColumns
    from firnlake_expectations.duck import Duck
    from firnlake_expectations.tables import Layout


_BLOCK: Final = 64
"""Bytes of a block of SHA-256, to which HMAC pads its secret."""


@dataclass(frozen=True)
class Requested:
    """The requests that plans serve: index of the claim, digest of the key, and the offset below which it is erased."""

    secret: bytes = field(repr=False)
    rows: tuple[tuple[int, bytes, int], ...] = field(repr=False)

    def make(self, duck: Duck) -> None:
        """Create the table of requests."""
        kinds = pa.schema([("plan", pa.int32()), ("digest", pa.binary()), ("below", pa.int64())])
        columns = list(zip(*self.rows, strict=True)) or [(), (), ()]
        told = pa.table([pa.array(column, kind.type) for column, kind in zip(columns, kinds, strict=True)], kinds)
        with duck.seeing(told=told):
            duck.run("CREATE TABLE requests AS SELECT * FROM told")

    def digest(self, key: str, schema: pa.Schema, reading: JudgedColumns) -> str:
        """SQL for the digest of a key; `key` is the SQL of a key in the form that the judge's tables hold."""
        inner, outer = (_literal(bytes(byte ^ pad for byte in self.secret.ljust(_BLOCK, b"\0"))) for pad in (54, 92))
        return f"unhex(sha256({outer} || unhex(sha256({inner} || {key_bytes(key, schema, reading)}))))"

    def only_named(self, query: str, schema: pa.Schema, reading: JudgedColumns, *, control: bool) -> str:
        """SQL for the records of `query` that a request names; `control` tells if `query` has that column."""
        user = "key IS NOT NULL" + (" AND NOT control" if control else "")
        return f"""SELECT * FROM ({query}) AS stays SEMI JOIN requests ON requests.plan = stays.plan
            AND stays."offset" < requests.below AND requests.digest = {self.digest("stays.key", schema, reading)}
            WHERE {user} AND "offset" < (SELECT max(below) FROM requests)"""


def key_bytes(key: str, schema: pa.Schema, reading: JudgedColumns) -> str:
    """SQL for the bytes that the digest of `key` covers; the key's columns are those of `reading` in `schema`."""
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


_MEANT = '("offset" < below AND NOT control)'
"""True when a request covers the record."""
_LAST = f'(level != {BURIED} AND "offset" = log_end)'
"""True for the log end, which stays (C4)."""


def take_out_erased(duck: Duck, layout: Layout, requested: Requested) -> None:
    """Create `before`, the records of `come` that must be written; `erased`, the number of the others; and `remaining`,
    requested records that are still there."""
    schema = layout.schema
    control = "control" if layout.transactions else "false AS control"
    every = " UNION ALL ".join(
        f"SELECT plan, key, {control if name == IN_PLACE else 'control'} FROM {name}"
        for name in ("come", "after", IN_PLACE)
    )
    for statement in (
        f"""CREATE TABLE named AS SELECT plan, key, max(below) AS below FROM (
            SELECT DISTINCT plan, key FROM ({every}) WHERE key IS NOT NULL AND NOT control
        ) AS keys JOIN requests USING (plan) WHERE digest = {requested.digest("key", schema, layout.reading)}
        GROUP BY plan, key""",
        f"""CREATE VIEW before AS SELECT come.* FROM come JOIN plans USING (plan) LEFT JOIN named USING (plan, key)
            WHERE NOT coalesce({_MEANT}, false) OR {_LAST}""",
        f"""INSERT INTO erased SELECT plan, count(*) FROM come JOIN plans USING (plan) JOIN named USING (plan, key)
            WHERE {_MEANT} AND NOT {_LAST} AND level != {BURIED} GROUP BY plan""",
        f"""CREATE VIEW remaining AS SELECT plan, "offset", key, lies FROM (
            SELECT plan, "offset", key, level, control, 'written' AS lies FROM after
            UNION ALL SELECT plan, "offset", key, level, {control}, 'in a segment left in place' FROM {IN_PLACE}
        ) JOIN plans USING (plan) JOIN named USING (plan, key) WHERE {_MEANT} AND NOT {_LAST}""",
    ):
        duck.run(statement)


LEVELS = f"""CREATE VIEW levels AS SELECT * FROM (
    SELECT plan, in_max AS "offset", key, unnest(levels_in) AS level_in, unnest(levels_out) AS a_level
    FROM groups WHERE n_in = n_out
) WHERE a_level != level_in AND NOT (level_in = {TAIL} AND a_level = {RUN})"""
"""Records that have another level: each with the lowest level that no other record of its group has."""
