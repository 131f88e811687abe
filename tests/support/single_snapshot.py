"""A real SQL catalog that takes one snapshot per commit, as some services do.

PyIceberg loads the class through its own ``py-catalog-impl`` setting.
"""

from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AddSnapshotUpdate

from firnlake.iceberg.catalog import Lake


class SingleSnapshotCatalog(SqlCatalog):
    """Refuses every commit of several snapshots, always in the same way."""

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        if sum(isinstance(update, AddSnapshotUpdate) for update in updates) > 1:
            raise CommitFailedException("only one snapshot can be added by a commit")
        return super().commit_table(table, requirements, updates)


def single_snapshots(lake: Lake) -> Lake:
    """``lake`` through such a catalog."""
    own = {key: value for key, value in lake.properties.items() if key != "type"}
    impl = f"{SingleSnapshotCatalog.__module__}.{SingleSnapshotCatalog.__name__}"
    return Lake(lake.name, own | {"py-catalog-impl": impl}, lake.home)
