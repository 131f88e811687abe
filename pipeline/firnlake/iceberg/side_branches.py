"""Creates the side branches of a table."""

from collections.abc import Mapping

from pyiceberg.table import Table

from firnlake.iceberg.branches import SIDE_BRANCHES, newest_of
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange
from firnlake.iceberg.commit import commit_changes


def create_side_branches(lake: Lake, identifier: str) -> Table:
    """Create the missing side branches of table ``identifier``, empty, in one commit; return the table.

    Raises RefusedError when another tool uses the name of a side branch, and the errors of ``commit_changes``.
    """

    def missing(table: Table) -> Mapping[str, BranchChange]:
        return {name: BranchChange() for name in SIDE_BRANCHES if newest_of(table, name) is None}

    return commit_changes(lake, identifier, missing).table
