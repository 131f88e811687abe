"""Reads files of delimited text: CSV as in RFC 4180, and the same with tabs.

The first line names the columns. An empty field is NULL, and an empty field in quotes is the empty text. The file has
no types, so a column gets the first type that all its values have, if no value changes by that. Only types that a
column of Kafka has are looked for.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from firnlake.errors import RefusedError
from firnlake_expectations.wording import count

DELIMITERS: Final = {".csv": ",", ".tsv": "\t"}
"""The delimiter of each suffix."""
_WRONG_LENGTH: Final = re.compile(
    r"CSV parse error: Row #(?P<number>\d+): Expected (?P<allowed>\d+) columns, got (?P<found>\d+): "
)
"""Start of pyarrow's message about a wrong number of fields; the line itself follows."""

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


def read_delimited(path: Path) -> pa.Table:
    """Read the columns of ``path``; the columns TEXT stay text, the others have types (see ``typed``).

    Raises RefusedError for a line with a wrong number of fields, and an ArrowException for a file that is not UTF-8 or
    is empty. Messages do not quote a field, because it may hold private data.
    """
    as_text = csv.ConvertOptions(
        default_column_type=pa.string(), null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    fields = csv.ParseOptions(delimiter=DELIMITERS[path.suffix], newlines_in_values=True)
    # The whole file is one block, because a record must fit into a block. Only one thread can tell a record's number.
    whole = csv.ReadOptions(block_size=min(path.stat().st_size + 1, 2**31 - 1), use_threads=False)
    try:
        table = csv.read_csv(path, whole, fields, as_text)
    except pa.ArrowInvalid as error:
        wrong = _WRONG_LENGTH.match(str(error))
        if not wrong:
            raise
        found = count(int(wrong["found"]), "field")
        raise RefusedError(
            f"file {path}: record {wrong['number']} (the heading is the first) has {found}; allowed: "
            f"{wrong['allowed']}, as in the heading, and quotes around a field with a delimiter, a quote or a line end"
        ) from error
    columns = [
        column if name in TEXT else typed(column)
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


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
