"""A real SQL catalog to which one commit is delivered twice, and the files that a table has lost.

PyIceberg loads the class through its own ``py-catalog-impl`` setting.
"""

from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table

from firnlake.iceberg.catalog import Lake
from infra.foreign.files import on_disk
from tests.support.lakes import held


class RepeatingCatalog(SqlCatalog):
    """Applies the first commit, loses the answer, and is asked again, as by Glue's client or a proxy that repeats POST:
    the caller hears of the second request alone, which is refused because the first one has moved the branch."""

    repeated = False

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        response = super().commit_table(table, requirements, updates)
        if self.repeated:
            return response
        self.repeated = True
        return super().commit_table(table, requirements, updates)


def repeating(lake: Lake) -> Lake:
    """``lake`` through such a catalog."""
    others = {key: value for key, value in lake.properties.items() if key != "type"}
    impl = f"{RepeatingCatalog.__module__}.{RepeatingCatalog.__name__}"
    return Lake(lake.name, others | {"py-catalog-impl": impl}, lake.home)


def lost_files(table: Table) -> set[str]:
    """The files that snapshots of ``table`` name and that are gone; where a list or manifest is gone, these alone."""
    lists = {snapshot.manifest_list for snapshot in table.snapshots()}
    if gone := _gone(lists):
        return gone
    manifests = {one.manifest_path for snapshot in table.snapshots() for one in snapshot.manifests(table.io)}
    return _gone(manifests) or _gone(held(table))


def _gone(locations: set[str]) -> set[str]:
    return {location for location in locations if not on_disk(location).exists()}
