"""Adopts a table: stores the roles of its columns and adds the columns that Firn needs, and releases it again.

No data file is changed. One commit adds two columns by schema evolution, and identity partition fields by spec
evolution. Existing files become landed segments of their topic partition (see ``segments``). A table with equality
deletes keeps its partitioning, because equality deletes apply within one partition (C27), and so does any other table
if the user wants that. A file's level is then in the bounds of the level column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from types import MappingProxyType
from typing import Final

from pyiceberg.exceptions import ValidationError
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.types import IntegerType, NestedField, PrimitiveType, TimestamptzType

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import SIDE_BRANCHES, at_snapshot, newest_of
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.commit import create_side_branches
from firnlake.iceberg.manifests import Manifests
from firnlake.job.garbage import discard
from firnlake.job.stage import stages_of
from firnlake.table import records
from firnlake.table.columns import Added, ColumnRoles, Condition, check_type, position
from firnlake.table.manifest_reader import read, read_entries
from firnlake.table.policy import PREFIX, Policies
from firnlake.table.records import COLUMNS, check_name
from firnlake.table.segment import Segment, Segments

_FIRN_COLUMNS: Final[Mapping[str, PrimitiveType]] = MappingProxyType(
    {"level": IntegerType(), "delete_horizon": TimestamptzType()}
)
_UPSERTS = "write.upsert.enabled"
"""Table property that makes Flink write equality deletes (Iceberg docs, "Flink Writes")."""
_DEFAULT_METRICS = "truncate(16)"
"""Iceberg's default metrics mode, which applies only to a table's first hundred columns (docs, "Configuration")."""


@dataclass(frozen=True)
class Adoption:
    """An adopted table, or what a dry run would make of it.

    ``repeated`` is true when the table was already adopted in the same way.
    """

    table: str
    columns: ColumnRoles
    properties: Mapping[str, str]
    segments: Segments
    repeated: bool

    def with_repeated_offsets(self) -> list[Segment]:
        """Segments with more visible records than there are integers from their lowest to their highest offset.

        Records that row-level deletes may hide do not count, nor do repeated listings of a file. Other repeated offsets
        are in no metadata.
        """
        return [
            one
            for one in self.segments.each()
            if one.base_offset >= 0
            and one.hidden is not None
            and one.records // one.copies - one.hidden > one.last_offset - one.base_offset + 1
        ]


def adopt(
    lake: Lake, identifier: str, choice: ColumnRoles, properties: Mapping[str, str] = MappingProxyType({})
) -> Adoption:
    """Adopt table ``identifier`` as ``choice`` says, in one commit that changes only the table's metadata.

    The commit also sets ``properties``. Raises RefusedError for an unknown column, a type not allowed for its role, a
    condition that does not parse, a table already adopted in another way, a format version other than 2, a file format
    without the metrics that Firn reads, or an invalid policy.
    """
    check_name(identifier)
    repeated = lake.transact(
        identifier, lambda table, transaction: _prepare(transaction, table, identifier, choice, properties)
    )
    return _adoption(create_side_branches(lake, identifier), identifier, repeated)


def preview(lake: Lake, identifier: str, choice: ColumnRoles, properties: Mapping[str, str]) -> Adoption:
    """What ``adopt`` with the same arguments would make of the table; raise RefusedError as ``adopt`` does.

    Nothing is changed. Only a commit can tell whether the catalog accepts the side branches, so that is left open.
    """
    check_name(identifier)
    table = lake.table(identifier)
    with lake.answering():
        transaction = table.transaction()
        repeated = _prepare(transaction, table, identifier, choice, properties)
        adopted = Table(table.name(), transaction.table_metadata, table.metadata_location, table.io, lake.catalog)
        return _adoption(adopted, identifier, repeated)


def _adoption(table: Table, identifier: str, repeated: bool) -> Adoption:
    return Adoption(identifier, ColumnRoles.of(table, identifier), table.properties, read(table, identifier), repeated)


def _prepare(
    transaction: Transaction, table: Table, identifier: str, choice: ColumnRoles, properties: Mapping[str, str]
) -> bool:
    """Put the adoption of ``table`` into its ``transaction``, and commit nothing; raise RefusedError as ``adopt`` does.

    Returns True when the table was already adopted in the same way.
    """
    _check_table(table, identifier)
    Policies.parse(identifier, {**table.properties, **properties}).check()
    before = table.properties.get(COLUMNS)
    chosen = _mapping(table.schema(), identifier, choice)
    if before is None:
        _check_nothing_beside(table, identifier)
        _adopt(transaction, table, identifier, chosen)
    else:
        _check_same(ColumnRoles.parse(before, identifier), chosen, table.schema(), identifier)
    if properties:
        transaction.set_properties(dict(properties))
    return before is not None


def _adopt(transaction: Transaction, table: Table, identifier: str, chosen: ColumnRoles) -> None:
    """Add Firn's columns, the partition fields and the properties that ``chosen`` needs, and store ``chosen``."""
    level, horizon = _add_columns(transaction)
    apart = chosen.levels_apart and not _has_equality_deletes(table)
    ids = {**chosen.ids, level.name: level.field_id, horizon.name: horizon.field_id}
    firns = {"level": level.name, "delete_horizon": horizon.name, "ids": ids}
    mapping = chosen.model_copy(update={**firns, "levels_apart": apart})
    columns = mapping.in_schema(transaction.table_metadata.schema(), identifier)
    if not columns.levels_apart:
        _check_partitions(table, columns, identifier)
    fields = _add_partition_fields(transaction, columns, identifier) if columns.levels_apart else ()
    pinned = _metrics(transaction.table_metadata.properties, columns)
    added = Added(columns=(level.field_id, horizon.field_id), partition_fields=fields, properties=tuple(pinned))
    document = mapping.model_copy(update={"added": added}).model_dump_json()
    transaction.set_properties(pinned | {COLUMNS: document})


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
    if COLUMNS not in table.properties and _has_kafka_columns(table, identifier):
        raise RefusedError(f"table {identifier} has Kafka's columns; allowed: use it as it is, without adopting it")
    if records.has_transactions(table):
        raise RefusedError(
            f"table {identifier} has the columns {', '.join(records.DECIDING_COLUMNS)}; allowed: a table without them "
            "(aborted records of an adopted table would count as committed), or Kafka's own names for all columns"
        )


def _has_kafka_columns(table: Table, identifier: str) -> bool:
    try:
        records.check(table, identifier)
    except RefusedError:
        return False
    return True


def _check_nothing_beside(table: Table, identifier: str) -> None:
    """Refuse a new adoption of a table whose side branches hold records of an earlier adoption."""
    for branch in SIDE_BRANCHES:
        newest = newest_of(table, branch)
        if newest is not None and any(read_entries(at_snapshot(table, newest.snapshot_id))):
            raise RefusedError(
                f"table {identifier} can't be adopted again: its branch {branch} holds records of the earlier "
                "adoption; allowed: drop the branch first"
            )


def _mapping(schema: Schema, identifier: str, choice: ColumnRoles) -> ColumnRoles:
    """``choice`` with the field ids of its columns; Firn's own two columns do not exist yet."""
    fields = {field.name: field for field in schema.fields}

    def mapped(role: str, name: str) -> str:
        if name not in fields:
            raise RefusedError(
                f"table {identifier}: column {name}, mapped as {role}, does not exist, or is nested; found: "
                f"{', '.join(fields)}; allowed: a column of the table itself"
            )
        check_type(fields[name], role, identifier)
        return name

    key = tuple(mapped("key", name) for name in choice.key)
    offset = mapped("offset", choice.offset)
    if offset in key or len(set(key)) < len(key):
        raise RefusedError(
            f"table {identifier}: key {', '.join(choice.key)}, offset {choice.offset}; allowed: each column only once"
        )
    optional = ((role, getattr(choice, role)) for role in ("timestamp", "topic", "partition"))
    used = [*key, offset, *(mapped(role, name) for role, name in optional if name)]
    if choice.tombstone:
        used += Condition.read(choice.tombstone, fields, f"table {identifier}: tombstone condition").reads
    ids = {name: fields[name].field_id for name in used}
    return choice.model_copy(update={"topic_name": identifier.rpartition(".")[2], "ids": ids})


def _check_same(before: ColumnRoles, chosen: ColumnRoles, schema: Schema, identifier: str) -> None:
    """Refuse another mapping than ``before``, which the table was adopted with, by the columns' current names: segments
    that are clean for one key are not clean for another, so another mapping requires a new adoption."""
    if before.levels_apart and not chosen.levels_apart:
        raise RefusedError(
            f"table {identifier} was adopted with partition fields, which can't be kept out now; allowed: no "
            "--keep-partitioning, or `firn release` first"
        )
    now = before.in_schema(schema, identifier)
    same = {name: getattr(now, name) for name in (*_FIRN_COLUMNS, "topic_name", "levels_apart")}
    ids = {**chosen.ids, **{same[role]: schema.find_field(same[role]).field_id for role in _FIRN_COLUMNS}}
    again = chosen.model_copy(update={**same, "ids": ids}).in_schema(schema, identifier)
    if now != again.model_copy(update={name: getattr(now, name) for name in ("tombstone", "ids", "added")}):
        raise RefusedError(
            f"table {identifier} was adopted with {_said(before)}; found: {_said(chosen)}; allowed: the same "
            "mapping, or `firn release` first"
        )


def _said(mapping: ColumnRoles) -> str:
    roles = {role: [name for own, name in mapping.by_role() if own == role] for role, _ in mapping.by_role()}
    said = {role: ", ".join(names) for role, names in roles.items() if role not in (*_FIRN_COLUMNS, "tombstone")}
    if mapping.tombstone:
        said["tombstone"] = mapping.tombstone
    return "; ".join(f"{role} {names}" for role, names in said.items())


def _add_columns(transaction: Transaction) -> tuple[NestedField, NestedField]:
    """Add ``level`` and ``delete_horizon``, under other names if the table uses, or used, these names."""
    metadata = transaction.table_metadata
    taken = {field.name.lower() for field in metadata.schema().fields}
    # A former partition field still reserves its name, so a new column can't have that name.
    taken |= {field.name.lower() for spec in metadata.specs().values() for field in spec.fields}
    names = {role: _free_name(role, taken) for role in _FIRN_COLUMNS}
    with transaction.update_schema() as update:
        for role, kind in _FIRN_COLUMNS.items():
            update.add_column(names[role], kind)
    schema = transaction.table_metadata.schema()
    level, horizon = (schema.find_field(names[role]) for role in _FIRN_COLUMNS)
    return level, horizon


def _free_name(role: str, taken: set[str]) -> str:
    """A column name for ``role`` that is not in ``taken``: the role itself, or the role with the prefix ``firn_``."""
    candidates = chain((role, f"firn_{role}"), (f"firn_{role}_{number}" for number in count(2)))
    return next(name for name in candidates if name not in taken)


def _add_partition_fields(transaction: Transaction, columns: ColumnRoles, identifier: str) -> tuple[int, ...]:
    """Add missing identity partition fields for topic, partition and level; return the new fields' ids."""
    metadata = transaction.table_metadata
    before = {field.field_id for field in metadata.spec().fields}
    missing = [name for name in columns.partition_fields if position(metadata.schema(), metadata.spec(), name) is None]
    try:
        with transaction.update_spec() as update:
            for name in missing:
                update.add_identity(name)
    except ValueError as error:
        raise RefusedError(
            f"table {identifier} can't be partitioned by {', '.join(missing)}: {error}; allowed: a table without other "
            "partition fields of these names"
        ) from error
    return tuple(field.field_id for field in transaction.table_metadata.spec().fields if field.field_id not in before)


def _metrics(properties: Mapping[str, str], columns: ColumnRoles) -> dict[str, str]:
    """Properties that set Iceberg's default metrics for the mapped columns, whatever their place in the schema."""
    if "write.metadata.metrics.default" in properties:
        # If the table is not partitioned by level, Firn needs the bounds of the level column.
        return {} if columns.levels_apart else {f"write.metadata.metrics.column.{columns.level}": "full"}
    wanted = {f"write.metadata.metrics.column.{name}": _DEFAULT_METRICS for _, name in columns.by_role()}
    return {name: mode for name, mode in wanted.items() if name not in properties}


def release(lake: Lake, identifier: str) -> Sequence[str]:
    """Release the adopted table ``identifier``, in one commit that changes only the table's metadata; name the columns,
    partition fields and properties that are removed.

    The commit removes the mapping, the policies (``firn.`` properties), and what the adoption added; then Firn no
    longer knows which segments are clean. The table's stages are discarded first, because nobody could publish them
    any more. Raises RefusedError for a table that is not adopted.
    """
    if COLUMNS in lake.table(identifier).properties:
        for stage in stages_of(lake, identifier):
            discard(lake, stage)

    def commit(table: Table, transaction: Transaction) -> Sequence[str]:
        if COLUMNS not in table.properties:
            raise RefusedError(f"table {identifier} is not adopted; allowed: a table that `firn adopt` maps")
        added = ColumnRoles.parse(table.properties[COLUMNS], identifier).added
        return _release(transaction, table, added, identifier)

    return lake.transact(identifier, commit)


def _release(transaction: Transaction, table: Table, added: Added, identifier: str) -> Sequence[str]:
    policies = [key for key in table.properties if key.startswith(PREFIX) and key != COLUMNS]
    pinned = [key for key in added.properties if key in table.properties]
    transaction.remove_properties(COLUMNS, *policies, *pinned)
    # Partition fields come first, because a column can't be dropped while the table is partitioned by it.
    metadata = transaction.table_metadata
    fields = [field.name for field in metadata.spec().fields if field.field_id in added.partition_fields]
    with transaction.update_spec() as update:
        for name in fields:
            update.remove_field(name)
    columns = [field.name for field in metadata.schema().fields if field.field_id in added.columns]
    try:
        with transaction.update_schema() as update_schema:
            for name in columns:
                update_schema.delete_column(name)
    except (ValueError, ValidationError) as error:
        raise RefusedError(
            f"table {identifier}: columns {', '.join(columns)} can't be dropped: {error}; allowed: columns that "
            "nothing else in the table uses"
        ) from error
    gone = {"column": columns, "partition field": fields, "property": [*policies, *pinned]}
    return [f"{kind} {name}" for kind, names in gone.items() for name in names]
