"""Keep a table that was derived from another one in its shape, while that one evolves."""

from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    TableUpdate,
)

from pipeline.lake.catalog import Lake


def follow(lake: Lake, table: Table, schema: Schema, spec: PartitionSpec) -> Table:
    """``table`` with the columns of ``schema`` and partitioned by ``spec``, whose ids another table has given.

    PyIceberg's own evolution would give ids of its own. Raises CommitFailedException when another process changed
    either at the same time: load it and try again.
    """
    updates: list[TableUpdate] = []
    if table.schema() != schema:
        number = max(table.schemas()) + 1
        fresh = Schema(*schema.fields, schema_id=number, identifier_field_ids=schema.identifier_field_ids)
        current: dict[str, Any] = {"schema-id": number}
        updates += [AddSchemaUpdate(schema=fresh), SetCurrentSchemaUpdate.model_validate(current)]
    if table.spec().spec_id != spec.spec_id:
        if spec.spec_id not in table.specs():
            updates.append(AddPartitionSpecUpdate(spec=spec))
        updates.append(SetDefaultSpecUpdate.model_validate({"spec-id": spec.spec_id}))
    if not updates:
        return table
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": table.metadata.current_schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": table.metadata.default_spec_id}),
    )
    lake.when_free(lambda: lake.catalog.commit_table(table, requirements, tuple(updates)))
    return table.refresh()
