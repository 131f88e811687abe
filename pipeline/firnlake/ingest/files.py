"""Reads files of Kafka records (Parquet, Arrow, CSV, JSON lines, Kafka log segments) into Kafka's columns."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from firnlake.clock import to_ms
from firnlake.errors import RefusedError
from firnlake.iceberg import parquet
from firnlake.ingest import logs
from firnlake.ingest.delimited import DELIMITERS, read_delimited
from firnlake.ingest.encoding import encoded
from firnlake.ingest.json_lines import ENCODED, read_json_lines
from firnlake.table.columns import KAFKA
from firnlake.table.records import KAFKA_COLUMNS, TRANSACTION_COLUMNS, arrow_schema
from firnlake.table.topic_partition import in_ms
from firnlake_expectations.wording import count

REQUIRED = ("topic", "partition", "offset", "timestamp")
_ARROW: Final = (".arrow", ".feather")
_JSON_LINES: Final = (".jsonl", ".json", ".ndjson")
_SUFFIXES: Final = ", ".join((".parquet", *_ARROW, *DELIMITERS, *_JSON_LINES))
_FILE_MAGIC: Final = b"ARROW1"
"""Start of a file in Arrow's file format; a file in the stream format has no magic (Arrow, "Columnar Format")."""
_FIRST_MS, _LAST_MS = to_ms(datetime.min.replace(tzinfo=UTC)), to_ms(datetime.max.replace(tzinfo=UTC))
_SHOWN_NAMES = 20
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_JSON = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_nested)
_TIMES = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_integer, *_TEXTS)
_EXPRESSIBLE: Final = "text, bytes, and what JSON can express: numbers, booleans, objects and lists"
_ALLOWED_KINDS: Final = (
    (pa.types.is_integer, (pa.types.is_integer,), "integers"),
    (pa.types.is_boolean, (pa.types.is_boolean,), "booleans"),
    (pa.types.is_timestamp, _TIMES, "milliseconds, times, or text in ISO 8601"),
    (pa.types.is_large_string, (*_TEXTS, *_BYTES), "text"),
    (pa.types.is_large_binary, (*_TEXTS, *_BYTES, *_JSON), _EXPRESSIBLE),
)
"""For each kind of table column, the allowed kinds of a file's column, and their names in messages."""


def read_records(path: Path, topic: str | None = None, partition: int | None = None) -> pa.Table:
    """Read the records of ``path`` in Kafka's columns and types.

    If a file lacks ``timestampType`` or ``headers``, the result has NULL. The result has columns for transactions if
    the file has them, as log segments do. Keys and values are bytes, text, or anything that JSON can express (see
    ``encoding``); timestamps are times, ISO 8601 text or milliseconds since the epoch. No value is rounded or guessed:
    columns that hold integers or booleans in Kafka must have these types in the file. ``topic`` and ``partition`` apply
    only to log segments and override the folder name (see ``logs``). Raises RefusedError, which names the file, the
    column, the value found and the values allowed (C26).
    """
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "is no regular file" if path.exists() else "does not exist"
        raise RefusedError(f"file {path} {found}; allowed: a file with suffix {_SUFFIXES}, {logs.SUFFIX}")
    if path.suffix in logs.SIDE_FILES or path.name == logs.EPOCHS:
        raise RefusedError(
            f"file {path} accompanies Kafka's log segments and holds no records; allowed: files with suffix "
            f"{logs.SUFFIX}"
        )
    if path.suffix == logs.SUFFIX:
        return _sound(logs.read_log(path, logs.topic_partition_of(path, topic, partition)), path)
    if topic is not None or partition is not None:
        raise RefusedError(
            f"file {path} has suffix {path.suffix!r}; allowed with --topic or --partition: {logs.SUFFIX} (other files "
            "name the topic and the partition of each record)"
        )
    table = _read_columns(path)
    # A file of JSON lines without a line names no columns.
    return _sound(_conform(table, path), path) if table.num_columns else arrow_schema().empty_table()


def _read_columns(path: Path) -> pa.Table:
    """The columns of ``path`` with the names and types of the file.

    Raises RefusedError for a file that is damaged or incomplete, or has two columns of the same name.
    """
    try:
        table = _read(path)
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


def _read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return parquet.read_file(path)
    if path.suffix in _ARROW:
        with pa.OSFile(str(path)) as file:
            is_file = file.read(len(_FILE_MAGIC)) == _FILE_MAGIC
            file.seek(0)
            return (pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)).read_all()
    if path.suffix in DELIMITERS:
        return read_delimited(path)
    if path.suffix in _JSON_LINES:
        return read_json_lines(path)
    raise RefusedError(f"file {path} has suffix {path.suffix!r}; allowed: {_SUFFIXES}")


def _conform(found: pa.Table, path: Path) -> pa.Table:
    # A copy of a data file of the table has them; what lands has neither a level nor a delete horizon.
    records = found.drop_columns([name for name in (KAFKA.level, KAFKA.delete_horizon) if name in found.column_names])
    names = records.column_names
    missing = [name for name in ("key", "value", *REQUIRED) if name not in names]
    unknown = sorted(set(names) - {*KAFKA_COLUMNS, *TRANSACTION_COLUMNS})
    if missing or unknown:
        wrong = {"missing": missing, "unknown": unknown}
        told = ", ".join(f"{what}: {_some(columns)}" for what, columns in wrong.items() if columns)
        raise RefusedError(
            f"file {path} has columns {_some(names)}; {told}; allowed: "
            f"{', '.join(KAFKA_COLUMNS)}, and for transactions {', '.join(TRANSACTION_COLUMNS)}"
        )
    schema = pa.schema(
        [field for field in arrow_schema(transactions=True) if field.name in names or field.name in KAFKA_COLUMNS]
    )
    table = pa.table([_column(records, field, path) for field in schema], schema=schema)
    for name in REQUIRED:
        if nulls := table[name].null_count:
            raise RefusedError(
                f"file {path}: column {name} is NULL in {nulls} of {count(table.num_rows, 'record')}; allowed: no NULL"
            )
    return _with_producers(table, path)


def _sound(table: pa.Table, path: Path) -> pa.Table:
    """Return ``table``; refuse negative partitions or offsets, and times out of range."""
    for name in ("partition", "offset"):
        lowest = pc.min(table[name]).as_py()
        if lowest is not None and lowest < 0:
            raise RefusedError(f"file {path}: column {name} holds {lowest}; allowed: 0 or more")
    times = pc.min_max(in_ms(table.select(["timestamp"]))["timestamp"]).as_py()
    for time_ms in times.values():
        if time_ms is not None and not _FIRST_MS <= time_ms <= _LAST_MS:
            # For other times, PyIceberg would fail in the middle of a write.
            raise RefusedError(
                f"file {path}: column timestamp holds {time_ms} ms since the epoch; allowed: years 1 to 9999"
            )
    return table


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more or "none"


def _with_producers(table: pa.Table, path: Path) -> pa.Table:
    """Return ``table``; refuse a transactional record without its producer, because no marker could commit it."""
    if "is_transactional" not in table.column_names:
        return table
    inside = table.filter(pc.field("is_transactional"))
    orphans = inside.num_rows if "producer_id" not in table.column_names else inside["producer_id"].null_count
    if orphans:
        raise RefusedError(
            f"file {path}: transactional records without a producer_id: {orphans}; allowed: a producer_id in each"
        )
    return table


def _column(records: pa.Table, field: pa.Field, path: Path) -> pa.ChunkedArray:
    if field.name not in records.column_names:
        return pa.chunked_array([pa.nulls(records.num_rows, field.type)])
    column = records[field.name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    _check_kind(column.type, field, path)
    try:
        if field.name in ENCODED:
            column = encoded(column, is_key=field.name == "key")
        elif pa.types.is_timestamp(field.type) and pa.types.is_integer(column.type):
            # Milliseconds are Kafka's unit; any other unit would be a guess.
            column = column.cast(pa.timestamp("ms", tz="UTC"))
        elif pa.types.is_timestamp(field.type) and pa.types.is_timestamp(column.type) and column.type.tz is None:
            column = pc.assume_timezone(column, "UTC")
        return column.cast(field.type)
    except (pa.ArrowException, ValueError, TypeError, KeyError, RecursionError) as error:
        # For text, pyarrow's message would quote the value that can't be converted.
        quotes = not isinstance(error, pa.ArrowException) or pa.types.is_nested(column.type)
        quotes |= any(is_text(column.type) for is_text in _TEXTS)
        reason = "some values can't be converted" if quotes else str(error).splitlines()[0]
        raise RefusedError(
            f"file {path}: column {field.name} is {_kind(column.type)}: {reason}; allowed: "
            f"{_EXPRESSIBLE if field.name in ENCODED else field.type}"
        ) from error


def _check_kind(kind: pa.DataType, field: pa.Field, path: Path) -> None:
    """Refuse a column if only a guess could turn its values into the table's."""
    for is_of_table, are_allowed, allowed in _ALLOWED_KINDS:
        if is_of_table(field.type) and not any(is_allowed(kind) for is_allowed in (*are_allowed, pa.types.is_null)):
            raise RefusedError(f"file {path}: column {field.name} is {_kind(kind)}; allowed: {allowed}")


def _kind(kind: pa.DataType) -> str:
    """The type as text, without field names, because field names in JSON are the writer's data."""
    return str(kind).partition("<")[0] if pa.types.is_nested(kind) else str(kind)
