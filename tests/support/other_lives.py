"""What gives a table's main another history."""

from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate

from firnlake.iceberg.catalog import Lake


def begin_anew(lake: Lake, identifier: str) -> None:
    """Begin main anew as CREATE OR REPLACE TABLE does: the next snapshot has no parent, all others stay
    (`TableMetadata.buildReplacement` of Iceberg's Java library)."""
    table = lake.table(identifier)
    remove_main = RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"})
    lake.catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (remove_main,))
