"""Keys that a person names, as the bytes that digests are made of."""

import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyiceberg.expressions.literals import AboveMax, BelowMin, literal
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, FixedType, IcebergType, IntegerType, LongType

from pipeline.erase.digests import key_bytes
from pipeline.errors import RefusedError
from pipeline.lake.columns import Columns
from pipeline.lake.data_files import DataFiles

# PyIceberg's literals would cut a fraction off.
_WHOLE: Final = re.compile("[+-]?[0-9]+")


def named_keys(table: Table, columns: Columns, keys: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The bytes (`key_bytes`) of ``keys``, as `named_values` takes them."""
    named: list[bytes] = key_bytes(named_values(table, columns, keys), columns.key).to_pylist()
    return named


def named_values(table: Table, columns: Columns, keys: Sequence[Sequence[bytes]]) -> pa.RecordBatch:
    """The key columns of ``keys``, each given by its columns' values: bytes, or their text.

    Raises RefusedError for a key that no record of ``table`` can have.
    """
    names = columns.key
    for key in keys:
        if len(key) != len(names):
            raise RefusedError(f"a key of {len(key)} parts; allowed: {len(names)}, one for each of {', '.join(names)}")
    schema = DataFiles.of(table).arrow_schema(names)
    fields = [table.schema().find_field(name) for name in names]
    parts = [
        pa.array([_value(key[place], field.name, field.field_type) for key in keys], schema.field(place).type)
        for place, field in enumerate(fields)
    ]
    return pa.RecordBatch.from_arrays(parts, schema=schema)


def _value(part: bytes, name: str, kind: IcebergType) -> Any:
    if isinstance(kind, BinaryType) or (isinstance(kind, FixedType) and len(part) == len(kind)):
        return part
    try:
        text = part.decode()
        value = literal(text).to(kind)
    except (ValueError, TypeError) as error:
        raise _unfit(part, name, kind, str(error)) from error
    if isinstance(value, AboveMax | BelowMin):
        raise _unfit(part, name, kind, "it is out of range")
    if isinstance(kind, IntegerType | LongType) and not _WHOLE.fullmatch(text):
        raise _unfit(part, name, kind, "it is no whole number")
    return value.value


def _unfit(part: bytes, name: str, kind: IcebergType, reason: str) -> RefusedError:
    return RefusedError(f"key {part!r}: column {name} can't hold it: {reason}; allowed: {kind}")
