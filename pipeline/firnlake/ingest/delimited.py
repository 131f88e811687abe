"""Reads files of delimited text: CSV as in RFC 4180, and the same with tabs.

The first line names the columns. An empty field is NULL, and an empty field in quotes is the empty text.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import csv

from firnlake.errors import RefusedError
from firnlake.ingest.text_columns import typed
from firnlake_expectations.wording import count

DELIMITERS: Final = {".csv": ",", ".tsv": "\t"}
"""The delimiter of each suffix."""
_WRONG_LENGTH: Final = re.compile(
    r"CSV parse error: Row #(?P<number>\d+): Expected (?P<allowed>\d+) columns, got (?P<found>\d+): "
)
"""Start of pyarrow's message about a wrong number of fields; the line itself follows."""


def read_delimited(path: Path, text: Collection[str] = ()) -> pa.Table:
    """Read the columns of ``path``; the columns ``text`` stay text, the others have types (see ``text_columns``).

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
        column if name in text else typed(column)
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.column_names)
