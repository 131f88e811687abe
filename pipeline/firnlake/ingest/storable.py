"""Reads a file of any format into columns that Iceberg can store, with the names and values of the file."""

from collections import Counter
from collections.abc import Collection
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from firnlake.errors import RefusedError
from firnlake.ingest.formats import ARROW, PARQUET, read_columns

_YEARS: Final = "years 1 to 9999"
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def read_storable(path: Path, text: Collection[str] = ()) -> pa.Table:
    """Read ``path`` into columns of types that Iceberg has, if they have the same values there.

    In formats without types, the columns ``text`` stay text. Integers become signed ones of 32 or 64 bits, and times
    become microseconds, in UTC if they have a zone. Raises RefusedError as ``read_columns`` does, for values that would
    change, for columns without a name or with names that differ only in case (Spark does not tell them apart), and for
    a file without records in a format without types.
    """
    found = read_columns(path, text=text)
    names = found.column_names
    if not found.num_rows and path.suffix not in (*PARQUET, *ARROW):
        raise RefusedError(f"file {path} has no records, so the types of its columns are unknown; allowed: a record")
    if not names or not all(names):
        raise RefusedError(f"file {path} has a column without a name; allowed: a name for each column")
    folded = Counter(name.casefold() for name in names)
    if alike := [name for name in names if folded[name.casefold()] > 1]:
        raise RefusedError(
            f"file {path} has columns {' and '.join(alike)}; allowed: names that differ not only in case"
        )
    columns = {name: _stored(found[name], name, path) for name in names}
    return pa.table(columns)


def _stored(column: pa.ChunkedArray, name: str, path: Path) -> pa.ChunkedArray:
    kind = _type(column.type)
    try:
        stored = column if column.type.equals(kind) else column.cast(kind)
    except pa.ArrowException as error:
        raise RefusedError(
            f"file {path}: column {name} is {column.type} and can't be stored as {kind} without changing values; "
            f"allowed: values that fit into {kind}"
        ) from error
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        _check_years(stored, name, path)
    return stored


def _type(kind: pa.DataType) -> pa.DataType:
    """The type that has the values of ``kind`` in an Iceberg table; ``kind`` itself if there is no other."""
    match kind:
        case pa.DictionaryType():
            return _type(kind.value_type)
        case pa.TimestampType():
            return pa.timestamp("us", "UTC" if kind.tz else None)
        case pa.Time32Type() | pa.Time64Type():
            return pa.time64("us")
        case pa.BaseExtensionType() if not isinstance(kind, pa.UuidType):
            return _type(kind.storage_type)
    if pa.types.is_null(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_integer(kind):
        is_narrow = kind.bit_width < 32 or kind.equals(pa.int32())
        return pa.int32() if is_narrow else pa.int64()
    if pa.types.is_date(kind):
        return pa.date32()
    return kind


def _check_years(column: pa.ChunkedArray, name: str, path: Path) -> None:
    """Refuse times that Python's calendar lacks, because PyIceberg would fail in the middle of a write."""
    ends = (date.min, date.max) if pa.types.is_date(column.type) else (_FIRST, _LAST)
    first, last = (pa.scalar(end, column.type) for end in ends)
    is_early = pc.less(column, first)
    is_late = pc.greater(column, last)
    if pc.any(pc.or_(is_early, is_late)).as_py():
        raise RefusedError(f"file {path}: column {name} holds a time outside of {_YEARS}; allowed: {_YEARS}")
