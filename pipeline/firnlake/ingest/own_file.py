"""Creates a table from a file with columns of one's own, and adopts it (``firn create --from``).

One commit creates the table together with its column mapping, and a later one appends the file's records. After a crash
between the two, the table is empty, and the same call goes on there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from firnlake.errors import NotFoundError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.added import free_name
from firnlake.ingest.adopt import Choice, adopt, adopt_new
from firnlake.ingest.formats import SUFFIXES, check_is_file
from firnlake.ingest.land import append, by_topic_partition
from firnlake.ingest.storable import read_storable
from firnlake.table.columns import ColumnRoles
from firnlake.table.records import COLUMNS, FORMAT_VERSION, check_name
from firnlake.table.segments import read_entries
from firnlake_expectations.wording import count

_FIXED: Final = {"format-version": str(FORMAT_VERSION), "write.format.default": "parquet"}
_PROPERTIES: Final = _FIXED | {
    "write.parquet.compression-codec": "zstd",
    "commit.manifest-merge.enabled": "true",
    # No other tool maintains a table that Firn has made.
    "firn.maintenance": "manifests,snapshots",
}
_INTEGERS: Final = (pa.types.is_integer,)
_TIMES: Final = (pa.types.is_timestamp, pa.types.is_date)
_ALLOWED: Final = {
    "order": ((*_INTEGERS, *_TIMES), "int, long, date or timestamp"),
    "topic": ((pa.types.is_string, pa.types.is_large_string), "text"),
    "partition": (_INTEGERS, "int or long"),
}
"""Types of the columns by which records are ordered and divided, and their names in messages."""


@dataclass(frozen=True)
class Created:
    """A table created from a file, and counts of what was appended.

    ``order`` is the column that orders the records in the file. If it holds times, ``columns.offset`` is another
    column. ``without_key`` records have NULL in a column of the key, so the first cleaning quarantines them (C5).
    """

    location: str
    columns: ColumnRoles
    order: str
    records: int
    segments: int
    without_key: int


def create_from(
    lake: Lake, identifier: str, path: Path, choice: Choice, properties: Mapping[str, str] = MappingProxyType({})
) -> Created:
    """Create table ``identifier`` with the columns of ``path``, adopt it, and append the records of ``path``.

    ``choice`` names the file's columns. Its offset may also be a column of dates or times; the table then gets one more
    column with the offsets (see ``_with_offsets``). Raises RefusedError, before anything is created, for a file that
    ``read_storable`` refuses, for a column that is missing or has a type not allowed for its role, for records whose
    order is NULL, negative or not unique in their topic partition, and for a table that holds records already. Also
    raises the errors of ``adopt`` and ``append``.
    """
    check_name(identifier)
    check_is_file(path, SUFFIXES)
    for name, allowed in _FIXED.items():
        if properties.get(name, allowed) != allowed:
            raise RefusedError(f"table {identifier}: property {name} is {properties[name]}; allowed: {allowed}")
    order = choice.offset
    found = read_storable(path)
    _check_columns(found, choice, path)
    if pa.types.is_integer(found[order].type):
        _check_unique(found, choice, identifier, path)
    else:
        found, choice = _with_offsets(found, choice, path)
    without_key = pc.sum(reduce(pc.or_, (pc.is_null(found[name]) for name in choice.key))).as_py() or 0
    lake.create_namespace(identifier.rpartition(".")[0])
    lake.until_committed(lambda: _create(lake, identifier, found, choice, _PROPERTIES | dict(properties), path))
    columns = adopt(lake, identifier, choice, properties).columns
    table = lake.table(identifier)
    landed = append(lake, identifier, table, [_fitting(found, table.schema(), path)])
    return Created(table.location(), columns, order, landed.records, landed.segments, without_key)


def _check_columns(found: pa.Table, choice: Choice, path: Path) -> None:
    """Refuse columns that are missing, and those that order or divide the records if they hold NULL or other types."""
    roles = {"order": choice.offset, "topic": choice.topic, "partition": choice.partition}
    named = [*(("key", name) for name in choice.key), ("timestamp", choice.timestamp), *roles.items()]
    for role, name in named:
        if name is not None and name not in found.column_names:
            raise RefusedError(
                f"file {path} has no column {name}, which is given as the {role}; found: "
                f"{', '.join(found.column_names)}"
            )
    for role, name in roles.items():
        if name is None:
            continue
        are_allowed, allowed = _ALLOWED[role]
        if not any(is_allowed(found[name].type) for is_allowed in are_allowed):
            raise RefusedError(
                f"file {path}: column {name} can't be the {role}: it is {found[name].type}; allowed: {allowed}"
            )
        if nulls := found[name].null_count:
            raise RefusedError(
                f"file {path}: column {name}, the {role}, is NULL in {nulls} of {found.num_rows} records; allowed: "
                "no NULL"
            )


def _check_unique(found: pa.Table, choice: Choice, identifier: str, path: Path) -> None:
    """Refuse integers that can't be offsets: negative ones, and one that a topic partition holds twice."""
    order = choice.offset
    lowest = pc.min(found[order]).as_py()
    if lowest is not None and lowest < 0:
        raise RefusedError(f"file {path}: column {order}, the order, holds {lowest}; allowed: 0 or more")
    for part in by_topic_partition(found, choice.topic, choice.partition, order):
        same = pc.equal(part[order][1:], part[order][:-1])
        if pc.any(same).as_py():
            first = part.slice(pc.index(same, True).as_py(), 1)
            topic = first[choice.topic][0] if choice.topic else identifier.rpartition(".")[2]
            partition = first[choice.partition][0] if choice.partition else 0
            raise RefusedError(
                f"file {path}: column {order}, the order, holds {first[order][0]} more than once in topic partition "
                f"{topic}-{partition}; allowed: each number once, or a column of times"
            )


def _with_offsets(found: pa.Table, choice: Choice, path: Path) -> tuple[pa.Table, Choice]:
    """``found`` with a column of offsets made from the times in the order column, and ``choice`` with that column.

    An offset is the time in microseconds since the epoch. If the record before, in the order of the times and then of
    the file, has this offset or a higher one, it is the next higher offset: each record of a topic partition needs its
    own. So later records of other files get their place by their time, and the same file has the same offsets again.
    """
    order = choice.offset
    name = free_name("offset", {one.lower() for one in found.column_names})
    parts = [found.schema.append(pa.field(name, pa.int64())).empty_table()]
    for part in by_topic_partition(found, choice.topic, choice.partition, order):
        micros = part[order].cast(pa.timestamp("us", getattr(part[order].type, "tz", None))).cast(pa.int64())
        if micros[0].as_py() < 0:
            raise RefusedError(
                f"file {path}: column {order}, the order, holds {part[order][0]}; allowed: times from 1970 on"
            )
        place = pc.cumulative_sum(pa.repeat(1, part.num_rows))
        offsets = pc.add(pc.cumulative_max(pc.subtract(micros, place)), place)
        parts.append(part.append_column(name, offsets))
    return pa.concat_tables(parts), replace(choice, offset=name)


def _create(
    lake: Lake, identifier: str, found: pa.Table, choice: Choice, properties: dict[str, str], path: Path
) -> None:
    """Create the adopted table without records, unless an earlier call has done so. Raises CommitFailedException when
    another process creates a table of this name at the same time."""
    try:
        table = lake.table(identifier)
    except NotFoundError:
        pass
    else:
        _check_unfinished(lake, table, identifier, found.column_names)
        return
    try:
        transaction = lake.catalog.create_table_transaction(identifier, found.schema, properties=properties)
        adopt_new(transaction, identifier, choice)
        _fitting(found, transaction.table_metadata.schema(), path)
        transaction.commit_transaction()
    except UnsupportedPyArrowTypeException as error:
        raise RefusedError(
            f"file {path}: column {error.field.name} is {error.field.type}; allowed: types that Iceberg has"
        ) from error
    except TableAlreadyExistsError as error:
        raise CommitFailedException(str(error)) from error


def _check_unfinished(lake: Lake, table: Table, identifier: str, names: list[str]) -> None:
    """Refuse a table unless it is as ``_create`` makes it: adopted, with the columns ``names``, and empty."""
    records = sum(entry.data_file.record_count for entry, _ in read_entries(table))
    is_same = False
    if COLUMNS in table.properties:
        columns = ColumnRoles.named(table, identifier)
        own = (columns.level, columns.delete_horizon)
        is_same = [field.name for field in table.schema().fields if field.name not in own] == names
    if records or not is_same:
        raise RefusedError(
            f"table {identifier} already exists in catalog {lake.name}, with {count(records, 'record')}; allowed: a "
            "new name"
        )


def _fitting(found: pa.Table, schema: Schema, path: Path) -> pa.Table:
    """``found`` with the columns and types of ``schema``; Firn's own columns are NULL."""
    columns = {}
    for column in schema_to_pyarrow(schema):
        if column.name not in found.column_names:
            columns[column.name] = pa.nulls(found.num_rows, column.type)
            continue
        try:
            columns[column.name] = found[column.name].cast(column.type)
        except pa.ArrowException as error:
            raise RefusedError(
                f"file {path}: column {column.name} is {found[column.name].type}, and the table's column "
                f"{column.type}, which does not hold all its values; allowed: values that fit"
            ) from error
    return pa.table(columns)
