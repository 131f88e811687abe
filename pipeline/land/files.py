"""Read files of Kafka records (Parquet, JSON lines, Kafka's log segments) into Arrow tables of Kafka's columns."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet

from pipeline.errors import RefusedError
from pipeline.lake.records import KAFKA_COLUMNS, TRANSACTION_COLUMNS, arrow_schema
from pipeline.land import logs

REQUIRED = ("topic", "partition", "offset", "timestamp")
_SUFFIXES = ".parquet, .jsonl, .json, .ndjson, .log"
_HEADER_TEXT = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))


def read_records(path: Path, topic: str | None = None, partition: int | None = None) -> pa.Table:
    """The records of ``path`` in Kafka's columns and types; ``timestampType`` and ``headers`` may be absent (0, NULL).

    The columns for transactions follow where the file has them; a log segment has. In JSON lines key, value and header
    values are text (stored as UTF-8), timestamps are ISO 8601 or milliseconds since the epoch. ``topic`` and
    ``partition`` say where a log segment belongs (see ``logs``) and are for nothing else. Raises RefusedError naming
    file, column, what was found and what is allowed (C26).
    """
    if not path.is_file():
        raise RefusedError(f"file {path} does not exist; allowed: a file with suffix {_SUFFIXES}")
    if path.suffix in logs.SIDE_FILES or path.name == logs.EPOCHS:
        raise RefusedError(
            f"file {path} is what Kafka keeps beside a log segment, without records; allowed: {logs.SUFFIX}"
        )
    if path.suffix == logs.SUFFIX:
        return logs.read_log(path, logs.topic_partition_of(path, topic, partition))
    if topic is not None or partition is not None:
        raise RefusedError(
            f"file {path} says itself where its records belong; allowed with --topic or --partition: .log"
        )
    try:
        if path.suffix == ".parquet":
            found = pyarrow.parquet.read_table(path)
        elif path.suffix in (".jsonl", ".json", ".ndjson"):
            found = _read_json_lines(path)
        else:
            raise RefusedError(f"file {path} has suffix {path.suffix!r}; allowed: {_SUFFIXES}")
        names = found.column_names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise RefusedError(
            f"file {path} can't be read: {str(error).splitlines()[0]}; allowed: a whole file of records"
        ) from error
    return _conform(found, names, path)


def _read_json_lines(path: Path) -> pa.Table:
    if not path.read_bytes().strip():
        return arrow_schema().empty_table()
    _check_objects(path)
    # One block for the whole file: a record must not be larger than a block, and pyarrow's own are of 1 MiB.
    whole = pyarrow.json.ReadOptions(block_size=min(path.stat().st_size + 1, 2**31 - 1))
    text = pa.schema([("key", pa.string()), ("value", pa.string()), ("topic", pa.string()), ("headers", _HEADER_TEXT)])
    found = pyarrow.json.read_json(path, whole, pyarrow.json.ParseOptions(explicit_schema=text))
    # A schema that is given adds its columns to a file that lacks them. Without `value` all would become tombstones.
    names = pyarrow.json.read_json(path, whole).column_names
    return found.select([name for name in found.column_names if name in names])


def _check_objects(path: Path) -> None:
    """Refuse a line that is no JSON object: pyarrow ends the process when the first one is `null`."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            text = line.lstrip()
            if text and not text.startswith(b"{"):
                raise RefusedError(
                    f"file {path}: line {number} is {text[:20].decode(errors='replace').strip()!r}; allowed: a JSON "
                    "object with a record"
                )


def _conform(found: pa.Table, names: Sequence[str], path: Path) -> pa.Table:
    missing = [name for name in ("key", "value", *REQUIRED) if name not in names]
    unknown = sorted(set(names) - {*KAFKA_COLUMNS, *TRANSACTION_COLUMNS})
    if missing or unknown:
        raise RefusedError(
            f"file {path} has columns {', '.join(names)}; missing: {', '.join(missing) or 'none'}, "
            "unknown: "
            f"{', '.join(unknown) or 'none'}; allowed: {', '.join(KAFKA_COLUMNS)}, and for transactions "
            f"{', '.join(TRANSACTION_COLUMNS)}"
        )
    schema = pa.schema(
        [field for field in arrow_schema(transactions=True) if field.name in names or field.name in KAFKA_COLUMNS]
    )
    table = pa.table([_column(found, field, path) for field in schema], schema=schema)
    for name in REQUIRED:
        if nulls := table[name].null_count:
            raise RefusedError(
                f"file {path}: column {name} is NULL in {nulls} of {table.num_rows} records; allowed: never"
            )
    for name in ("partition", "offset"):
        lowest = pc.min(table[name]).as_py()
        if lowest is not None and lowest < 0:
            raise RefusedError(f"file {path}: column {name} holds {lowest}; allowed: 0 or more")
    return _with_producers(table, path)


def _with_producers(table: pa.Table, path: Path) -> pa.Table:
    """``table``, of which every transactional record names its producer: who else would commit it?"""
    if "is_transactional" not in table.column_names:
        return table
    inside = table.filter(pc.field("is_transactional"))
    orphans = inside.num_rows if "producer_id" not in table.column_names else inside["producer_id"].null_count
    if orphans:
        raise RefusedError(
            f"file {path}: {orphans} records with is_transactional have no producer_id; allowed: a producer_id for each"
        )
    return table


def _column(found: pa.Table, field: pa.Field, path: Path) -> pa.ChunkedArray:
    if field.name not in found.column_names:
        absent = 0 if field.name == "timestampType" else None
        return pa.chunked_array([pa.array([absent] * found.num_rows, type=field.type)])
    column = found[field.name]
    try:
        if pa.types.is_timestamp(field.type) and pa.types.is_integer(column.type):
            # Kafka's own unit; anything else would be a guess.
            column = column.cast(pa.timestamp("ms", tz="UTC"))
        elif pa.types.is_timestamp(field.type) and pa.types.is_timestamp(column.type) and column.type.tz is None:
            column = pc.assume_timezone(column, "UTC")
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise RefusedError(
            f"file {path}: column {field.name} is {column.type}: {str(error).splitlines()[0]}; allowed: {field.type}"
        ) from error
