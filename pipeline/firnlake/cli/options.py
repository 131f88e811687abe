"""Arguments and options that several subcommands share, and keys as people write them."""

import base64
import binascii
import codecs
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from firnlake import clock
from firnlake.cli import show
from firnlake.engine.engine import CHOICES, Engines
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.table.columns import ColumnRoles
from firnlake.table.segment import TopicPartition
from firnlake_expectations.wording import count

if TYPE_CHECKING:
    from firnlake.inspect.versions import Key


def topic_partition_option(description: str) -> Any:
    return typer.Option("--partition", parser=TopicPartition.parse, metavar="TOPIC-PARTITION", help=description)


TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as namespace.name.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[
    int, typer.Option("--limit", min=1, metavar="N", help="Print at most N entries of a list; --json prints all.")
]
Now = Annotated[
    int | None,
    typer.Option(
        "--now",
        parser=clock.parse,
        metavar="TIME",
        help="The time of all decisions: ISO 8601 or epoch milliseconds. Default: now.",
    ),
]
OneTopicPartition = Annotated[
    TopicPartition | None,
    typer.Argument(parser=TopicPartition.parse, metavar="[TOPIC-PARTITION]", help="For example orders-0."),
]
Partition = Annotated[TopicPartition | None, topic_partition_option("Only this topic partition.")]

EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="|".join(CHOICES),
        help="Where tasks run: on Spark, in this process, or chosen by size. Default: FIRN_ENGINE, otherwise auto.",
    ),
]

Properties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="K=V", help="A table property, for example firn.merge.segments=32. Repeatable."),
]


def at(now: int | None) -> int:
    """The time of this command in epoch milliseconds: ``--now``, or the machine's clock."""
    return clock.now_ms() if now is None else now


def engines(choice: str | None, title: str, as_json: bool) -> Engines:
    """The engines of a command; unless the output is JSON, a line says which Spark application runs the tasks."""
    return Engines(choice, title, tell=None if as_json else show.line)


def pairs(texts: list[str] | None, option: str = "--property") -> dict[str, str]:
    """Parse the properties given by ``option``. Raises RefusedError for a text without a name or ``=``."""
    values = {}
    for text in texts or []:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise RefusedError(f"{option} {text!r} is not a property; allowed: name=value")
        values[key] = value
    return values


KEYLESS: Final = "null:"
"""Stands for the records without a key."""
ONE_KEY: Final = "give one --key; commas separate the values of a composite key"


def key_columns(lake: Lake, table: str) -> Sequence[str]:
    """The key columns of ``table``, in the order in which a key gives their values."""
    return ColumnRoles.of(lake.table(table), table).key


def parse_key(text: str, columns: Sequence[str]) -> "Key":
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
