"""Commits of other writers to main."""

from collections.abc import Collection

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from pipeline.history.ancestors import ancestors
from pipeline.history.properties import SUMMARY_PREFIX, properties_of


def others_since_firn(table: Table, most: int) -> int:
    """Number of commits to main since Firn's last one, at most ``most``."""
    count = 0
    for snapshot in ancestors(table):
        if count == most or _is_firns(snapshot):
            break
        count += 1
    return count


def others_since(table: Table, snapshot_ids: Collection[int], most: int) -> list[Snapshot]:
    """Other writers' snapshots of main since the newest of ``snapshot_ids``: the newest ones, at most ``most``."""
    snapshots: list[Snapshot] = []
    for snapshot in ancestors(table):
        if len(snapshots) == most or snapshot.snapshot_id in snapshot_ids:
            break
        if not _is_firns(snapshot):
            snapshots.append(snapshot)
    return snapshots


def _is_firns(snapshot: Snapshot) -> bool:
    return any(name.startswith(SUMMARY_PREFIX) for name in properties_of(snapshot))
