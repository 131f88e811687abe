"""The judge's fingerprint of records: a 64-bit hash of everything in a record that a cleaning must keep (C1).

DuckDB hashes each record; the sum over many records does not depend on their order. DuckDB's own hash of a list, a
struct or a map equates NULL with empty, and a list of one element with the element; its hash of a number equates -0.0
with 0.0. So this module hashes the parts of nested columns, with lengths and NULLs, and floating point numbers by their
bits. Each hash is hashed again, because a sum of hashes that end in an exclusive or could miss that two records
exchanged a small column.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence


_BITS = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}
_OWN = threading.local()
"""One connection per thread, because a connection serves one thread at a time, and opening it takes 10 ms."""


def fingerprint(records: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> int:
    """The exact sum of the hashes of `records`, 0 for no records, over the `columns` that C1 keeps, namely all except
    level and delete horizon. Raises KeyError when a column is missing.

    Records may have any Arrow type that a Parquet file can hold; large text and bytes (64-bit offsets) hash like small
    ones. Many threads may call it.
    """
    if not records.num_rows:
        return 0
    if not hasattr(_OWN, "duck"):
        from firnlake_expectations.duck import Duck

        _OWN.duck = Duck()
    taken = plain_columns(records, columns)
    with _OWN.duck.seeing(records=taken):
        ((total,),) = _OWN.duck.rows(f"SELECT sum({hashed(taken.schema)}::hugeint) FROM records")
    return int(total)


def plain_columns(records: pa.Table | pa.RecordBatch, columns: Sequence[str], prefix: str = "c") -> pa.Table:
    """The `columns` of `records`, renamed to `prefix` and their number (c0, c1, ...), in types that `hashed` supports.

    The original names are dropped, because DuckDB treats `Key` and `key` as the same.
    """
    table = records if isinstance(records, pa.Table) else pa.Table.from_batches([records])
    return pa.table({f"{prefix}{number}": _plain(table.column(name)) for number, name in enumerate(columns)})


def hashed(schema: pa.Schema) -> str:
    """SQL for the hash of a record, an unsigned 64-bit integer, over all columns of `schema` (from `plain_columns`)."""
    return f"hash(hash(1, {', '.join(_code(field.name, field.type) for field in schema)}))"


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = plain_type(column.type)
    if kind == column.type:
        return column
    if pa.types.is_dictionary(column.type):
        return column.cast(kind)
    chunks = [chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk for chunk in column.chunks]
    # DuckDB refuses a nested array that is a slice of a larger one: a copy begins where it begins.
    whole = (chunk.take(np.arange(len(chunk))) if pa.types.is_nested(kind) else chunk for chunk in chunks)
    return pa.chunked_array([chunk.view(kind) for chunk in whole], kind)


@lru_cache(1000)
def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that `plain_columns` converts `kind` to.

    The structure stays, but fields have numbers as names, floating point numbers become bits, and maps become lists.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f"f{number}", plain_type(kind.field(number).type)) for number in range(len(kind))])
    if pa.types.is_map(kind):
        return pa.list_(pa.struct([("f0", plain_type(kind.key_type)), ("f1", plain_type(kind.item_type))]))
    if pa.types.is_large_list(kind):
        return pa.large_list(plain_type(kind.value_type))
    if pa.types.is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    return _BITS.get(kind, kind)


def _code(value: str, kind: pa.DataType, depth: int = 0) -> str:
    """SQL that gives DuckDB's `hash` a different input for any two different values of `kind`, NULLs and lengths
    included."""
    if pa.types.is_struct(kind):
        parts = [_code(f"{value}.f{number}", kind.field(number).type, depth) for number in range(len(kind))]
        return f"hash({', '.join([f'{value} IS NULL', *parts])})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = f"e{depth}"
        inner = _code(element, kind.value_type, depth + 1)
        return f"hash(len({value}), list_transform({value}, lambda {element}: hash({inner})))"
    return value
