"""Reads files of text: delimited text as in RFC 4180, and JSON lines, one JSON object per line, which is a record.

The first line of delimited text names the columns. An empty field is NULL, and an empty field in quotes is the empty
text. All columns are text; ``typed`` finds the type of a column. A file that breaks the format at any byte is refused,
because readers that forgive take `"a"b` for ab, and everything after an unclosed quote for one field.

Keys and values become the bytes that Kafka's producers write with a serializer for text or JSON. Text is its UTF-8,
without quotes. Everything else is JSON in UTF-8, without spaces, with its numbers as they are written. So the number
1001 and the text 1001 are the same key, because a key is its bytes. The fields of an object keep their order in a
value. In a key they are sorted by name, at every depth, because JSON gives their order no meaning, and the same object
should be the same key.
"""

import json
import re
from array import array
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from firnlake.errors import RefusedError
from firnlake_expectations.wording import count

DELIMITERS: Final = {".csv": b",", ".tsv": b"\t"}
"""The delimiter of each suffix."""
_FIELD: Final = rb'("(?:[^"]++|"")*+"|[^"%b\r\n]*+)'
_END: Final = rb"(?:(?:\r?\n)++|\Z)"
"""The end of a record, and the empty lines after it."""
_RECORDS: Final = 100_000
"""Number of records that are Python objects at the same time."""

_DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_ZONE: Final = "(?:Z|[-+][0-9]{2}:?[0-9]{2})"
TEXT: Final = ("key", "value", "topic")
"""Columns that stay text, whatever the text looks like."""

TIMES: Final = (
    (_DATE, pa.date32()),
    (f"{_DATE}(?:{_CLOCK})?", pa.timestamp("us")),
    (f"{_DATE}{_CLOCK}{_ZONE}", pa.timestamp("us", "UTC")),
)
"""Dates and times in ISO 8601: how they look, and their type."""

EVERYTHING: Final = (("0|-?[1-9][0-9]*", pa.int64()), ("true|false", pa.bool_()), *TIMES)
"""All that text may stand for. A number with leading zeros, such as 007, is text, because it is probably a name."""


def read_delimited(path: Path) -> tuple[pa.Table, Sequence[int]]:
    """Read the columns of ``path`` as text, and the number of the line in which each record begins.

    Raises RefusedError, which names the line, for a record that breaks RFC 4180, is not UTF-8, or has not as many
    fields as the heading. Messages do not quote a field, because it may hold private data.
    """
    content, delimiter = path.read_bytes().removeprefix(BOM_UTF8), DELIMITERS[path.suffix]
    field = _FIELD % delimiter
    heading = re.match(rb"(?:%b%b)*+%b" % (field, delimiter, field), content)
    if not heading or not heading[0]:
        raise RefusedError(f"file {path}: line 1 has no text; allowed: the names of the columns")
    columns: list[list[str | None]] = [[] for _ in re.findall(field + delimiter, heading[0] + delimiter)]
    # A byte order mark begins the file, or none does.
    record = re.compile(rb"(?!%b)" % BOM_UTF8 + delimiter.join([field] * len(columns)) + _END)
    position, lines, line, parts = 0, array("q"), 1, []
    while position < len(content):
        found = record.match(content, position)
        values = None
        with suppress(UnicodeDecodeError):
            values = [_text(value) for value in found.groups()] if found else None
        if found is None or values is None:
            raise RefusedError(
                f"file {path}: line {line} is not a record with {count(len(columns), 'field')} like the heading; "
                "allowed: text in UTF-8, with quotes around a field that has a quote or a line break, and each quote "
                "in it twice"
            )
        for column, value in zip(columns, values, strict=True):
            column.append(value)
        lines.append(line)
        position, line = found.end(), line + content.count(b"\n", position, found.end())
        if len(columns[0]) > _RECORDS or position == len(content):
            parts.append([pa.array(column, pa.string()) for column in columns])
            columns = [[] for _ in columns]
    every = [pa.chunked_array(chunks) for chunks in zip(*parts, strict=True)]
    return pa.table([column[1:] for column in every], [str(column[0]) for column in every]), lines[1:]


def _text(field: bytes) -> str | None:
    text = field.decode()
    return text[1:-1].replace('""', '"') if text.startswith('"') else text or None


def typed(text: pa.ChunkedArray, types: Sequence[tuple[str, pa.DataType]] = EVERYTHING) -> pa.ChunkedArray:
    """The column ``text`` in the first of ``types`` that all its values have; as it is if there is none.

    NULL has every type; a column without a value has Arrow's type null.
    """
    if text.null_count == len(text):
        return pa.chunked_array([pa.nulls(len(text))])
    for looks, kind in types:
        if pc.all(pc.match_substring_regex(text, f"^(?:{looks})$")).as_py():
            try:
                return text.cast(kind)
            except pa.ArrowInvalid:
                continue  # for example, a day that the calendar lacks, or a number that no long holds
    return text


def first_wrong(convert: Callable[[Any], object], values: Any) -> int:
    """The place of the first of ``values`` that ``convert`` refuses; it converts sequences, and refuses all of them."""
    fine, wrong = 0, len(values)
    while wrong - fine > 1:
        middle = (fine + wrong) // 2
        try:
            convert(values[:middle])
            fine = middle
        except (pa.ArrowException, ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
            wrong = middle
    return wrong - 1


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


ENCODED: Final = ("key", "value")
"""Columns whose values become bytes, whatever type they have in the file (see ``encoding``)."""

_MOST_NAMES: Final = 1000
"""Maximum number of distinct fields in a file of JSON lines; a file with more fields is not a file of records."""

_MIXED: Final = (
    "holds values of several types, or a value that no type of Arrow holds exactly; allowed: one type in each column, "
    "integers of 64 bits, and text in UTF-8"
)


class _UnreadableError(ValueError):
    """The line is JSON by Python's rules, but not a record that can be read without loss."""


def read_json_lines(path: Path) -> tuple[pa.Table, Sequence[int]]:
    """Read the fields of all records of ``path`` into columns, and the number of the line of each record.

    The columns ENCODED hold bytes; all digits of their numbers are kept. In the other columns, whole numbers are
    64-bit integers. A field that a record lacks is NULL, but key and value must be in all records or in none. The table
    has no columns if the file has no records. Raises RefusedError, which names the line. Messages do not quote a
    record, because it may hold private data.
    """
    names: set[str] = set()
    kinds: dict[str, type | None] = {}
    parts: list[pa.Table] = []
    numbers = array("q")
    with path.open("rb") as lines:
        # A byte order mark may begin the file. Anywhere else, it is no JSON.
        marked = (line.removeprefix(BOM_UTF8) if number == 1 else line for number, line in enumerate(lines, 1))
        numbered = ((number, line) for number, line in enumerate(marked, 1) if line.strip())
        while some := list(islice(numbered, _RECORDS)):
            records = {number: _record(path, number, line, names) for number, line in some}
            numbers.extend(records)
            parts.append(_columns(path, records, kinds))
    if not parts:
        return pa.table({}), numbers
    try:
        return pa.concat_tables(parts, promote_options="permissive"), numbers
    except pa.ArrowException as error:
        raise RefusedError(f"file {path}: a column {_MIXED}") from error


def _record(path: Path, number: int, line: bytes, names: set[str]) -> dict[str, Any]:
    """The record in ``line``, with the bytes of the fields ENCODED; adds the names of its fields to ``names``."""
    try:
        record = json.loads(
            line.decode(), object_pairs_hook=_object, parse_constant=_constant, parse_float=_exact, parse_int=_whole
        )
        if isinstance(record, dict):
            for name in record.keys() & ENCODED:
                record[name] = encode(record[name], is_key=name == "key")
    except (ValueError, RecursionError) as error:
        raise _bad_line(path, number, _reason(error)) from error
    if not isinstance(record, dict):
        raise _bad_line(path, number, f"is a {type(record).__name__}")
    headers = record.get("headers")
    if isinstance(headers, list) and any(isinstance(one, dict) and one.keys() != {*ENCODED} for one in headers):
        raise _bad_line(path, number, "has a header with other fields than key and value")
    if names and (other := (names ^ record.keys()) & {*ENCODED}):
        raise _bad_line(path, number, f"and the lines before it differ: only one of them has the field {min(other)}")
    names.update(record)
    if len(names) > _MOST_NAMES:
        raise _bad_line(path, number, f"raises the number of fields above {_MOST_NAMES}")
    return record


def _columns(path: Path, records: Mapping[int, dict[str, Any]], kinds: dict[str, type | None]) -> pa.Table:
    """The columns of ``records``, by line. ``kinds`` are the Python types of the columns, also of earlier records."""
    columns = {}
    for name in dict.fromkeys(name for record in records.values() for name in record):
        values = [record.get(name) for record in records.values()]
        kinds |= {name: kinds.get(name) or next((type(value) for value in values if value is not None), None)}

        def column(some: list[Any], kind: type | None = kinds[name]) -> pa.Array:
            if any(value is not None and type(value) is not kind for value in some):
                raise ValueError
            return pa.array(some)

        try:
            columns[name] = column(values)
        except (pa.ArrowException, OverflowError, ValueError) as error:
            line = list(records)[first_wrong(column, values)]
            raise RefusedError(f"file {path}: column {name} {_MIXED}; the first is in line {line}") from error
    return pa.table(columns)


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    pairs = list(pairs)
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _UnreadableError("has an object with two fields of the same name")
    return fields


def _constant(name: str) -> None:
    raise _UnreadableError(f"is not JSON ({name} is no number)")


def _exact(text: str) -> float | Number:
    """The number with all digits of ``text``: a double if JSON would write the double in the same way."""
    number = float(text)
    return number if repr(number) == text else Number(text)


def _whole(text: str) -> int | Number:
    return Number(text) if text == "-0" else int(text)


def _reason(error: Exception) -> str:
    match error:
        case _UnreadableError():
            return str(error)
        case json.JSONDecodeError():
            return f"is not JSON ({error.msg} at column {error.colno})"
        case UnicodeDecodeError():
            return f"is not JSON (not UTF-8 at byte {error.start})"
        case UnicodeEncodeError():
            return "has text with half of a surrogate pair"
        case RecursionError():
            return "is not JSON (nested too deeply)"
        case _:
            return "is not JSON (a number with too many digits)"


def _bad_line(path: Path, number: int, problem: str) -> RefusedError:
    return RefusedError(f"file {path}: line {number} {problem}; allowed: a JSON object with a record")
