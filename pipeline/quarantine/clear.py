"""Clear a table's quarantine of records that were corrected and landed again, or are no longer needed (C5)."""

from pyiceberg.table.refs import MAIN_BRANCH

from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.branches import QUARANTINE
from pipeline.lake.manifests import Manifests
from pipeline.lake.snapshot_commit import Change, SnapshotCommit
from pipeline.quarantine.listing import Selection, quarantined_files


def clear(lake: Lake, identifier: str, selection: Selection) -> int:
    """Remove the selected records from the quarantine of table ``identifier`` in one commit; returns the count.

    The selection is as of a snapshot that somebody exported: what was quarantined later, even between two tries of the
    commit, has been seen by nobody and stays. The files stay until the branch snapshots that refer to them expire, so a
    mistake can be undone. Raises RefusedError when the table does not exist or the selection is as of no snapshot,
    UnavailableError when other commits interfere for a minute.
    """
    if selection.as_of is None:
        raise RefusedError(
            f"table {identifier}: --clear needs --as-of ID; allowed: the snapshot of branch {QUARANTINE} that was "
            f"exported, which `firn quarantine {identifier} --export FILE` prints"
        )
    cleared = 0

    def commit() -> None:
        nonlocal cleared
        table = lake.table(identifier)
        files = [file for *_, file in quarantined_files(table, identifier, selection)]
        cleared = sum(file.record_count for file in files)
        if files:
            changes = {MAIN_BRANCH: Change(), QUARANTINE: Change(removed=[file.file_path for file in files])}
            SnapshotCommit(table, changes).commit(lake, table, Manifests(table.io))

    lake.until_committed(commit)
    return cleared
