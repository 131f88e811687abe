"""What an adoption adds to a table: two columns by schema evolution, identity partition fields, and properties."""

from collections.abc import Mapping
from itertools import chain, count

from pyiceberg.table import Transaction
from pyiceberg.types import IntegerType, PrimitiveType, TimestamptzType

from firnlake.errors import RefusedError
from firnlake.table.columns import ColumnRoles, position, resolve
from firnlake.table.records import COLUMNS, Added, Column, StoredRoles

FIRN_COLUMNS: dict[str, PrimitiveType] = {"level": IntegerType(), "delete_horizon": TimestamptzType()}
_DEFAULT_METRICS = "truncate(16)"
"""Iceberg's default metrics mode, which applies only to a table's first hundred columns (docs, "Configuration")."""


def with_own_columns(transaction: Transaction, chosen: StoredRoles, levels_apart: bool) -> StoredRoles:
    """Add Firn's two columns; return ``chosen`` with them."""
    level, horizon = _add_columns(transaction)
    added = Added(columns=(level.id, horizon.id))
    own = {"level": level, "delete_horizon": horizon, "levels_apart": levels_apart}
    return chosen.model_copy(update=own | {"added": added})


def store_mapping(transaction: Transaction, mapping: StoredRoles, identifier: str) -> None:
    """Add the partition fields and properties that ``mapping`` needs, and store ``mapping``."""
    columns = resolve(mapping, transaction.table_metadata.schema(), identifier)
    fields = _add_partition_fields(transaction, columns, identifier) if columns.levels_apart else ()
    pinned = _metrics(transaction.table_metadata.properties, columns)
    added = mapping.added.model_copy(
        update={
            "partition_fields": (*mapping.added.partition_fields, *fields),
            "properties": (*mapping.added.properties, *pinned),
        }
    )
    document = mapping.model_copy(update={"added": added}).model_dump_json()
    transaction.set_properties(pinned | {COLUMNS: document})


def _add_columns(transaction: Transaction) -> tuple[Column, Column]:
    """Add ``level`` and ``delete_horizon``, under other names if the table uses, or used, these names."""
    metadata = transaction.table_metadata
    taken = {field.name.lower() for field in metadata.schema().fields}
    # A former partition field still reserves its name, so a new column can't have that name.
    taken |= {field.name.lower() for spec in metadata.specs().values() for field in spec.fields}
    names = {role: free_name(role, taken) for role in FIRN_COLUMNS}
    with transaction.update_schema() as update:
        for role, kind in FIRN_COLUMNS.items():
            update.add_column(names[role], kind)
    schema = transaction.table_metadata.schema()
    level, horizon = (Column.of(schema.find_field(names[role])) for role in FIRN_COLUMNS)
    return level, horizon


def free_name(role: str, taken: set[str]) -> str:
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
    mapped = (
        *columns.key,
        columns.offset,
        columns.timestamp,
        columns.topic,
        columns.partition,
        columns.tombstone_null,
        columns.level,
        columns.delete_horizon,
    )
    wanted = {f"write.metadata.metrics.column.{name}": _DEFAULT_METRICS for name in mapped if name}
    return {name: mode for name, mode in wanted.items() if name not in properties}
