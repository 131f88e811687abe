"""The keys that people name, and their digests, by which requests name the keys to erase (C30)."""

import hashlib
import uuid
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    UUIDType,
)

from firnlake.errors import RefusedError
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.keys import bytes_of, joined
from firnlake.table.columns import ColumnRoles
from firnlake_expectations.wording import count

_BLOCK: Final = 64
"""Number of bytes in a block of SHA-256, to which HMAC pads its key (RFC 2104)."""
_EXAMPLES: Final = {
    "boolean": "true",
    "int": "42",
    "long": "42",
    "date": "2026-01-31",
    "timestamp": "2026-01-31T12:00:00",
    "timestamptz": "2026-01-31T12:00:00Z",
    "uuid": "f79c3e09-677c-4bbd-a479-3f349cb785e7",
    "string": "alice",
}
"""A value of each type; those of fixed and decimal types depend on their parameters."""


def key_bytes(batch: pa.RecordBatch, columns: Sequence[str], control: str | None = None) -> pa.Array:
    """The bytes of each record's key; NULL if the record has no key, or one of several key columns is NULL (C5).

    The bytes are those of the only key column; several columns are joined, each preceded by its length. An int has the
    bytes of a long, because Iceberg can promote an int column to long, and the keys must stay the same. Control
    records, for which the column ``control`` is true, have no key (C10).
    """
    parts = [batch.column(name) for name in columns]
    parts = [part.cast(pa.int64()) if pa.types.is_int32(part.type) else part for part in parts]
    keys = bytes_of(parts[0]) if len(parts) == 1 else joined(parts)
    return keys if control is None else pc.if_else(pc.fill_null(batch.column(control), fill_value=False), None, keys)


def digests(keys: pa.Array, table_uuid: str) -> list[bytes | None]:
    """The digests, 32 bytes each, of ``keys`` (`key_bytes`): HMAC-SHA256 under the table's UUID; None for NULL.

    Two tables never have the same digest of a key. Whoever can read the table can test a guess of a key.
    """
    # `hmac.digest` would release the interpreter's lock for every key, so the threads would wait for each other.
    secret = uuid.UUID(table_uuid).bytes
    inner, outer = (bytes(byte ^ pad for byte in secret.ljust(_BLOCK, b"\0")) for pad in (0x36, 0x5C))
    sha256 = hashlib.sha256
    return [None if key is None else sha256(outer + sha256(inner + key).digest()).digest() for key in keys.to_pylist()]


def digests_of(table: Table, columns: ColumnRoles, keys: Sequence[Sequence[bytes]]) -> list[str]:
    """The digest, in hexadecimal, of each of ``keys``, which are named as for `named_values`."""
    named = key_bytes(named_values(table, columns, keys), columns.key)
    return [(digest or b"").hex() for digest in digests(named, str(table.metadata.table_uuid))]


def named_values(table: Table, columns: ColumnRoles, keys: Sequence[Sequence[bytes]]) -> pa.RecordBatch:
    """The key columns of ``keys``, as a batch with one row for each key.

    A key is named by the values of its columns: the bytes of a binary value, or the UTF-8 text of any other value.
    Raises RefusedError for a key that no record of ``table`` can have.
    """
    names = columns.key
    for key in keys:
        if len(key) != len(names):
            raise RefusedError(
                f"the key has {count(len(key), 'part')}; allowed: {len(names)}, one for each of {', '.join(names)}"
            )
    schema = DataFiles.of(table).arrow_schema(names)
    fields = [table.schema().find_field(name) for name in names]
    parts = [
        pa.array([_key_value(key[index], field, schema.field(index).type) for key in keys], schema.field(index).type)
        for index, field in enumerate(fields)
    ]
    return pa.RecordBatch.from_arrays(parts, schema=schema)


def _key_value(part: bytes, column: NestedField, stored: pa.DataType) -> Any:
    """The value of key ``column`` that ``part`` gives: the bytes of a binary value, or the UTF-8 text of another one.

    Raises RefusedError, with an example, for a text that is not exactly one value of the column's type. Arrow, which
    converts the text to the type ``stored``, loses nothing.
    """
    kind = column.field_type
    try:
        return _value(part, kind, stored)
    except (ValueError, OverflowError, pa.ArrowException):
        example = _EXAMPLES.get(str(kind), "hex:00ff")
        if isinstance(kind, DecimalType):
            example = f"{0.5 if kind.precision == kind.scale else 1.5 if kind.scale else 1:.{kind.scale}f}"
        shown = part.decode(errors="backslashreplace")
        raise RefusedError(
            f"column {column.name} can't hold key {shown!r}: no {kind}; allowed: {kind}, such as {example}"
        ) from None


def _value(part: bytes, kind: IcebergType, stored: pa.DataType) -> Any:
    if isinstance(kind, BinaryType | FixedType):
        return pa.scalar(part, pa.binary()).cast(stored).as_py()
    text = part.decode()
    if isinstance(kind, UUIDType):
        found = uuid.UUID(text)
        # Python also reads texts with blanks, signs or underscores instead of digits.
        if text.lower() not in (str(found), found.hex):
            raise ValueError(text)
        return found.bytes
    # Arrow reads a hexadecimal number past the end of the type as a negative one.
    if isinstance(kind, IntegerType | LongType) and "x" in text.lower():
        raise ValueError(text)
    return pa.scalar(text).cast(stored).as_py()
