"""Reads files of all formats into Arrow tables with the columns and types of the file."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Final

import pyarrow as pa

from firnlake.errors import RefusedError
from firnlake.iceberg import parquet
from firnlake.ingest.delimited import DELIMITERS, read_delimited
from firnlake.ingest.json_lines import read_json_lines

PARQUET: Final = (".parquet",)
ARROW: Final = (".arrow", ".feather")
JSON_LINES: Final = (".jsonl", ".json", ".ndjson")
SUFFIXES: Final = ", ".join((*PARQUET, *ARROW, *DELIMITERS, *JSON_LINES))
_FILE_MAGIC: Final = b"ARROW1"
"""Start of a file in Arrow's file format; a file in the stream format has no magic (Arrow, "Columnar Format")."""


def check_is_file(path: Path, suffixes: str) -> None:
    """Refuse a path at which there is no regular file; ``suffixes`` are those of the allowed files."""
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "is no regular file" if path.exists() else "does not exist"
        raise RefusedError(f"file {path} {found}; allowed: a file with suffix {suffixes}")


def read_columns(path: Path, encoded: Collection[str] = (), text: Collection[str] = ()) -> pa.Table:
    """Read the columns of the file ``path``, by its suffix.

    In formats without bytes (JSON lines), the columns ``encoded`` hold the bytes of what the file has (see
    ``encoding``). In formats without types (CSV) or without times (JSON lines), types are found by looking at the text,
    except in the columns ``encoded`` and ``text``. Raises RefusedError, which names the file, for a file that is
    damaged or incomplete, has another suffix, or has two columns of the same name.
    """
    try:
        table = _read(path, encoded, text)
        names = Counter(table.column_names)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RefusedError(f"file {path} can't be read: {reason}; allowed: a complete file of records") from error
    try:
        table.validate(full=True)
    except pa.ArrowException as error:
        raise RefusedError(
            f"file {path} holds a value that does not match its type: {str(error).splitlines()[0]}; allowed: text in "
            "UTF-8"
        ) from error
    if repeated := [name for name, number in names.items() if number > 1]:
        raise RefusedError(f"file {path} has several columns {repeated[0]!r}; allowed: each name once")
    return table


def _read(path: Path, encoded: Collection[str], text: Collection[str]) -> pa.Table:
    if path.suffix in PARQUET:
        return parquet.read_file(path)
    if path.suffix in ARROW:
        with pa.OSFile(str(path)) as file:
            is_file = file.read(len(_FILE_MAGIC)) == _FILE_MAGIC
            file.seek(0)
            return (pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)).read_all()
    if path.suffix in DELIMITERS:
        return read_delimited(path, (*encoded, *text))
    if path.suffix in JSON_LINES:
        return read_json_lines(path, encoded, text)
    raise RefusedError(f"file {path} has suffix {path.suffix!r}; allowed: {SUFFIXES}")
