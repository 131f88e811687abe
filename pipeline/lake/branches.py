"""Side branches of a table: records that Firn removed from ``main`` and must keep (C5, C9).

The commit that removes the records from main also moves these branches, so nothing is lost, repeated or taken back
between two commits. Readers name a branch: ``VERSION AS OF 'firn_quarantine'`` in Spark,
``scan().use_ref(…)`` in PyIceberg.
"""

from collections.abc import Mapping
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

QUARANTINE: Final = "firn_quarantine"
"""Records without a key (C5)."""
REMOVED_TOMBSTONES: Final = "firn_tombstones"
"""Tombstones that a cleaning removed; they return when an older record of their key lands late (C9)."""
SIDE_BRANCHES: Final = (QUARANTINE, REMOVED_TOMBSTONES)
"""Branches that every table has."""
ERASURES: Final = "firn_erasures"
"""Requests to erase keys, and what was done about them (C30). Without records; exists from the first request on."""
MASKS: Final = "firn_masks"
"""The memory of lane `mask` (C28). Without records; exists from the first mask on."""
FIRN_BRANCHES: Final = (*SIDE_BRANCHES, ERASURES, MASKS)
"""All branches that Firn makes."""

QUARANTINED: Final = -1
"""Level of records on the branch ``firn_quarantine``."""
REMOVED: Final = -2
"""Level of tombstones on the branch ``firn_tombstones``."""

HAS_SIDE_BRANCHES: Final = "firn.side.branches"
"""Table property; ``false`` where the catalog takes only one snapshot per commit: such a table has no side branches."""

FOR_EVER_MS: Final = 2**63 - 1
"""Longest branch age, in milliseconds. Without it a branch has the table's ``history.expire.max-ref-age-ms``."""


def has_side_branches(properties: Mapping[str, str]) -> bool:
    """True when a commit to the table with these ``properties`` may carry side branches."""
    return properties.get(HAS_SIDE_BRANCHES, "true").strip().lower() != "false"


def on_branch(table: Table, branch: str) -> Table:
    """``table`` as a reader of ``branch`` sees it; without a snapshot when there is no such branch."""
    if branch == MAIN_BRANCH:
        return table
    ref = table.metadata.refs.get(branch)
    return at_snapshot(table, ref.snapshot_id if ref else None)


def at_snapshot(table: Table, snapshot_id: int | None) -> Table:
    """``table`` as if ``snapshot_id`` were its current snapshot; for reading only."""
    metadata = table.metadata.model_copy(update={"current_snapshot_id": snapshot_id})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
