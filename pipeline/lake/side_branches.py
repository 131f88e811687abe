"""Creates a table's side branches when Firn takes it over, and finds out whether its catalog can move them."""

import logging
from typing import Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from pipeline.lake.branches import HAS_SIDE_BRANCHES, SIDE_BRANCHES, head_of
from pipeline.lake.catalog import Lake
from pipeline.lake.manifests import Manifests
from pipeline.lake.snapshot_commit import Change, SnapshotCommit

log = logging.getLogger(__name__)

REFUSALS: Final = 3
"""Maximum number of refusals without another writer's commit in between; then the catalog counts as unable."""


def create_side_branches(lake: Lake, identifier: str) -> Table:
    """Create the missing side branches of table ``identifier``, empty and in one commit; return the table.

    Some catalogs take only one snapshot per commit. Properties of the table then say so: records without a key are not
    moved (``firn.null.keys=fail``), and removed tombstones are not kept. Raises RefusedError when somebody else uses
    one of their names, UnavailableError when other writers' commits get in the way for too long.
    """
    refused = 0

    def create() -> CommitFailedException | None:
        """Create them; returns the refusal of a catalog that counts as unable."""
        nonlocal refused
        table = lake.table(identifier)
        fresh = [name for name in SIDE_BRANCHES if head_of(table, name) is None]
        if not fresh:
            return None
        try:
            commit = SnapshotCommit(table, {name: Change() for name in (MAIN_BRANCH, *fresh)})
            commit.commit(lake, table, Manifests(table.io))
        except CommitFailedException as error:
            refused += lake.table(identifier).metadata_location == table.metadata_location
            if refused < REFUSALS:
                raise
            return error
        return None

    refusal = lake.until_committed(create)
    if refusal:
        log.warning(
            "table %s: catalog %s refuses a commit of several snapshots (%s): records without a key can't "
            "be quarantined, and removed tombstones can't be restored",
            identifier,
            lake.name,
            refusal,
        )
        lake.set_properties(identifier, {HAS_SIDE_BRANCHES: "false", "firn.null.keys": "fail"})
    return lake.table(identifier)
