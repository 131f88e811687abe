"""Clear a table's quarantine of records that were corrected and landed again, or are no longer needed (C5)."""

from pyiceberg.table.refs import MAIN_BRANCH

from pipeline.lake import Lake
from pipeline.lake.branches import QUARANTINE
from pipeline.lake.manifests import Manifests
from pipeline.lake.snapshot_commit import Change, SnapshotCommit
from pipeline.quarantine.listing import EVERY_RECORD, Selection, quarantined_files


def clear(lake: Lake, identifier: str, selection: Selection = EVERY_RECORD) -> int:
    """Remove the selected records from the quarantine of table ``identifier`` in one commit; returns the count.

    Their files stay until the branch snapshots that refer to them expire, so a mistake can be undone. Raises
    RefusedError when the table does not exist, UnavailableError when other commits interfere for a minute.
    """
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
