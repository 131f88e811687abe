"""Reads files of Kafka records (Parquet, JSON lines, Kafka log segments) into Arrow tables with Kafka's columns."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from firnlake.clock import to_ms
from firnlake.errors import RefusedError
from firnlake.iceberg import parquet
from firnlake.ingest import logs
from firnlake.table.records import KAFKA_COLUMNS, TRANSACTION_COLUMNS, arrow_schema
from firnlake.table.topic_partition import in_ms
from firnlake_expectations.wording import count

REQUIRED = ("topic", "partition", "offset", "timestamp")
_SUFFIXES = ".parquet, .jsonl, .json, .ndjson, .log"
_FIRST_MS, _LAST_MS = to_ms(datetime.min.replace(tzinfo=UTC)), to_ms(datetime.max.replace(tzinfo=UTC))
_MOST_NAMES = 1000
"""Maximum number of distinct fields in a file of JSON lines; a file with more fields is not a file of records."""
_SHOWN_NAMES = 20
_TIMES = (
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
)
_ALLOWED_KINDS: Final = (
    (pa.types.is_integer, (pa.types.is_integer,), "integers"),
    (pa.types.is_boolean, (pa.types.is_boolean,), "booleans"),
    (pa.types.is_timestamp, _TIMES, "milliseconds, times, or text in ISO 8601"),
)
"""For each kind of table column, the allowed kinds of a file's column, and their names in messages."""
_HEADER_TEXT = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))


def read_records(path: Path, topic: str | None = None, partition: int | None = None) -> pa.Table:
    """Read the records of ``path`` in Kafka's columns and types.

    If a file lacks ``timestampType``, the result has 0; if it lacks ``headers``, the result has NULL. The result has
    columns for transactions if the file has them, as log segments do. In JSON lines, keys, values and header values are
    text (stored as UTF-8), and timestamps are ISO 8601 text or milliseconds since the epoch. No value is rounded or
    guessed: columns that hold integers or booleans in Kafka must have these types in the file. ``topic`` and
    ``partition`` apply only to log segments and override the folder name (see ``logs``). Raises RefusedError, which
    names the file, the column, the value found and the values allowed (C26).
    """
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "is no regular file" if path.exists() else "does not exist"
        raise RefusedError(f"file {path} {found}; allowed: a file with suffix {_SUFFIXES}")
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
    try:
        if path.suffix == ".parquet":
            records = parquet.read_file(path)
        elif path.suffix in (".jsonl", ".json", ".ndjson"):
            records = _read_json_lines(path)
        else:
            raise RefusedError(f"file {path} has suffix {path.suffix!r}; allowed: {_SUFFIXES}")
        return _sound(_conform(records, path), path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RefusedError(f"file {path} can't be read: {reason}; allowed: a complete file of records") from error


def _read_json_lines(path: Path) -> pa.Table:
    names = _names(path)
    if not names:
        return arrow_schema().empty_table()
    # The whole file is one block, because a record must fit into a block, and pyarrow's default is 1 MiB.
    whole = pyarrow.json.ReadOptions(block_size=min(path.stat().st_size + 1, 2**31 - 1))
    text = pa.schema([("key", pa.string()), ("value", pa.string()), ("topic", pa.string()), ("headers", _HEADER_TEXT)])
    records = pyarrow.json.read_json(path, whole, pyarrow.json.ParseOptions(explicit_schema=text))
    # The explicit schema adds columns that the file lacks. If it added `value`, all records would be tombstones.
    return records.select([name for name in records.column_names if name in names])


def _names(path: Path) -> set[str]:
    """Names of all fields in a file of JSON lines; empty for a file without lines.

    Refuses a line that is not a JSON object, because pyarrow ends the process when the first line is `null`. Refuses
    too many fields, because pyarrow takes minutes for thousands of fields. Messages do not quote a line, because it may
    hold private data.
    """
    names: set[str] = set()
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line.decode())
            except (ValueError, RecursionError) as error:
                raise _no_object(path, number, f"is not JSON ({_place(error)})") from error
            if not isinstance(record, dict):
                raise _no_object(path, number, f"is a {type(record).__name__}")
            names |= record.keys()
            if len(names) > _MOST_NAMES:
                raise _no_object(path, number, f"raises the number of fields above {_MOST_NAMES}")
    return names


def _place(error: Exception) -> str:
    match error:
        case json.JSONDecodeError():
            return f"{error.msg} at column {error.colno}"
        case UnicodeDecodeError():
            return f"not UTF-8 at byte {error.start}"
        case _:
            return "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"


def _no_object(path: Path, number: int, problem: str) -> RefusedError:
    return RefusedError(f"file {path}: line {number} {problem}; allowed: a JSON object with a record")


def _conform(records: pa.Table, path: Path) -> pa.Table:
    names = records.column_names
    missing = [name for name in ("key", "value", *REQUIRED) if name not in names]
    unknown = sorted(set(names) - {*KAFKA_COLUMNS, *TRANSACTION_COLUMNS})
    if missing or unknown:
        raise RefusedError(
            f"file {path} has columns {_some(names)}; missing: {_some(missing)}, unknown: {_some(unknown)}; allowed: "
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
    """Return ``table``; refuse text that is not UTF-8, negative partitions or offsets, and times out of range."""
    try:
        table.validate(full=True)
    except pa.ArrowException as error:
        raise RefusedError(
            f"file {path} holds a value that does not match its type: {str(error).splitlines()[0]}; allowed: text in "
            "UTF-8"
        ) from error
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
        absent = 0 if field.name == "timestampType" else None
        return pa.chunked_array([pa.array([absent] * records.num_rows, type=field.type)])
    column = records[field.name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    _check_kind(column.type, field, path)
    try:
        if pa.types.is_timestamp(field.type) and pa.types.is_integer(column.type):
            # Milliseconds are Kafka's unit; any other unit would be a guess.
            column = column.cast(pa.timestamp("ms", tz="UTC"))
        elif pa.types.is_timestamp(field.type) and pa.types.is_timestamp(column.type) and column.type.tz is None:
            column = pc.assume_timezone(column, "UTC")
        return column.cast(field.type)
    except pa.ArrowException as error:
        # For text, pyarrow's message would quote the value that can't be converted.
        text = pa.types.is_string(column.type) or pa.types.is_nested(column.type)
        reason = "some values can't be converted" if text else str(error).splitlines()[0]
        raise RefusedError(
            f"file {path}: column {field.name} is {_kind(column.type)}: {reason}; allowed: {field.type}"
        ) from error


def _check_kind(kind: pa.DataType, field: pa.Field, path: Path) -> None:
    """Refuse a column if only a conversion could turn its values into integers, booleans or times.

    For example, if JSON lines have one fraction among integers, pyarrow reads all these numbers as doubles, and long
    integers lose their last digits.
    """
    for is_of_table, are_allowed, allowed in _ALLOWED_KINDS:
        if is_of_table(field.type) and not any(is_allowed(kind) for is_allowed in (*are_allowed, pa.types.is_null)):
            raise RefusedError(f"file {path}: column {field.name} is {_kind(kind)}; allowed: {allowed}")


def _kind(kind: pa.DataType) -> str:
    """The type as text, without field names, because field names in JSON are the writer's data."""
    return str(kind).partition("<")[0] if pa.types.is_nested(kind) else str(kind)
