"""What gives a table's main another history: a rollback, CREATE OR REPLACE. Side branches stay where they are."""

from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate

from firnlake.iceberg.catalog import Lake
from tests.support.lakes import snapshot
from tests.support.topics import Topic


def head(topic: Topic) -> int:
    """Id of main's snapshot."""
    current = snapshot(topic.lake, topic.table)
    assert current is not None
    return current


def roll_back(topic: Topic, snapshot_id: int) -> None:
    """Set main back to an earlier snapshot, as Iceberg's `rollback_to_snapshot` does."""
    topic.lake.table(topic.table).manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


def replace(topic: Topic) -> None:
    """Begin main of the topic's table anew (``begin_anew``)."""
    begin_anew(topic.lake, topic.table)


def begin_anew(lake: Lake, identifier: str) -> None:
    """Begin main anew as CREATE OR REPLACE TABLE does: the next snapshot has no parent, all others stay
    (`TableMetadata.buildReplacement` of Iceberg's Java library)."""
    table = lake.table(identifier)
    remove_main = RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"})
    lake.catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (remove_main,))
