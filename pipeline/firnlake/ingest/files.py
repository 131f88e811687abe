"""Reads files of Kafka records (Parquet, Arrow, CSV, JSON lines, Kafka log segments) into Kafka's columns."""

import mmap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from firnlake.clock import to_ms
from firnlake.errors import RefusedError
from firnlake.iceberg import parquet
from firnlake.ingest import logs
from firnlake.ingest.text_files import (
    DELIMITERS,
    ENCODED,
    EVERYTHING,
    TEXT,
    TIMES,
    encoded,
    first_wrong,
    read_delimited,
    read_json_lines,
    typed,
)
from firnlake.table.columns import KAFKA
from firnlake.table.records import KAFKA_COLUMNS, TRANSACTION_COLUMNS, arrow_schema, in_ms
from firnlake_expectations.wording import count

REQUIRED = ("topic", "partition", "offset", "timestamp")
_ARROW: Final = (".arrow", ".feather")
_JSON_LINES: Final = (".jsonl", ".json", ".ndjson")
_SUFFIXES: Final = ", ".join((".parquet", *_ARROW, *DELIMITERS, *_JSON_LINES))
_FILE_MAGIC: Final = b"ARROW1"
"""Start of a file in Arrow's file format; a file in the stream format has no magic (Arrow, "Columnar Format")."""
_PARQUET_MAGIC: Final = b"PAR1"
"""Start and end of a Parquet file."""
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
_FIRST_MS, _LAST_MS = to_ms(datetime.min.replace(tzinfo=UTC)), to_ms(datetime.max.replace(tzinfo=UTC))
_SHOWN_NAMES = 20
_LONG: Final = 2**63 - 1
_HIGHEST: Final = {
    "partition": _LONG,
    "offset": _LONG,
    "timestampType": 1,
    "producer_id": _LONG,
    "producer_epoch": 32767,
}
"""The highest value that Kafka has in a column. The lowest is 0; NULL means "none", which is -1 in Kafka's batches."""
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_JSON = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_nested)
_TIMES = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_integer, *_TEXTS)
_EXPRESSIBLE: Final = "text, bytes, and what JSON can express: numbers, booleans, objects and lists"


def _is_any(kind: pa.DataType, *kinds: Callable[[pa.DataType], bool]) -> bool:
    return any(is_kind(kind) for is_kind in kinds)


def _are_headers(kind: pa.DataType) -> bool:
    """True for lists of structs with exactly the fields key and value, in any order."""
    if not _is_any(kind, *_LISTS):
        return False
    parts = kind.value_type if pa.types.is_struct(kind.value_type) else ()
    named = sorted(part.name for part in parts) == sorted(ENCODED)
    as_bytes = all(_is_any(part.type, *_TEXTS, *_BYTES, pa.types.is_null) for part in parts)
    return pa.types.is_null(kind.value_type) or (named and as_bytes)


_ALLOWED_KINDS: Final = (
    (pa.types.is_integer, (pa.types.is_integer,), "integers"),
    (pa.types.is_boolean, (pa.types.is_boolean,), "booleans"),
    (pa.types.is_timestamp, _TIMES, "milliseconds, times, or text in ISO 8601"),
    (pa.types.is_large_string, (*_TEXTS, *_BYTES), "text"),
    (pa.types.is_large_binary, (*_TEXTS, *_BYTES, *_JSON), _EXPRESSIBLE),
    (pa.types.is_large_list, (_are_headers,), "a list of objects with key and value, which are text or bytes"),
)
"""For each kind of table column, the allowed kinds of a file's column, and their names in messages."""


@dataclass(frozen=True)
class _File:
    """A file that is read: what text may stand for in it, and the line of each record of a file of text."""

    path: Path
    types: Sequence[tuple[str, pa.DataType]] = TIMES
    lines: Sequence[int] | None = None

    def refusal(self, problem: str, allowed: str, wrong: pa.ChunkedArray | int) -> RefusedError:
        """The refusal of a value; ``wrong`` is the place of its record, or true for each wrong one."""
        place = wrong if isinstance(wrong, int) else pc.index(wrong, value=pa.scalar(value=True)).as_py()
        where = f"record {place + 1}" if self.lines is None else f"line {self.lines[place]}"
        return RefusedError(f"file {self.path}: {problem}; allowed: {allowed}; the first is in {where}")


def read_records(path: Path, topic: str | None = None, partition: int | None = None) -> pa.Table:
    """Read the records of ``path`` in Kafka's columns and types.

    If a file lacks ``timestampType`` or ``headers``, the result has NULL. The result has columns for transactions if
    the file has them, as log segments do. Keys and values are bytes, text, or anything that JSON can express (see
    ``encoding``); timestamps are times, ISO 8601 text or milliseconds since the epoch. No value is rounded or guessed:
    columns that hold integers or booleans in Kafka must have these types in the file, and a value is taken only if
    the same value can be made of the result. ``topic`` and ``partition`` apply only to log segments and override the
    folder name (see ``logs``). Raises RefusedError, which names the file, the line or record, the column, the value
    found and the values allowed (C26).
    """
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "is no regular file" if path.exists() else "does not exist"
        raise RefusedError(f"file {path} {found}; allowed: a file with suffix {_SUFFIXES}, {logs.SUFFIX}")
    if path.suffix == logs.SUFFIX:
        return _sound(logs.read_log(path, logs.topic_partition_of(path, topic, partition)), _File(path))
    if topic is not None or partition is not None:
        raise RefusedError(
            f"file {path} has suffix {path.suffix!r}; allowed with --topic or --partition: {logs.SUFFIX} (other files "
            "name the topic and the partition of each record)"
        )
    table, file = _read_columns(path)
    # A file of JSON lines without a line names no columns.
    is_empty = not table.num_columns and file.lines is not None and not file.lines
    return arrow_schema().empty_table() if is_empty else _sound(_conform(table, file), file)


def _read_columns(path: Path) -> tuple[pa.Table, _File]:
    """The columns of ``path`` with the names and types of the file.

    Raises RefusedError for a file that is damaged or incomplete, or has two columns of the same name.
    """
    try:
        table, file = _read(path)
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
    return table, file


def _read(path: Path) -> tuple[pa.Table, _File]:
    if path.suffix == ".parquet":
        table = parquet.read_file(path)
        _check_single(path, _PARQUET_MAGIC)
        return table, _File(path)
    if path.suffix in _ARROW:
        return _read_arrow(path), _File(path)
    if path.suffix in DELIMITERS:
        table, lines = read_delimited(path)
        return table, _File(path, EVERYTHING, lines)
    if path.suffix in _JSON_LINES:
        table, lines = read_json_lines(path)
        return table, _File(path, TIMES, lines)
    raise RefusedError(f"file {path} has suffix {path.suffix!r}; allowed: {_SUFFIXES}, {logs.SUFFIX}")


def _read_arrow(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        is_file = file.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        file.seek(0)
        table = (pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)).read_all()
        # Arrow does not mind that a stream breaks off between two batches, or that another stream follows.
        file.seek(max(0, file.tell() - len(_END_OF_STREAM)))
        if not is_file and file.read() != _END_OF_STREAM:
            raise RefusedError(f"file {path} breaks off, or goes on after its end; allowed: one whole Arrow stream")
    if is_file:
        _check_single(path, _FILE_MAGIC)
    return table


def _check_single(path: Path, magic: bytes) -> None:
    """Raise RefusedError if one file follows another in ``path``; each begins and ends with ``magic``.

    Readers use the last footer, whose positions then point into the first file.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(magic * 2) >= 0:
            raise RefusedError(f"file {path} is several files, one after the other; allowed: one whole file")


def _conform(found: pa.Table, file: _File) -> pa.Table:
    # A copy of a data file of the table has them; what lands has neither a level nor a delete horizon.
    records = found.drop_columns([name for name in (KAFKA.level, KAFKA.delete_horizon) if name in found.column_names])
    names = records.column_names
    missing = [name for name in ("key", "value", *REQUIRED) if name not in names]
    unknown = sorted(set(names) - {*KAFKA_COLUMNS, *TRANSACTION_COLUMNS})
    if missing or unknown:
        wrong = {"missing": missing, "unknown": unknown}
        told = ", ".join(f"{what}: {_some(columns)}" for what, columns in wrong.items() if columns)
        raise RefusedError(
            f"file {file.path} has columns {_some(names)}; {told}; allowed: "
            f"{', '.join(KAFKA_COLUMNS)}, and for transactions {', '.join(TRANSACTION_COLUMNS)}"
        )
    schema = pa.schema(
        [field for field in arrow_schema(transactions=True) if field.name in names or field.name in KAFKA_COLUMNS]
    )
    table = pa.table([_column(records, field, file) for field in schema], schema=schema)
    for name in REQUIRED:
        if nulls := table[name].null_count:
            problem = f"column {name} is NULL in {nulls} of {count(table.num_rows, 'record')}"
            raise file.refusal(problem, "no NULL", table[name].is_null())
    return _with_producers(table, file)


def _sound(table: pa.Table, file: _File) -> pa.Table:
    """Return ``table``; refuse numbers that Kafka does not have, and times out of range."""
    for name in _HIGHEST.keys() & set(table.column_names):
        wrong = pc.or_(pc.less(table[name], 0), pc.greater(table[name], _HIGHEST[name]))
        if pc.any(wrong).as_py():
            allowed = "0 or more" if _HIGHEST[name] == _LONG else f"0 to {_HIGHEST[name]}"
            raise file.refusal(f"column {name} holds {table[name].filter(wrong)[0]}", allowed, wrong)
    times = in_ms(table.select(["timestamp"]))["timestamp"]
    wrong = pc.or_(pc.less(times, _FIRST_MS), pc.greater(times, _LAST_MS))
    if pc.any(wrong).as_py():
        # For other times, PyIceberg would fail in the middle of a write.
        found = times.filter(wrong)[0]
        raise file.refusal(f"column timestamp holds {found} ms since the epoch", "years 1 to 9999", wrong)
    return table


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more or "none"


def _with_producers(table: pa.Table, file: _File) -> pa.Table:
    """Return ``table``; refuse a transactional record without its producer, because no marker could commit it."""
    if "is_transactional" not in table.column_names:
        return table
    orphans = table["is_transactional"].fill_null(pa.scalar(value=False))
    if "producer_id" in table.column_names:
        orphans = pc.and_(orphans, table["producer_id"].is_null())
    if pc.any(orphans).as_py():
        problem = f"transactional records without a producer_id: {pc.sum(orphans)}"
        raise file.refusal(problem, "a producer_id in each", orphans)
    return table


def _column(records: pa.Table, field: pa.Field, file: _File) -> pa.ChunkedArray:
    if field.name not in records.column_names:
        return pa.chunked_array([pa.nulls(records.num_rows, field.type)])
    column = records[field.name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if isinstance(column.type, pa.BaseExtensionType) and _is_any(column.type.storage_type, *_TEXTS, *_BYTES):
        column = column.cast(column.type.storage_type)
    convert = partial(_converted, field, file.types)
    try:
        return convert(column)
    except (pa.ArrowException, ValueError, TypeError, KeyError, RecursionError) as error:
        kind = _typed(column, field, file.types).type
        # For text, pyarrow's message would quote the value that can't be converted.
        quotes = not isinstance(error, pa.ArrowException) or _is_any(kind, pa.types.is_nested, *_TEXTS)
        reason = "some values can't be converted" if quotes else str(error).splitlines()[0]
        allowed = _only(kind, field)
        raise file.refusal(
            f"column {field.name} is {_kind(kind)}" + ("" if allowed else f": {reason}"),
            allowed or (_EXPRESSIBLE if field.name in ENCODED else str(field.type)),
            first_wrong(convert, column),
        ) from error


def _only(kind: pa.DataType, field: pa.Field) -> str | None:
    """The kinds of columns that are allowed for ``field``, in words; None if ``kind`` is one of them."""
    for is_of_table, are_allowed, allowed in _ALLOWED_KINDS:
        if is_of_table(field.type) and not _is_any(kind, *are_allowed, pa.types.is_null):
            return allowed
    return None


def _typed(column: pa.ChunkedArray, field: pa.Field, types: Sequence[tuple[str, pa.DataType]]) -> pa.ChunkedArray:
    """The ``column``; text with the type for which it stands, unless it stays text in the table."""
    is_text = _is_any(column.type, *_TEXTS) and field.name not in TEXT
    return typed(column.cast(pa.string()), types) if is_text else column


def _converted(field: pa.Field, types: Sequence[tuple[str, pa.DataType]], column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The ``column`` with the type of ``field``; raises an error unless all values stay the same."""
    column = _typed(column, field, types)
    if _only(column.type, field):
        raise TypeError
    if field.name in ENCODED:
        return encoded(column, is_key=field.name == "key").cast(field.type)
    if pa.types.is_timestamp(field.type) and pa.types.is_integer(column.type):
        # Milliseconds are Kafka's unit; any other unit would be a guess.
        column = column.cast(pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    elif pa.types.is_timestamp(column.type) and column.type.tz is None:
        column = pc.assume_timezone(column, "UTC")
    found = column.cast(field.type)
    # The cast of headers only makes bytes of text, and a column without values can't be cast back.
    if not _is_any(column.type, pa.types.is_nested, pa.types.is_null) and not found.cast(column.type).equals(column):
        raise ValueError
    return found


def _kind(kind: pa.DataType) -> str:
    """The type as text, without field names, because field names in JSON are the writer's data."""
    return str(kind).partition("<")[0] if pa.types.is_nested(kind) else str(kind)
