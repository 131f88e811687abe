"""Adopts a table: stores the roles of its columns, and adds the columns that Firn needs. No data file is changed.

One commit adds two columns by schema evolution, and identity partition fields by spec evolution. Existing files become
landed segments of their topic partition (see ``segments``). A table with equality deletes keeps its partitioning,
because equality deletes apply within one partition (C27), and so does any other table if the user wants that. A file's
level is then in the bounds of the level column.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.types import DateType, NestedField, TimestampType, TimestamptzType

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import SIDE_BRANCHES, at_snapshot, newest_of
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.manifests import Manifests
from firnlake.iceberg.side_branches import create_side_branches
from firnlake.ingest.added import FIRN_COLUMNS, store_mapping, with_own_columns
from firnlake.table import records
from firnlake.table.columns import ColumnRoles, check_type, position, resolve
from firnlake.table.condition import Condition
from firnlake.table.policies import Policies
from firnlake.table.records import COLUMNS, RELEASED, Added, Column, StoredRoles, Tombstone, check_name
from firnlake.table.segment import Segments
from firnlake.table.segments import read, read_entries

_FORMATS = ("parquet", "orc")
_UPSERTS = "write.upsert.enabled"
"""Table property that makes Flink write equality deletes (Iceberg docs, "Flink Writes")."""


_TIMES = (DateType, TimestampType, TimestamptzType)


@dataclass(frozen=True)
class Choice:
    """The user's choice of column names, and the condition for tombstones (None if no record is a tombstone)."""

    key: tuple[str, ...]
    offset: str
    timestamp: str | None = None
    topic: str | None = None
    partition: str | None = None
    tombstone: str | None = None
    keep_partitioning: bool = False
    """True if the adoption must add no partition fields, not even for the level (``ColumnRoles.levels_apart``)."""


@dataclass(frozen=True)
class Adoption:
    """An adopted table. ``repeated`` is true when the table was already adopted in the same way."""

    table: str
    columns: ColumnRoles
    segments: Segments
    repeated: bool


def adopt(
    lake: Lake, identifier: str, choice: Choice, properties: Mapping[str, str] = MappingProxyType({})
) -> Adoption:
    """Adopt table ``identifier`` as ``choice`` says, in one commit that changes only the table's metadata.

    The commit also sets ``properties``. A released table that kept Firn's columns resumes in its former state. Raises
    RefusedError for an unknown column, a type not allowed for its role, a condition that does not parse, a table
    already adopted in another way, a format version other than 2, a file format without the metrics that Firn reads, or
    an invalid policy.
    """
    check_name(identifier)

    def commit() -> bool:
        table = lake.table(identifier)
        with lake.single_attempt(table).transaction() as transaction:
            return prepare(transaction, table, identifier, choice, properties)

    repeated = lake.until_committed(commit)
    table = create_side_branches(lake, identifier)
    return Adoption(identifier, ColumnRoles.of(table, identifier), read(table, identifier), repeated)


def prepare(
    transaction: Transaction, table: Table, identifier: str, choice: Choice, properties: Mapping[str, str]
) -> bool:
    """Put the adoption of ``table`` into its ``transaction``, and commit nothing; raise RefusedError as ``adopt`` does.

    Returns True when the table was already adopted in the same way.
    """
    _check_table(table, identifier)
    Policies.parse(identifier, {**table.properties, **properties}).check()
    before = table.properties.get(COLUMNS)
    chosen = _mapping(table.schema(), identifier, choice)
    if before is None:
        if _left_behind(table, identifier) is None:
            _check_nothing_beside(table, identifier)
        _adopt(transaction, table, identifier, chosen)
    else:
        _like(StoredRoles.parse(before, identifier), chosen, table.schema(), identifier)
    if properties:
        transaction.set_properties(dict(properties))
    return before is not None


def _adopt(transaction: Transaction, table: Table, identifier: str, chosen: StoredRoles) -> None:
    left = _left_behind(table, identifier)
    if left:
        mapping = _like(left, chosen, table.schema(), identifier)
    else:
        mapping = with_own_columns(
            transaction, chosen, levels_apart=chosen.levels_apart and not _has_equality_deletes(table)
        )
    if not mapping.levels_apart:
        _check_partitions(table, resolve(mapping, transaction.table_metadata.schema(), identifier), identifier)
    store_mapping(transaction, mapping, identifier)
    if RELEASED in table.properties:
        transaction.remove_properties(RELEASED)


def _has_equality_deletes(table: Table) -> bool:
    """True when a writer uses equality deletes, which apply within one partition; then the partitioning must stay."""
    snapshot = table.current_snapshot()
    listed = snapshot.manifests(table.io) if snapshot else []
    deletes = Manifests(table.io).live(one for one in listed if one.content == ManifestContent.DELETES)
    upserts = table.properties.get(_UPSERTS, "false").lower() == "true"
    return upserts or any(one.data_file.content == DataFileContent.EQUALITY_DELETES for one in deletes)


def _check_partitions(table: Table, columns: ColumnRoles, identifier: str) -> None:
    """Refuse a table that keeps its partitioning if that would have to change."""
    spec = table.spec()
    missing = [name for name in columns.partition_fields if position(table.schema(), spec, name) is None]
    if missing:
        reason = "has equality deletes, which apply within one partition"
        raise RefusedError(
            f"table {identifier} {reason if _has_equality_deletes(table) else 'is to keep its partitioning'}, and is "
            f"not partitioned by {', '.join(missing)}; allowed: "
            f"{', '.join(f'identity({name})' for name in columns.partition_fields)} "
            "among its partition fields, or no mapping of these columns"
        )


def _check_table(table: Table, identifier: str) -> None:
    records.check_format_version(table, identifier)
    written = table.properties.get("write.format.default", "parquet").lower()
    if written not in _FORMATS:
        raise RefusedError(
            f"table {identifier}: property write.format.default is {written}; allowed: {', '.join(_FORMATS)} (Iceberg "
            "keeps no metrics of files in other formats)"
        )
    if COLUMNS not in table.properties and _is_kafkas(table, identifier):
        raise RefusedError(f"table {identifier} has Kafka's columns; allowed: use it as it is, without adopting it")
    if records.has_transactions(table):
        raise RefusedError(
            f"table {identifier} has the columns {', '.join(records.DECIDING_COLUMNS)}; allowed: a table without them "
            "(aborted records of an adopted table would count as committed), or Kafka's own names for all columns"
        )


def _check_nothing_beside(table: Table, identifier: str) -> None:
    """Refuse a new adoption of a table whose side branches hold records of an earlier adoption."""
    for branch in SIDE_BRANCHES:
        newest = newest_of(table, branch)
        if newest is not None and any(read_entries(at_snapshot(table, newest.snapshot_id))):
            raise RefusedError(
                f"table {identifier} can't be adopted again: its branch {branch} holds records of the earlier "
                "adoption; allowed: drop the branch first"
            )


def _is_kafkas(table: Table, identifier: str) -> bool:
    try:
        records.check(table, identifier)
    except RefusedError:
        return False
    return True


def _mapping(schema: Schema, identifier: str, choice: Choice) -> StoredRoles:
    """The mapping of ``choice``, with field id 0 for Firn's own two columns, which do not exist yet."""
    fields = {field.name: field for field in schema.fields}

    def mapped(role: str, name: str) -> Column:
        if name not in fields:
            raise RefusedError(f"table {identifier}: column {name}, mapped as {role}, {_missing(schema, name)}")
        if role == "offset" and isinstance(fields[name].field_type, _TIMES):
            raise RefusedError(
                f"table {identifier}: column {name} can't be the offset: it is {fields[name].field_type}, and two "
                "changes may have the same time; allowed: an int or long column that differs in all records of a topic "
                "partition, such as Kafka's offset or the LSN of a change"
            )
        check_type(fields[name], role, identifier)
        return Column.of(fields[name])

    key = tuple(mapped("key", name) for name in choice.key)
    offset = mapped("offset", choice.offset)
    if offset in key or len(set(key)) < len(key):
        raise RefusedError(
            f"table {identifier}: key {', '.join(choice.key)}, offset {choice.offset}; allowed: each column only once"
        )
    missing = Column(id=0, name="")
    return StoredRoles(
        key=key,
        offset=offset,
        timestamp=mapped("timestamp", choice.timestamp) if choice.timestamp else None,
        topic=mapped("topic", choice.topic) if choice.topic else None,
        partition=mapped("partition", choice.partition) if choice.partition else None,
        topic_name=identifier.rpartition(".")[2],
        tombstone=_tombstone(choice.tombstone, fields, identifier) if choice.tombstone else None,
        level=missing,
        delete_horizon=missing,
        added=Added(),
        levels_apart=not choice.keep_partitioning,
    )


def _missing(schema: Schema, name: str) -> str:
    """Why ``name`` is no column that can be mapped, and what is allowed."""
    if name in schema.column_names:
        return (
            "is nested, and nested columns are not supported; allowed: a column of the table itself, which the writer "
            "fills (Kafka Connect: transform Flatten, or Debezium's ExtractNewRecordState)"
        )
    return f"does not exist; found: {', '.join(field.name for field in schema.fields)}"


def _tombstone(text: str, fields: dict[str, NestedField], identifier: str) -> Tombstone:
    read_as = Condition.read(text, fields, f"table {identifier}: tombstone condition")
    return Tombstone(condition=text, columns=tuple(Column.of(fields[name]) for name in read_as.columns))


def _left_behind(table: Table, identifier: str) -> StoredRoles | None:
    """The mapping of a released table that still has Firn's two columns; None for any other table."""
    text = table.properties.get(RELEASED)
    if text is None:
        return None
    left = StoredRoles.parse(text, identifier, RELEASED)
    there = {field.field_id for field in table.schema().fields}
    return left if {left.level.id, left.delete_horizon.id} <= there else None


def _like(before: StoredRoles, chosen: StoredRoles, schema: Schema, identifier: str) -> StoredRoles:
    """``chosen`` with Firn's two columns of ``before``.

    Raises RefusedError when the mappings differ under the columns' current names: segments that are clean for one key
    are not clean for another, so another mapping requires a new adoption.
    """
    if before.levels_apart and not chosen.levels_apart:
        raise RefusedError(
            f"table {identifier} was adopted with partition fields, which can't be kept out now; allowed: no "
            "--keep-partitioning, or `firn release --drop-columns` first"
        )
    kept = {name: getattr(before, name) for name in (*FIRN_COLUMNS, "topic_name", "levels_apart", "added")}
    mapping = chosen.model_copy(update=kept)
    if resolve(before, schema, identifier) != resolve(mapping, schema, identifier):
        raise RefusedError(
            f"table {identifier} was adopted with {_said(before)}; found: {_said(chosen)}; allowed: the same "
            "mapping, or `firn release --drop-columns` first"
        )
    return mapping


def _said(mapping: StoredRoles) -> str:
    roles = {role: [column.name for own, column in mapping.roles() if own == role] for role, _ in mapping.roles()}
    said = {role: ", ".join(names) for role, names in roles.items() if role not in FIRN_COLUMNS}
    if mapping.tombstone:
        said["tombstone"] = mapping.tombstone.condition
    return "; ".join(f"{role} {names}" for role, names in said.items())
