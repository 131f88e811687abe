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
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
from pyiceberg.table import Table

from firnlake.errors import NotFoundError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.added import free_name
from firnlake.ingest.adopt import Choice, adopt, adopt_new
from firnlake.ingest.append import append, by_topic_partition
from firnlake.ingest.formats import SUFFIXES, check_is_file
from firnlake.ingest.own_columns import check_columns, check_unique, fitting, free_offsets, sorted_micros
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
    check_columns(found, choice, path)
    if pa.types.is_integer(found[order].type):
        check_unique(found, choice, identifier, path)
    else:
        found, choice = _with_offsets(found, choice, path)
    without_key = pc.sum(reduce(pc.or_, (pc.is_null(found[name]) for name in choice.key))).as_py() or 0
    lake.create_namespace(identifier.rpartition(".")[0])
    lake.until_committed(lambda: _create(lake, identifier, found, choice, _PROPERTIES | dict(properties), path))
    columns = adopt(lake, identifier, choice, properties).columns
    table = lake.table(identifier)
    landed = append(lake, identifier, table, [fitting(found, table.schema(), path)])
    return Created(table.location(), columns, order, landed.records, landed.segments, without_key)


def _with_offsets(found: pa.Table, choice: Choice, path: Path) -> tuple[pa.Table, Choice]:
    """``found`` with a column of offsets made from the times in the order column, and ``choice`` with that column.

    Records of one time follow each other as in the file, so the same file has the same offsets again.
    """
    order = choice.offset
    name = free_name("offset", {one.lower() for one in found.column_names})
    parts = [found.schema.append(pa.field(name, pa.int64())).empty_table()]
    for part in by_topic_partition(found, choice.topic, choice.partition, order):
        offsets = free_offsets(sorted_micros(part[order], order, path))
        parts.append(part.append_column(name, pa.array(offsets)))
    return pa.concat_tables(parts), replace(choice, offset=name, order=order)


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
        fitting(found, transaction.table_metadata.schema(), path)
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
            "new name; `firn land` appends to a table"
        )
