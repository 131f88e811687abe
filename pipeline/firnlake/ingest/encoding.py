"""The bytes of a key or a value that a file gives as text, a number, a boolean or an object.

They are the bytes that Kafka's producers write with a serializer for text or JSON. Text is its UTF-8, without quotes.
Everything else is JSON in UTF-8, without spaces, with all digits of its numbers. So the number 1001 and the text 1001
are the same key, because a key is its bytes.

The fields of an object keep their order in a value. In a key they are sorted by name, at every depth, because JSON
gives their order no meaning, and the same object should be the same key.
"""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa


def encode(value: Any, *, is_key: bool) -> bytes | None:
    """The bytes of ``value``, which is text or what JSON can express; None for None.

    Raises ValueError for a number that JSON lacks (NaN, infinity) and for text that is not Unicode, TypeError for a
    value of another type, such as a time, and RecursionError for a value that is nested too deeply.
    """
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case _:
            return _json(value, is_key).encode()


def _json(value: Any, is_key: bool) -> str:
    match value:
        case dict():
            fields = sorted(value.items()) if is_key else value.items()
            return "{" + ",".join(f"{_name(name)}:{_json(own, is_key)}" for name, own in fields) + "}"
        case list():
            return "[" + ",".join(_json(one, is_key) for one in value) + "]"
        case Decimal():
            if not value.is_finite():
                raise ValueError(f"JSON has no number {value}")
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a field of an object in JSON can't be called {name!r}")
    return json.dumps(name, ensure_ascii=False)


def encoded(column: pa.ChunkedArray, *, is_key: bool) -> pa.ChunkedArray:
    """The bytes of each value of ``column``.

    Raises as ``encode`` does, KeyError for a map with a key twice, and ArrowException for other types.
    """
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string()).cast(pa.binary())
    if not (pa.types.is_floating(kind) or pa.types.is_nested(kind)):
        return column.cast(pa.binary())
    chunks = [
        pa.array([encode(one, is_key=is_key) for one in chunk.to_pylist(maps_as_pydicts="strict")], pa.binary())
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, pa.binary())
