"""Reads files of delimited text: CSV as in RFC 4180, and the same with tabs.

The first line names the columns. An empty field is NULL, and an empty field in quotes is the empty text. All columns
are text; ``typed`` finds the type of a column. A file that breaks the format at any byte is refused, because readers
that forgive take `"a"b` for ab, and everything after an unclosed quote for one field.
"""

import re
from array import array
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
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

    Raises RefusedError, which names line and column, for a record that breaks RFC 4180, is not UTF-8, or has not as
    many fields as the heading. Messages do not quote a field, because it may hold private data.
    """
    content, delimiter = path.read_bytes(), DELIMITERS[path.suffix]
    field = _FIELD % delimiter
    record = re.compile(rb"(?:%b%b)*+%b" % (field, delimiter, field))
    position = len(BOM_UTF8) if content.startswith(BOM_UTF8) else 0
    heading = next(record.finditer(content, position)).group()
    if not heading:
        raise _refusal(path, content, position, "has no text", "the names of the columns")
    columns: list[list[str | None]] = [[] for _ in re.findall(field + delimiter, heading + delimiter)]
    whole = re.compile(delimiter.join([field] * len(columns)) + _END)
    lines, line, parts = array("q"), 1, []
    while position < len(content):
        if lines and content.startswith(BOM_UTF8, position):
            raise _refusal(path, content, position, "has a byte order mark", "one at the start of the file")
        found = whole.match(content, position)
        if found is None:
            raise _broken(path, content, next(record.finditer(content, position)), len(columns), delimiter)
        try:
            for column, value in zip(columns, found.groups(), strict=True):
                column.append(_text(value))
        except UnicodeDecodeError as error:
            raise _refusal(path, content, found.start(), "has a record that is not UTF-8", "text in UTF-8") from error
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


def _broken(path: Path, content: bytes, record: re.Match[bytes], allowed: int, delimiter: bytes) -> RefusedError:
    """The refusal of the ``record`` that is whole up to its end, with its first fault."""
    after = content[record.end() : record.end() + 2]
    if not after or after[:1] == b"\n" or after == b"\r\n":
        fields = len(re.findall(_FIELD % delimiter + delimiter, record.group() + delimiter))
        problem = f"has {count(fields, 'field')}"
        return _refusal(path, content, record.start(), problem, f"{allowed}, as in the heading")
    opens = after[:1] == b'"' and record.group()[-1:] in (b"", b"\n", delimiter)
    problem = "opens a quote that is never closed" if opens else "goes on after a closing quote"
    if after[:1] in (b'"', b"\r") and not opens:
        problem = "has a quote or a carriage return within a field"
    return _refusal(path, content, record.end(), problem, "quotes around a field, and each quote in it twice")


def _refusal(path: Path, content: bytes, position: int, problem: str, allowed: str) -> RefusedError:
    line, start = content.count(b"\n", 0, position) + 1, content.rfind(b"\n", 0, position) + 1
    column = len(content[start:position].decode(errors="replace")) + 1
    return RefusedError(f"file {path}: line {line}, column {column} {problem}; allowed: {allowed}")


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
