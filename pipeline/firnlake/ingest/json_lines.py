"""Reads JSON lines: one JSON object per line, which is a record."""

import json
from collections.abc import Iterable
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from firnlake.errors import RefusedError
from firnlake.ingest.delimited import TEXT, TIMES, typed
from firnlake.ingest.encoding import encode

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


def read_json_lines(path: Path) -> pa.Table:
    """Read the fields of all records of ``path`` into columns; a field that a record lacks is NULL.

    The columns ENCODED hold bytes; all digits of their numbers are kept. In the other columns, whole numbers are
    64-bit integers, and text in ISO 8601 becomes times, except in the topic. The table has no columns if the file has
    no records. Raises RefusedError, which names the line or the column. Messages do not quote a record, because it may
    hold private data.
    """
    names: set[str] = set()
    parts: list[pa.Table] = []
    with path.open("rb") as lines:
        numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
        while some := list(islice(numbered, _RECORDS)):
            parts.append(_columns(path, [_record(path, number, line, names) for number, line in some]))
    if not parts:
        return pa.table({})
    try:
        table = pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise RefusedError(f"file {path}: a column {_MIXED}") from error
    columns = {name: table[name] for name in table.column_names}
    for name, column in columns.items():
        if pa.types.is_string(column.type) and name not in TEXT:
            columns[name] = typed(column, TIMES)
    return pa.table(columns)


def _record(path: Path, number: int, line: bytes, names: set[str]) -> dict[str, Any]:
    """The record in ``line``, with the bytes of the fields ENCODED; adds the names of its fields to ``names``."""
    try:
        text = line.decode("utf-8-sig")
        record = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_exact)
        if isinstance(record, dict):
            for name in record.keys() & ENCODED:
                record[name] = encode(record[name], is_key=name == "key")
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise _refusal(path, number, _reason(error)) from error
    if not isinstance(record, dict):
        raise _refusal(path, number, f"is a {type(record).__name__}")
    names |= record.keys()
    if len(names) > _MOST_NAMES:
        raise _refusal(path, number, f"raises the number of fields above {_MOST_NAMES}")
    return record


def _columns(path: Path, records: list[dict[str, Any]]) -> pa.Table:
    columns = {}
    for name in dict.fromkeys(name for record in records for name in record):
        try:
            columns[name] = pa.array([record.get(name) for record in records])
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise RefusedError(f"file {path}: column {name} {_MIXED}") from error
    return pa.table(columns)


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    pairs = list(pairs)
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _UnreadableError("has an object with two fields of the same name")
    return fields


def _constant(name: str) -> None:
    raise _UnreadableError(f"is not JSON ({name} is no number)")


def _exact(text: str) -> float | Decimal:
    """The number with all digits of ``text``: a double if JSON would write the double in the same way."""
    number = float(text)
    return number if repr(number) == text else Decimal(text)


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
