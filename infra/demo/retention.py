"""Keep the history of a table that is committed to all day short: its snapshots, and the files that only they reach.

For a demo that nobody looks after. It reads every manifest of every snapshot that stays: for large tables Spark's
`expire_snapshots` is the tool.
"""

from collections.abc import Iterable
from datetime import datetime

from pyiceberg.io import FileIO
from pyiceberg.table.snapshots import Snapshot

from pipeline.lake import Lake


def expire(lake: Lake, identifier: str, older_than: datetime) -> int:
    """Expire the snapshots from before ``older_than`` but the current one; returns how many files were deleted.

    Raises UnavailableError when the catalog does not answer or others commit all the time; nothing is deleted then.
    """

    def commit() -> list[Snapshot]:
        table = lake.table(identifier)
        before = table.metadata.snapshots
        table.maintenance.expire_snapshots().older_than(older_than).commit()
        return before

    before = lake.until_committed(commit)
    table = lake.table(identifier)
    kept = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    expired = [snapshot for snapshot in before if snapshot.snapshot_id not in kept]
    unreached = files(table.io, expired) - files(table.io, table.metadata.snapshots) if expired else set()
    for path in unreached:
        table.io.delete(path)
    return len(unreached)


def files(io: FileIO, snapshots: Iterable[Snapshot]) -> set[str]:
    """The manifest lists, manifests and live data files of the snapshots."""
    lists = {snapshot.manifest_list for snapshot in snapshots}
    manifests = {manifest.manifest_path: manifest for snapshot in snapshots for manifest in snapshot.manifests(io)}
    data = {entry.data_file.file_path for manifest in manifests.values() for entry in manifest.fetch_manifest_entry(io)}
    return lists | set(manifests) | data
