"""The content of records that a cleaning preserves (C1), and as much of it as messages may show.

Two records at one offset are copies of each other if they have the same content, and contradict each other if not.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from firnlake.iceberg.keys import joined
from firnlake.table.columns import ColumnRoles
from firnlake.table.policy import Samples
from firnlake_expectations.wording import DIGEST, DIGITS, digest

SHOWN_BYTES: Final = 60
"""Maximum size, in bytes, of a key or value in a message."""
MOST_OFFSETS: Final = 1_000
"""Number of offsets with different records that one error counts, and that `firn mend` covers in one search, because a
search holds all their records in memory."""


def contents_of(columns: ColumnRoles, batch: pa.RecordBatch) -> Iterator[bytes]:
    """SHA-256 of each record of ``batch``, over all content that a cleaning must preserve."""
    names = own_columns(columns, batch.schema)
    flat = [name for name in names if not pa.types.is_nested(batch.schema.field(name).type)]
    nested = [batch.column(name).to_pylist() for name in names if name not in flat]
    valid = [batch.column(name).is_valid().cast(pa.int8()) for name in flat]
    filled = [_filled(batch.column(name)) for name in flat]
    for row, content in enumerate(joined([*valid, *filled]).to_pylist()):
        beside = repr([column[row] for column in nested]).encode()
        yield hashlib.sha256(len(content).to_bytes(8, "little") + content + beside).digest()


def shown_digest(content: bytes) -> str:
    """One of ``contents_of``, as messages show it."""
    return f"{DIGEST}{content.hex()[:DIGITS]}"


def _filled(values: pa.Array) -> pa.Array:
    """``values`` with NULL as zero or empty; a separate column records which were NULL."""
    if not values.null_count:
        return values
    kind = values.type
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return values.fill_null(pa.scalar(b"" if pa.types.is_large_binary(kind) else "", kind))
    if pa.types.is_fixed_size_binary(kind):
        return values.fill_null(pa.scalar(bytes(kind.byte_width), kind))
    if pa.types.is_boolean(kind):
        return values.fill_null(pa.scalar(False))  # noqa: FBT003  # the value, not a switch
    return values.fill_null(pa.scalar(0, kind))


def own_columns(columns: ColumnRoles, schema: pa.Schema) -> list[str]:
    """The record's own columns, which stay unchanged (C1): all columns except those that Firn writes."""
    return [name for name in schema.names if name not in (columns.level, columns.delete_horizon)]


def described(columns: ColumnRoles, records: Sequence[Mapping[str, Any]], samples: Samples) -> list[str]:
    """A text for each of the different ``records`` (values by column), empty if ``samples`` allows to show nothing."""
    if samples == "none":
        return [""] * len(records)
    return [_whole(one) if samples == "full" else f"(key={_key(one, columns.key)})" for one in records]


def differing(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the columns in which ``records`` differ."""
    first, *others = records
    return [name for name in first if any(other[name] != first[name] for other in others)]


def _key(record: Mapping[str, Any], columns: Sequence[str]) -> str:
    parts = [record[name] for name in columns]
    if None in parts:
        return "NULL"
    return digest([part if isinstance(part, bytes) else str(part).encode() for part in parts])


def _whole(record: Mapping[str, object]) -> str:
    return "(" + ", ".join(f"{name}={_short(value)}" for name, value in record.items() if value is not None) + ")"


def _short(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        text = repr(bytes(value[:SHOWN_BYTES]))[1:]
        return text if len(value) <= SHOWN_BYTES else f"{text}… ({len(value)} bytes)"
    text = str(value)
    return text if len(text) <= SHOWN_BYTES else f"{text[:SHOWN_BYTES]}…"
