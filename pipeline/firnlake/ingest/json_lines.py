"""Reads JSON lines: one JSON object per line, which is a record."""

import json
from array import array
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from firnlake.errors import RefusedError
from firnlake.ingest.delimited import first_wrong
from firnlake.ingest.encoding import Number, encode

ENCODED: Final = ("key", "value")
"""Columns whose values become bytes, whatever type they have in the file (see ``encoding``)."""

_MOST_NAMES: Final = 1000
"""Maximum number of distinct fields in a file of JSON lines; a file with more fields is not a file of records."""
_RECORDS: Final = 100_000
"""Number of records that are Python objects at the same time."""

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
        raise _refusal(path, number, _reason(error)) from error
    if not isinstance(record, dict):
        raise _refusal(path, number, f"is a {type(record).__name__}")
    headers = record.get("headers")
    if isinstance(headers, list) and any(isinstance(one, dict) and one.keys() != {*ENCODED} for one in headers):
        raise _refusal(path, number, "has a header with other fields than key and value")
    if names and (other := (names ^ record.keys()) & {*ENCODED}):
        raise _refusal(path, number, f"and the lines before it differ: only one of them has the field {min(other)}")
    names.update(record)
    if len(names) > _MOST_NAMES:
        raise _refusal(path, number, f"raises the number of fields above {_MOST_NAMES}")
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


def _refusal(path: Path, number: int, problem: str) -> RefusedError:
    return RefusedError(f"file {path}: line {number} {problem}; allowed: a JSON object with a record")
