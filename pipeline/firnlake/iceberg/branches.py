"""Side branches of a table, which hold the records that Firn removed from ``main`` and must keep (C5, C9).

The commit that removes records from main also adds them to these branches, so that no record is lost or repeated
between two commits. Readers name a branch, for example with ``VERSION AS OF 'firn_quarantine'`` in Spark or
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
"""Tombstones that a cleaning removed; a tombstone returns to main when an older record of its key lands late (C9)."""
SIDE_BRANCHES: Final = (QUARANTINE, REMOVED_TOMBSTONES)
"""The branches of every table, except a table with the property ``HAS_SIDE_BRANCHES`` = ``false``."""
ERASURES: Final = "firn_erasures"
"""Requests to erase keys, and their outcomes (C30). The branch has no records and exists from the first request on."""
HIDDEN: Final = "firn_hidden"
"""The memory of the lane `hide` (C28). The branch has no records and exists from the lane's first commit on."""
FIRN_BRANCHES: Final = (*SIDE_BRANCHES, ERASURES, HIDDEN)
"""All branches that Firn makes."""

BRANCH: Final = "firn.branch"
"""Property in the summary of Firn's snapshots on a side branch: the branch's name. Firn recognises its branches by this
property, because other tools may use the same name for something else, for example for a tag on main."""

QUARANTINED: Final = -1
"""Level of records on the branch ``firn_quarantine``."""
REMOVED: Final = -2
"""Level of tombstones on the branch ``firn_tombstones``."""

HAS_SIDE_BRANCHES: Final = "firn.side.branches"
"""Table property; ``false`` if the catalog accepts only one snapshot per commit, so the table has no side branches."""

FOR_EVER_MS: Final = 2**63 - 1
"""The highest possible maximum age of a branch, in milliseconds. For a branch without a maximum age, the table's
``history.expire.max-ref-age-ms`` applies."""


def has_side_branches(properties: Mapping[str, str]) -> bool:
    """True when a commit to the table with these ``properties`` may carry side branches."""
    return properties.get(HAS_SIDE_BRANCHES, "true").strip().lower() != "false"


def on_branch(table: Table, branch: str) -> Table:
    """``table`` as a reader of ``branch`` (main or a side branch) sees it. If there is no such branch, the result has
    no current snapshot. Raises RefusedError as ``head_of`` does."""
    if branch == MAIN_BRANCH:
        return table
    head = head_of(table, branch)
    return at_snapshot(table, head.snapshot_id if head else None)


def head_of(table: Table, branch: str) -> Snapshot | None:
    """The newest snapshot of the side branch ``branch``; None when there is no such branch.

    Raises RefusedError when another tool uses this name for a tag, or for a branch that Firn did not make.
    """
    ref = table.metadata.refs.get(branch)
    if ref is None:
        return None
    head = table.snapshot_by_id(ref.snapshot_id)
    kind = str(ref.snapshot_ref_type.value)
    if kind == "tag" or not _is_firns(table, head, branch):
        raise RefusedError(
            f"table {'.'.join(table.name())}: {kind} {branch} is not Firn's, but Firn needs this name for its "
            f"own branch; allowed: another name for this {kind}"
        )
    return head


def check_names(table: Table) -> None:
    """Raise RefusedError, as ``head_of`` does, when another tool uses the name of one of Firn's branches."""
    for branch in FIRN_BRANCHES:
        head_of(table, branch)


def _is_firns(table: Table, head: Snapshot | None, branch: str) -> bool:
    """True when Firn made ``head`` or one of its ancestors on ``branch``; other tools may have made newer snapshots."""
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
