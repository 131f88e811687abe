"""Releases a table: removes its column mapping, so that Firn leaves the table as it is. No data file is changed."""

from dataclasses import dataclass

from pyiceberg.exceptions import ValidationError
from pyiceberg.table import Table, Transaction

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.stage import stages_of
from firnlake.table.policy import PREFIX
from firnlake.table.records import COLUMNS, RELEASED, StoredRoles


@dataclass(frozen=True)
class Release:
    """A released table, and the parts that the release removed from the table's metadata."""

    table: str
    dropped_columns: tuple[str, ...]
    dropped_partition_fields: tuple[str, ...]
    removed_properties: tuple[str, ...]


def release(lake: Lake, identifier: str, drop_columns: bool = False) -> Release:
    """Release the adopted table ``identifier``, in one commit that changes only the table's metadata.

    The commit removes the mapping and the policies (``firn.`` properties). Firn's two columns and the partition fields
    stay, so that a new adoption resumes in the former state. ``drop_columns`` also removes the columns, the partition
    fields and the properties that the adoption added; then Firn no longer knows which segments are clean. Raises
    RefusedError for a table that is not adopted, and for a table with stages, because their results could no longer be
    published.
    """

    def commit() -> Release:
        table = lake.table(identifier)
        name = COLUMNS if COLUMNS in table.properties or not drop_columns else RELEASED
        if name not in table.properties:
            raise RefusedError(f"table {identifier} is not adopted; allowed: a table that `firn adopt` maps")
        stages = stages_of(lake, identifier)
        if stages:
            raise RefusedError(
                f"table {identifier} has open stages: {len(stages)}, first {stages[0]}; allowed: none (publish or "
                "discard them: firn publish, firn discard)"
            )
        mapping = StoredRoles.parse(table.properties[name], identifier, name)
        with lake.single_attempt(table).transaction() as transaction:
            return _release(transaction, table, mapping, identifier, drop_columns)

    return lake.until_committed(commit)


def _release(
    transaction: Transaction, table: Table, mapping: StoredRoles, identifier: str, drop_columns: bool
) -> Release:
    marks = [key for key in (COLUMNS, RELEASED) if key in table.properties]
    policies = [key for key in table.properties if key.startswith(PREFIX) and key not in marks]
    if not drop_columns:
        transaction.remove_properties(*policies, *marks)
        transaction.set_properties({RELEASED: mapping.model_dump_json()})
        return Release(identifier, (), (), tuple(policies))
    pinned = [key for key in mapping.added.properties if key in table.properties]
    transaction.remove_properties(*policies, *marks, *pinned)
    # Partition fields come first, because a column can't be dropped while the table is partitioned by it.
    fields = _drop_partition_fields(transaction, mapping)
    columns = _drop_columns(transaction, mapping, identifier)
    return Release(identifier, columns, fields, (*policies, *pinned))


def _drop_partition_fields(transaction: Transaction, mapping: StoredRoles) -> tuple[str, ...]:
    fields = transaction.table_metadata.spec().fields
    names = tuple(field.name for field in fields if field.field_id in mapping.added.partition_fields)
    with transaction.update_spec() as update:
        for name in names:
            update.remove_field(name)
    return names


def _drop_columns(transaction: Transaction, mapping: StoredRoles, identifier: str) -> tuple[str, ...]:
    fields = transaction.table_metadata.schema().fields
    names = tuple(field.name for field in fields if field.field_id in mapping.added.columns)
    try:
        with transaction.update_schema() as update:
            for name in names:
                update.delete_column(name)
    except (ValueError, ValidationError) as error:
        raise RefusedError(
            f"table {identifier}: columns {', '.join(names)} can't be dropped: {error}; allowed: columns that nothing "
            "else in the table uses"
        ) from error
    return names
