"""Read files of Kafka records (Parquet or JSON lines) into Arrow tables with exactly Kafka's columns."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet

from pipeline.errors import RefusedError
from pipeline.lake.records import KAFKA_COLUMNS, arrow_schema

REQUIRED = ("topic", "partition", "offset", "timestamp")
_HEADER_TEXT = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))


def read_records(path: Path) -> pa.Table:
    """The records of ``path`` in Kafka's columns and types; ``timestampType`` and ``headers`` may be absent (0, NULL).

    In JSON lines key, value and header values are text (stored as UTF-8), timestamps are ISO 8601 or milliseconds since
    the epoch. Raises RefusedError naming file, column, what was found and what is allowed (C26).
    """
    if not path.is_file():
        raise RefusedError(
            f"file {path} does not exist; allowed: a Parquet (.parquet) or JSON lines (.jsonl, .json) file"
        )
    try:
        if path.suffix == ".parquet":
            found = pyarrow.parquet.read_table(path)
        elif path.suffix in (".jsonl", ".json", ".ndjson"):
            found = _read_json_lines(path)
        else:
            raise RefusedError(f"file {path} has suffix {path.suffix!r}; allowed: .parquet, .jsonl, .json, .ndjson")
        names = found.column_names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise RefusedError(
            f"file {path} can't be read: {str(error).splitlines()[0]}; allowed: a whole file of records"
        ) from error
    return _conform(found, names, path)


def _read_json_lines(path: Path) -> pa.Table:
    if not path.read_bytes().strip():
        return arrow_schema().empty_table()
    # One block for the whole file: a record must not be larger than a block, and pyarrow's own are of 1 MiB.
    whole = pyarrow.json.ReadOptions(block_size=min(path.stat().st_size + 1, 2**31 - 1))
    text = pa.schema([("key", pa.string()), ("value", pa.string()), ("topic", pa.string()), ("headers", _HEADER_TEXT)])
    found = pyarrow.json.read_json(path, whole, pyarrow.json.ParseOptions(explicit_schema=text))
    # A schema that is given adds its columns to a file that lacks them. Without `value` all would become tombstones.
    names = pyarrow.json.read_json(path, whole).column_names
    return found.select([name for name in found.column_names if name in names])


def _conform(found: pa.Table, names: Sequence[str], path: Path) -> pa.Table:
    missing = [name for name in ("key", "value", *REQUIRED) if name not in names]
    unknown = sorted(set(names) - set(KAFKA_COLUMNS))
    if missing or unknown:
        raise RefusedError(
            f"file {path} has columns {', '.join(names)}; missing: {', '.join(missing) or 'none'}, "
            "unknown: "
            f"{', '.join(unknown) or 'none'}; allowed: {', '.join(KAFKA_COLUMNS)}"
        )
    columns = [_column(found, field, path) for field in arrow_schema()]
    table = pa.table(columns, schema=arrow_schema())
    for name in REQUIRED:
        if nulls := table[name].null_count:
            raise RefusedError(
                f"file {path}: column {name} is NULL in {nulls} of {table.num_rows} records; allowed: never"
            )
    for name in ("partition", "offset"):
        lowest = pc.min(table[name]).as_py()
        if lowest is not None and lowest < 0:
            raise RefusedError(f"file {path}: column {name} holds {lowest}; allowed: 0 or more")
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
