"""The bytes of a key or a value that a file gives as text, a number, a boolean or an object.

They are the bytes that Kafka's producers write with a serializer for text or JSON. Text is its UTF-8, without quotes.
Everything else is JSON in UTF-8, without spaces, with its numbers as they are written. So the number 1001 and the text
1001 are the same key, because a key is its bytes.

The fields of an object keep their order in a value. In a key they are sorted by name, at every depth, because JSON
gives their order no meaning, and the same object should be the same key.
"""

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

_ENCODERS: Final = {
    is_key: json.JSONEncoder(
        ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=is_key, separators=(",", ":")
    )
    for is_key in (False, True)
}


@dataclass(frozen=True, slots=True)
class Number:
    """A number as a file of JSON has it, for example 1E5 or 12.50."""

    text: str


def encode(value: Any, *, is_key: bool) -> bytes | None:
    """The bytes of ``value``, which is text or what JSON can express; None for None.

    Raises ValueError for a number that JSON lacks (NaN, infinity) and for text that is not Unicode, TypeError for a
    value of another type, such as a time, and RecursionError for a value that is nested too deeply.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    try:
        return _ENCODERS[is_key].encode(value).encode()
    except TypeError:
        return _with_decimals(value, is_key).encode()


def _with_decimals(value: Any, is_key: bool) -> str:
    """As Python's encoder, which is many times faster, but with numbers that it does not know."""
    match value:
        case dict():
            fields = sorted(value.items()) if is_key else value.items()
            return "{" + ",".join(f"{_name(name)}:{_with_decimals(own, is_key)}" for name, own in fields) + "}"
        case list():
            return "[" + ",".join(_with_decimals(one, is_key) for one in value) + "]"
        case Number():
            return value.text
        case Decimal() if value.is_finite():
            return str(value)
        case _:
            return _ENCODERS[is_key].encode(value)


def _name(name: Any) -> str:
    """The name of a field; in JSON it is text, even if a map has numbers as keys."""
    text = name if isinstance(name, str) else json.dumps(name)
    return _ENCODERS[False].encode(text)


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
