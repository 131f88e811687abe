"""Keys as people write them: in ``--key`` of `explain` and `erase`, and in a file of keys."""

import base64
import binascii
import codecs
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.versions import Key
from firnlake.table.columns import ColumnRoles
from firnlake_expectations.wording import count

KEYLESS: Final = "null:"
"""Stands for the records without a key."""
ONE_KEY: Final = "give one --key; commas separate the values of a composite key"


def key_columns(lake: Lake, table: str) -> Sequence[str]:
    """The key columns of ``table``, in the order in which a key gives their values."""
    return ColumnRoles.of(lake.table(table), table).key


def parse_key(text: str, columns: Sequence[str]) -> Key:
    """Parse a key of a table with these key ``columns``; ``null:`` means records without a key.

    With one column, ``text`` is the value. With several, commas separate the values, as in ``firn adopt --key``, and a
    value with a comma is in double quotes (CSV, RFC 4180). A value is encoded as UTF-8 unless it has the prefix
    ``hex:`` or ``base64:``; a prefix ``text:`` is dropped. Raises RefusedError for a wrong number of values, and for a
    value that does not fit its prefix.
    """
    if text == KEYLESS:
        return None
    values = _separated(text) if len(columns) > 1 else [text]
    if len(values) != len(columns):
        raise RefusedError(
            f"key {text!r} has {count(len(values), 'value')}; allowed: {len(columns)}, written as "
            f"{','.join(f'<{name}>' for name in columns)}, with double quotes around a value that has a comma"
        )
    return tuple(map(_encoded, values))


def keys_in(path: Path, columns: Sequence[str]) -> Iterator[tuple[bytes, ...]]:
    """The keys in a file with one key per line; raises RefusedError for an unreadable file and a wrong line.

    Nothing but ``\\n`` and ``\\r\\n`` ends a line. A byte order mark at the beginning is no part of a key.
    """
    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).decode().removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(
            f"file {path} can't be read: {error}; allowed: UTF-8 with one key per line (`hex:<digits>` for a key that "
            "is not text)"
        ) from error
    for number, line in enumerate((line.removesuffix("\r") for line in lines), start=1):
        try:
            key = parse_key(line, columns) if line else None
        except RefusedError as error:
            raise RefusedError(f"file {path}, line {number}: {error}") from error
        if key is None:
            raise RefusedError(
                f"file {path}: line {number} is not a key: {line!r}; allowed: a key (write the empty key as `text:`)"
            )
        if line != line.strip():
            raise RefusedError(
                f"file {path}: line {number} begins or ends with blanks: {line!r}; allowed: no blanks (write those "
                "that are part of the key as `hex:<digits>`)"
            )
        yield key


def _separated(text: str) -> list[str]:
    try:
        return [value for line in csv.reader([text], strict=True) for value in line]
    except csv.Error as error:
        raise RefusedError(
            f"key {text!r} can't be split at its commas: {error}; allowed: values as in CSV (hex:<digits> for any byte)"
        ) from error


def _encoded(text: str) -> bytes:
    kind, _, rest = text.partition(":")
    try:
        match kind:
            case "hex":
                return bytes.fromhex(rest)
            case "base64":
                return base64.b64decode(rest, validate=True)
            case "text":
                return rest.encode(errors="surrogateescape")
            case _:
                # Bytes that are no text stay as they are on a command line.
                return text.encode(errors="surrogateescape")
    except (ValueError, binascii.Error) as error:
        raise RefusedError(
            f"key {text!r} is not {kind}: {error}; allowed: text, text:<text>, hex:<digits>, base64:<letters>, "
            f"{KEYLESS}"
        ) from error
