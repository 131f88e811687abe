"""Side branches of a table: records that Firn removed from ``main`` and must keep (C5, C9).

The commit that removes the records from main also moves these branches, so nothing is lost, repeated or taken back
between two commits. Readers name a branch: ``VERSION AS OF 'firn_quarantine'`` in Spark,
``scan().use_ref(…)`` in PyIceberg.
"""

from collections.abc import Mapping
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError

QUARANTINE: Final = "firn_quarantine"
"""Records without a key (C5)."""
REMOVED_TOMBSTONES: Final = "firn_tombstones"
"""Tombstones that a cleaning removed; they return when an older record of their key lands late (C9)."""
SIDE_BRANCHES: Final = (QUARANTINE, REMOVED_TOMBSTONES)
"""Branches that every table has."""
ERASURES: Final = "firn_erasures"
"""Requests to erase keys, and what was done about them (C30). Without records; exists from the first request on."""
HIDDEN: Final = "firn_hidden"
"""The memory of lane `hide` (C28). Without records; exists from the lane's first commit on."""
FIRN_BRANCHES: Final = (*SIDE_BRANCHES, ERASURES, HIDDEN)
"""All branches that Firn makes."""

BRANCH: Final = "firn.branch"
"""Property in the summary of Firn's snapshots on a side branch: the branch's name. Other tools may give the name of a
branch to something else, for example to a tag on main."""

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
    """``table`` as a reader of ``branch``, main or a side branch, sees it; without a snapshot when there is no such
    branch. Raises RefusedError as ``head_of``."""
    if branch == MAIN_BRANCH:
        return table
    head = head_of(table, branch)
    return at_snapshot(table, head.snapshot_id if head else None)


def head_of(table: Table, branch: str) -> Snapshot | None:
    """The newest snapshot of the side branch ``branch``; None when there is no such branch.

    Raises RefusedError when somebody else has given its name to a tag, or to a branch of something else.
    """
    ref = table.metadata.refs.get(branch)
    if ref is None:
        return None
    head = table.snapshot_by_id(ref.snapshot_id)
    kind = str(ref.snapshot_ref_type.value)
    if kind == "tag" or not _is_firns(table, head, branch):
        raise RefusedError(
            f"table {'.'.join(table.name())}: {kind} {branch} is not Firn's own branch of that name; allowed: another "
            f"name for this {kind}"
        )
    return head


def check_names(table: Table) -> None:
    """Raise RefusedError as ``head_of`` for any of Firn's branches."""
    for branch in FIRN_BRANCHES:
        head_of(table, branch)


def _is_firns(table: Table, head: Snapshot | None, branch: str) -> bool:
    """True when ``head`` or one of its ancestors is Firn's snapshot on ``branch``: others may have committed since."""
    at = head
    while at is not None:
        if at.summary is not None and at.summary.additional_properties.get(BRANCH) == branch:
            return True
        at = table.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id is not None else None
    return False


def at_snapshot(table: Table, snapshot_id: int | None) -> Table:
    """``table`` as if ``snapshot_id`` were its current snapshot; for reading only."""
    metadata = table.metadata.model_copy(update={"current_snapshot_id": snapshot_id})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
