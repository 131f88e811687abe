"""The judge's views for lane `erase` (C30): which records the requests name, and what became of all records.

A request names a key by its HMAC-SHA256 (RFC 2104) under the table's UUID, and covers the offsets below a bound.
The HMAC covers these bytes: bytes and UUIDs unchanged, text as UTF-8, numbers little-endian (integers in 8 bytes,
unscaled decimals in 16, dates as days in 4, times as microseconds in 8). In a composite key, the length of each column
in 8 bytes precedes its bytes. The digest is computed by SQL alone.

All other records are copies: a record that was read and is not named must be written with the same horizon and level,
except that a tail may be written as a run, because a level never decides which record survives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from firnlake_expectations.claim import BURIED, RUN, TAIL
from firnlake_expectations.fingerprint import plain_type
from firnlake_expectations.tables import AFTER, BEFORE, IN_PLACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firnlake_expectations.claim import JudgedColumns
    from firnlake_expectations.duck import Duck


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


def derive_erasure(duck: Duck, requested: Requested, schema: pa.Schema, reading: JudgedColumns) -> None:
    """Create the tables and views that the promises of lane `erase` query, from `before`, `after` and `plans`."""
    has_control = "is_control" in reading.of_transactions(schema.names)
    control = "control" if has_control else "false AS control"
    every = " UNION ALL ".join(
        f"SELECT plan, key, {'control' if side != IN_PLACE else control} FROM {name}"
        for side, name in ((BEFORE, "before"), (AFTER, "after"), (IN_PLACE, IN_PLACE))
    )
    sides = " UNION ALL ".join(
        f'SELECT {side} AS side, plan, "offset", key, level, horizon, mark FROM {name}{where}'
        for side, name, where in ((0, "come", " WHERE NOT goes"), (1, "after", ""))
    )
    same = "hash(hash(mark, horizon, level))::HUGEINT"
    for statement in (
        f"""CREATE TABLE named AS SELECT plan, key, max(below) AS below FROM (
            SELECT DISTINCT plan, key FROM ({every}) WHERE key IS NOT NULL AND NOT control
        ) AS keys JOIN requests USING (plan) WHERE digest = {requested.digest("key", schema, reading)}
        GROUP BY plan, key""",
        f"""CREATE VIEW come AS SELECT before.*, log_end, coalesce({_MEANT}, false) AND NOT {_LAST} AS goes
            FROM before JOIN plans USING (plan) LEFT JOIN named USING (plan, key)""",
        f"CREATE VIEW sides AS {sides}",
        f"""CREATE TABLE unsettled AS SELECT plan FROM sides GROUP BY plan
            HAVING count_if(side = 0) != count_if(side = 1)
            OR coalesce(sum({same}) FILTER (side = 0), 0) != coalesce(sum({same}) FILTER (side = 1), 0)""",
        """CREATE TABLE copies AS SELECT plan, "offset", mark, horizon, any_value(key) AS key,
            count_if(side = 0) AS n_in, count_if(side = 1) AS n_out, any_value(log_end) AS log_end,
            coalesce(list_sort(list(level) FILTER (side = 0)), []) AS levels_in,
            coalesce(list_sort(list(level) FILTER (side = 1)), []) AS levels_out
            FROM sides SEMI JOIN unsettled USING (plan) JOIN plans USING (plan)
            GROUP BY plan, "offset", mark, horizon""",
        f"""CREATE VIEW levels AS SELECT * FROM (
            SELECT plan, "offset", key, unnest(levels_in) AS level_in, unnest(levels_out) AS a_level
            FROM copies WHERE n_in = n_out
        ) WHERE a_level != level_in AND NOT (level_in = {TAIL} AND a_level = {RUN})""",
        f"""CREATE VIEW remaining AS SELECT plan, "offset", key, lies FROM (
            SELECT plan, "offset", key, level, control, 'written' AS lies FROM after
            UNION ALL SELECT plan, "offset", key, level, {control}, 'in a segment left in place' FROM {IN_PLACE}
        ) JOIN plans USING (plan) JOIN named USING (plan, key) WHERE {_MEANT} AND NOT {_LAST}""",
    ):
        duck.run(statement)


_NEVER: Final = dict.fromkeys(
    ("superseded", "tombstones_removed", "quarantined", "aborted", "markers_removed", "repeated", "restored"), 0
)
"""Figures of what `erase` never does."""


def erasure_figures(duck: Duck) -> tuple[dict[int, dict[str, int]], dict[int, int]]:
    """The figures of each plan, and the sums of the fingerprints written."""
    counts: dict[int, dict[str, int]] = {}
    fingerprints: dict[int, int] = {}
    rows: Sequence[dict[str, int]] = duck.dicts(
        f"""SELECT plan, coalesce(records_in, 0) AS records_in, coalesce(erased, 0) AS erased,
            coalesce(end_in, 0) AS end_in, coalesce(records_out, 0) AS records_out,
            coalesce(fingerprint, 0) AS fingerprint, coalesce(files, 0) AS files, coalesce(deleted, 0) AS deleted
        FROM plans LEFT JOIN (
            SELECT plan, count_if(level != {BURIED}) AS records_in, count_if(goes AND level != {BURIED}) AS erased,
                count_if({_LAST}) AS end_in FROM come GROUP BY plan
        ) USING (plan) LEFT JOIN (
            SELECT plan, count_if(level != {BURIED}) AS records_out, sum(fingerprint::HUGEINT) AS fingerprint
            FROM after GROUP BY plan
        ) USING (plan) LEFT JOIN (SELECT plan, count(*) AS files FROM files GROUP BY plan) USING (plan)
        LEFT JOIN (SELECT plan, sum(records) AS deleted FROM hidden GROUP BY plan) USING (plan)"""
    )
    for row in rows:
        fingerprints[row["plan"]] = int(row["fingerprint"])
        names = ("records_in", "erased", "end_in", "records_out", "files", "deleted")
        counts[row["plan"]] = _NEVER | {name: int(row[name]) for name in names}
    return counts, fingerprints
