"""Reads files of Kafka records (Parquet, JSON lines, Kafka log segments) into Kafka's columns.

Parquet is converted column by column; JSON lines, which have a record as a JSON object in each line, value by value, so
that a refusal names the line. Messages do not quote a value, because it may hold private data.

Keys and values become the bytes that Kafka's producers write with a serializer for text or JSON. Text is its UTF-8,
without quotes. Everything else is JSON in UTF-8, without spaces, with its numbers as they are written. So the number
1001 and the text 1001 are the same key, because a key is its bytes. The fields of an object keep their order in a
value. In a key they are sorted by name, at every depth, because JSON gives their order no meaning, and the same object
should be the same key.
"""

import json
import mmap
import re
from array import array
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from firnlake.clock import CALENDAR, from_ms
from firnlake.errors import RefusedError
from firnlake.iceberg import parquet
from firnlake.ingest import logs
from firnlake.table.columns import KAFKA
from firnlake.table.records import KAFKA_COLUMNS, TRANSACTION_COLUMNS, arrow_schema
from firnlake_expectations.wording import count

NOT_NULL: Final = ("topic", "partition", "offset", "timestamp")
REQUIRED: Final = ("key", "value", *NOT_NULL)
"""The columns that each file has, and each line of JSON lines."""
_KNOWN: Final = (*KAFKA_COLUMNS, *TRANSACTION_COLUMNS, KAFKA.level, KAFKA.delete_horizon)
"""All columns that a file may have. A copy of a data file of the table has the last two, which are left out, because
what lands has neither."""
_JSON_LINES: Final = (".jsonl", ".json", ".ndjson")
_SUFFIXES: Final = ", ".join((".parquet", *_JSON_LINES, logs.SUFFIX))
_MAGIC: Final = b"PAR1"
"""Start and end of a Parquet file."""
_SHOWN_NAMES: Final = 20
_AT_ONCE: Final = 100_000
"""Number of records of JSON lines that are Python objects at the same time."""
_INTEGER: Final = re.compile("0|-?[1-9][0-9]{0,18}")
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[-+][0-9]{2}:?[0-9]{2})?)?"
)
"""Dates and times in ISO 8601 that a microsecond can hold."""
_LONG: Final = 2**63 - 1
_INT: Final = 2**31 - 1
_HIGHEST: Final = {
    "partition": _INT,
    "offset": _LONG,
    "timestampType": 1,
    "producer_id": _LONG,
    "producer_epoch": 32767,
}
"""The highest value that Kafka has in a column. The lowest is 0; NULL means "none", which is -1 in Kafka's batches."""


def read_records(path: Path, further: pa.Schema) -> pa.Table:
    """Read the records of ``path`` in Kafka's columns and types, and the table's ``further`` columns if it has them.

    If a file lacks ``timestampType`` or ``headers``, the result has NULL. The result has columns for transactions if
    the file has them, as log segments do. No value is rounded or guessed: columns that hold integers or booleans in
    Kafka must have these types in the file, and a value is taken only if the same value can be made of the result.
    Raises RefusedError, which names the file, the line or record, the column, what was found and what is allowed (C26).
    """
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "is no regular file" if path.exists() else "does not exist"
        raise RefusedError(f"file {path} {found}; allowed: a file with suffix {_SUFFIXES}")
    file = _File(path, further)
    try:
        if path.suffix == logs.SUFFIX:
            return _sound(file, logs.read_log(path, logs.topic_partition_of(path)))
        if path.suffix in _JSON_LINES:
            return _sound(file, _of_values(file, _json_lines(path)))
        if path.suffix == ".parquet":
            return _sound(file, _of_columns(file))
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RefusedError(f"file {path} can't be read: {reason}; allowed: a complete file of records") from error
    raise RefusedError(f"file {path} has suffix {path.suffix!r}; allowed: {_SUFFIXES}")


@dataclass(frozen=True)
class _File:
    """A file that is read, and the line of each record of JSON lines."""

    path: Path
    further: pa.Schema
    """The columns of the table beyond those of Kafka's records, which the file may have."""
    lines: "array[int]" = field(default_factory=partial(array, "q"))

    def refusal(self, problem: str, allowed: str, wrong: pa.ChunkedArray | int) -> RefusedError:
        """The refusal of a value; ``wrong`` is the place of its record, or true for each wrong one."""
        place = wrong if isinstance(wrong, int) else pc.index(wrong, value=pa.scalar(value=True)).as_py()
        where = f"line {self.lines[place]}" if self.lines else f"record {place + 1}"
        return RefusedError(f"file {self.path}: {problem}; allowed: {allowed}; the first is in {where}")


def _sound(file: _File, table: pa.Table) -> pa.Table:
    """``table`` with Kafka's types.

    Refuses numbers that Kafka does not have, times out of range, NULL in a column that orders records, and a
    transactional record without its producer, because no marker could commit it.
    """
    names = table.column_names
    for name in NOT_NULL:
        if nulls := table[name].null_count:
            problem = f"column {name} is NULL in {nulls} of {count(table.num_rows, 'record')}"
            raise file.refusal(problem, "no NULL", table[name].is_null())
    for name in _HIGHEST.keys() & set(names):
        wrong = pc.or_(pc.less(table[name], 0), pc.greater(table[name], _HIGHEST[name]))
        if pc.any(wrong).as_py():
            allowed = "0 or more" if _HIGHEST[name] == _LONG else f"0 to {_HIGHEST[name]}"
            raise file.refusal(f"column {name} holds {table[name].filter(wrong)[0]}", allowed, wrong)
    unit = table["timestamp"].type.unit
    times, scale = table["timestamp"].cast(pa.int64()), {"ms": 1, "us": 1000}[unit]
    wrong = pc.or_(pc.less(times, CALENDAR.start * scale), pc.greater_equal(times, CALENDAR.stop * scale))
    if pc.any(wrong).as_py():
        # For other times, PyIceberg would fail in the middle of a write.
        found = times.filter(wrong)[0]
        raise file.refusal(f"column timestamp holds {found} {unit} since the epoch", "years 1 to 9999", wrong)
    if "is_transactional" in names:
        orphans = table["is_transactional"].fill_null(pa.scalar(value=False))
        if "producer_id" in names:
            orphans = pc.and_(orphans, table["producer_id"].is_null())
        if pc.any(orphans).as_py():
            problem = f"transactional records without a producer_id: {pc.sum(orphans)}"
            raise file.refusal(problem, "a producer_id in each", orphans)
    every = [*arrow_schema(transactions=True), *file.further]
    return table.cast(pa.schema([field for field in every if field.name in names]))


def _check_names(where: str, names: Sequence[str], further: Sequence[str]) -> None:
    """Refuse columns with these ``names`` unless they are those of Kafka's records or ``further`` ones, each once."""
    if repeated := [name for name, number in Counter(names).items() if number > 1]:
        raise RefusedError(f"{where} has several columns {repeated[0]!r}; allowed: each name once")
    missing = [name for name in REQUIRED if name not in names]
    unknown = sorted(set(names) - {*_KNOWN, *further})
    if missing or unknown:
        wrong = {"missing": missing, "unknown": unknown}
        told = ", ".join(f"{what}: {_some(columns)}" for what, columns in wrong.items() if columns)
        raise RefusedError(
            f"{where} has columns {_some(names)}; {told}; allowed: "
            f"{', '.join([*KAFKA_COLUMNS, *further])}, and for transactions {', '.join(TRANSACTION_COLUMNS)}"
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more or "none"


def _wide(names: Collection[str], further: pa.Schema) -> pa.Schema:
    """The schema of a file that has the columns ``names``, with Kafka's integers of 64 bits."""
    every = arrow_schema(transactions=True)
    fields = [field for field in every if field.name in KAFKA_COLUMNS or field.name in names]
    wide = [one.with_type(pa.int64()) if pa.types.is_integer(one.type) else one for one in fields]
    return pa.schema([*wide, *(field for field in further if field.name in names)])


def _of_values(file: _File, records: Iterator[tuple[int, Mapping[str, Any]]]) -> pa.Table:
    """The columns of ``records``, which come with their lines."""
    schema, parts = _wide([*TRANSACTION_COLUMNS, *file.further.names], file.further), []
    names, every = set[str](), set[str]()
    while some := list(islice(records, _AT_ONCE)):
        for line, record in some:
            if record.keys() != names:
                names = set(record)
                every |= names
                _check_names(f"file {file.path}: line {line}", list(record), file.further.names)
        file.lines.extend(line for line, _ in some)
        columns = [_values(file, one, [record.get(one.name) for _, record in some]) for one in schema]
        parts.append(pa.record_batch(columns, schema))
    return pa.Table.from_batches(parts, schema).select(_wide(every, file.further).names)


def _values(file: _File, column: pa.Field, values: Sequence[Any]) -> pa.Array:
    """The ``column`` with these ``values`` of the records that were read last."""
    kind, found = _kind_of(column), list[Any]()
    try:
        for value in values:
            found.append(None if value is None else kind.read(value))  # the number is of use below
    except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
        wrong = values[len(found)]
        problem = f"column {column.name} holds {_NOUNS[type(wrong)]}{f': {error}' if str(error) else ''}"
        raise file.refusal(problem, kind.allowed, len(file.lines) - len(values) + len(found)) from error
    return pa.array(found, column.type)


class Number(str):
    """A number as it is written in JSON, for example 1E5 or 12.50."""

    __slots__ = ()


_NOUNS: Final = {
    str: "text",
    Number: "a number",
    bool: "a boolean",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
"""What a value of JSON lines is called in messages."""


def _whole(value: Any) -> int:
    if not isinstance(value, Number) or not _INTEGER.fullmatch(value) or abs(int(value)) > _LONG:
        raise TypeError
    return int(value)


def _time(value: Any) -> datetime:
    if isinstance(value, Number):
        if _whole(value) not in CALENDAR:
            raise ValueError("it is outside the years 1 to 9999")
        return from_ms(int(value))
    if not _TIME.fullmatch(_text(value)):
        raise TypeError
    moment = datetime.fromisoformat(value)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    value.encode()  # half of a surrogate pair is no text
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _headers(value: Any) -> list[dict[str, str | None]]:
    if not isinstance(value, list) or any(not isinstance(one, dict) or one.keys() != _HEADER for one in value):
        raise TypeError
    return [{name: part if part is None else _text(part) for name, part in one.items()} for one in value]


def encode(value: Any, *, is_key: bool) -> bytes:
    """The bytes of ``value``, which is text or what JSON can express.

    Raises ValueError for a number that JSON lacks (NaN, infinity) and for text that is not Unicode, TypeError for a
    value of another type, such as a time, and RecursionError for a value that is nested too deeply.
    """
    return (value if type(value) is str else _json(value, is_key)).encode()


def _json(value: Any, is_key: bool) -> str:
    match value:
        case Number():
            return value
        case Decimal():
            return str(value)
        case list():
            return f"[{','.join(_json(one, is_key) for one in value)}]"
        case dict():
            fields = sorted(value.items()) if is_key else value.items()
            # In JSON, a name is text, even if a map has numbers as keys.
            named = ((name if isinstance(name, str) else _json(name, is_key), one) for name, one in fields)
            return "{" + ",".join(f"{_ENCODER.encode(name)}:{_json(one, is_key)}" for name, one in named) + "}"
        case _:
            return _ENCODER.encode(value)


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True)
class _Kind:
    """What a column of a file may hold."""

    allowed: str
    types: Sequence[Callable[[pa.DataType], bool]]
    """Types of the column in a Parquet file."""
    read: Callable[[Any], Any]
    """Reads a value of JSON lines. Raises TypeError for a wrong one, or an error with the reason."""


def _are_headers(kind: pa.DataType) -> bool:
    """True for lists of structs with exactly the fields key and value, in any order."""
    if not _is_any(kind, pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list):
        return False
    parts = kind.value_type if pa.types.is_struct(kind.value_type) else ()
    as_bytes = all(_is_any(part.type, *_TEXTS, *_BYTES, pa.types.is_null) for part in parts)
    return pa.types.is_null(kind.value_type) or (sorted(part.name for part in parts) == sorted(_HEADER) and as_bytes)


def _is_any(kind: pa.DataType, *kinds: Callable[[pa.DataType], bool]) -> bool:
    return any(is_kind(kind) for is_kind in kinds)


_HEADER: Final = {"key", "value"}
_TEXTS: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES: Final = (
    *(pa.types.is_binary, pa.types.is_large_binary),
    *(pa.types.is_binary_view, pa.types.is_fixed_size_binary),
)
_NUMBERS: Final = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal)
"""Types whose text in Arrow is that in JSON."""
_JSON: Final = (*_NUMBERS, pa.types.is_floating, pa.types.is_nested)
_EXPRESSIBLE: Final = "text, bytes, and what JSON can express: numbers, booleans, objects and lists"
_INTEGERS: Final = _Kind("integers", (pa.types.is_integer,), _whole)
_FLAGS: Final = _Kind("booleans", (pa.types.is_boolean,), _flag)
_KINDS: Final = {
    "key": _Kind(_EXPRESSIBLE, (*_TEXTS, *_BYTES, *_JSON), partial(encode, is_key=True)),
    "value": _Kind(_EXPRESSIBLE, (*_TEXTS, *_BYTES, *_JSON), partial(encode, is_key=False)),
    "topic": _Kind("text", (*_TEXTS, *_BYTES), _text),
    "partition": _INTEGERS,
    "offset": _INTEGERS,
    "timestamp": _Kind(
        "milliseconds, or times (in JSON lines in ISO 8601, down to microseconds)",
        (pa.types.is_timestamp, pa.types.is_date, pa.types.is_integer),
        _time,
    ),
    "timestampType": _INTEGERS,
    "headers": _Kind("a list of objects with key and value, which are text or bytes", (_are_headers,), _headers),
    "is_control": _FLAGS,
    "is_transactional": _FLAGS,
    "producer_id": _INTEGERS,
    "producer_epoch": _INTEGERS,
}


def _kind_of(column: pa.Field) -> _Kind:
    """What ``column`` may hold: one of Kafka's, or a further one of the table."""
    further = _Kind(f"values of type {column.type}", (lambda _: True,), partial(_further, column.type))
    return _KINDS.get(column.name, further)


def can_be_text(kind: pa.DataType) -> bool:
    """True if JSON lines may have a further column of this type; other types need a Parquet file."""
    simple = (pa.types.is_floating, pa.types.is_date, pa.types.is_timestamp)
    return _is_any(kind, *_TEXTS, *_NUMBERS, *simple)


def _further(kind: pa.DataType, value: Any) -> Any:
    """The ``value`` of a further column of the table, from JSON lines."""
    if pa.types.is_boolean(kind):
        return _flag(value)
    if _is_any(kind, *_TEXTS):
        return _text(value)
    if not can_be_text(kind) or not isinstance(value, str):
        raise TypeError
    try:
        return pa.scalar(_whole(value) if pa.types.is_integer(kind) else str(value)).cast(kind).as_py()
    except pa.ArrowException as error:  # its message quotes the value
        raise TypeError from error


def _json_lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the records of a file of JSON lines, each with its line."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            # A byte order mark may begin the file. Anywhere else, it is no JSON.
            content = line.removeprefix(BOM_UTF8) if number == 1 else line
            if not content.strip():
                continue
            try:
                record = _DECODER.decode(content.decode())
                problem = None if isinstance(record, dict) else _NOUNS[type(record)]
            except json.JSONDecodeError as error:
                problem = f"not JSON ({error.msg} at column {error.colno})"
            except (ValueError, RecursionError) as error:
                problem = f"not JSON ({error})"
            if problem:
                raise RefusedError(f"file {path}: line {number} is {problem}; allowed: a JSON object with a record")
            yield number, record


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("an object has two fields of the same name")
    return fields


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_no_number, parse_float=Number, parse_int=Number
)


def _of_columns(file: _File) -> pa.Table:
    """The columns of a Parquet file."""
    path = file.path
    table = parquet.read_file(path)
    _check_names(f"file {path}", table.column_names, file.further.names)
    try:
        table.validate(full=True)
    except pa.ArrowException as error:
        raise RefusedError(
            f"file {path} holds a value that does not match its type: {str(error).splitlines()[0]}; allowed: text in "
            "UTF-8"
        ) from error
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        # Readers use the last footer, whose positions then point into the first file.
        if content.find(_MAGIC * 2) >= 0:
            raise RefusedError(f"file {path} is several files, one after the other; allowed: one whole file")
    return pa.table({field.name: _column(path, table, field) for field in _wide(table.column_names, file.further)})


def _column(path: Path, found: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    """The column of ``found`` for ``field``, with its type, or as times in milliseconds."""
    if field.name not in found.column_names:
        return pa.chunked_array([pa.nulls(found.num_rows, field.type)])
    column, kind = found[field.name], _kind_of(field)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if isinstance(column.type, pa.BaseExtensionType) and _is_any(column.type.storage_type, *_TEXTS, *_BYTES):
        column = column.cast(column.type.storage_type)
    # A nested type has the names of its fields, which may be the writer's data.
    problem = f"file {path}: column {field.name} is {str(column.type).partition('<')[0]}"
    if not _is_any(column.type, *kind.types, pa.types.is_null):
        raise RefusedError(f"{problem}; allowed: {kind.allowed}")
    try:
        return _converted(column, field)
    except (pa.ArrowException, ArithmeticError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise RefusedError(f"{problem}: some values can't be converted; allowed: {kind.allowed}") from error


def _converted(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """The ``column`` with the type of ``field``; raises an error unless all values stay the same."""
    if column.type == field.type:
        return column
    if field.name in _HEADER and _is_any(column.type, pa.types.is_floating, pa.types.is_nested):
        chunks = (chunk.to_pylist(maps_as_pydicts="strict") for chunk in column.chunks)
        read = _KINDS[field.name].read
        return pa.chunked_array(
            [pa.array([one if one is None else read(one) for one in chunk], field.type) for chunk in chunks], field.type
        )
    if field.name in _HEADER and _is_any(column.type, *_NUMBERS):
        column = column.cast(pa.string())
    if pa.types.is_timestamp(field.type) and pa.types.is_integer(column.type):
        # Milliseconds are Kafka's unit; any other unit would be a guess.
        return column.cast(pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    if pa.types.is_timestamp(column.type) and column.type.tz is None:
        column = pc.assume_timezone(column, "UTC")
    found = column.cast(field.type)
    # The cast of headers only makes bytes of text, and a column without values can't be cast back.
    is_sure = field.name == "headers" or pa.types.is_null(column.type)
    if not is_sure and not found.cast(column.type).equals(column):
        raise ValueError
    return found
