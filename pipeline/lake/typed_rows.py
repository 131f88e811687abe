"""Rows of a frozen dataclass as an Arrow stream, a column per field: how Firn keeps what a table has to remember."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, TypeVar

import pyarrow as pa

from pipeline.lake.puffin import Blob

R = TypeVar("R")

_TYPES: Final[Mapping[Any, pa.DataType]] = {
    int: pa.int64(),
    str: pa.string(),
    bytes: pa.binary(),
    bool: pa.bool_(),
    int | None: pa.int64(),
}


def rows_as_bytes(kind: type[R], rows: Sequence[R]) -> bytes:
    """``rows`` as the content of a blob; their fields are integers, texts, bytes or booleans."""
    schema = _schema(kind)
    columns = [pa.array([getattr(row, name) for row in rows], schema.field(name).type) for name in schema.names]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    return bytes(sink.getvalue())


def rows_of(kind: type[R], blob: Blob) -> tuple[R, ...]:
    """The rows in ``blob``; raises KeyError, ValueError or an ArrowException for anything else."""
    table = pa.ipc.open_stream(blob.content).read_all().select(_schema(kind).names)
    if table.schema != _schema(kind):
        raise ValueError(f"{blob.type} has other columns than {', '.join(_schema(kind).names)}")
    return tuple(kind(*row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True))


def _schema(kind: type[Any]) -> pa.Schema:
    return pa.schema([pa.field(field.name, _TYPES[field.type]) for field in fields(kind)])
