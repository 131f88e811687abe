"""Remove removed tombstones that are older than ``firn.late.max.ms`` from their branch, in whole data files (C5, C9).

Without such a limit, their keys would stay for ever. If a plan needs a removed tombstone that is no longer on the
branch, Firn makes the plan again. Quarantined records may be the only copy, so they stay until somebody clears them.
"""

from collections.abc import Mapping

from pyiceberg.table import Table

from firnlake.clock import exact_span
from firnlake.iceberg.branches import REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.iceberg.files import Stored, store
from firnlake.table.live_files import read_entries
from firnlake.table.policy import UNLIMITED, Policies


def old_tombstones(lake: Lake, identifier: str, now_ms: int, *, remove: bool) -> tuple[list[Finding], list[str]]:
    """Findings about the files of removed tombstones of ``identifier``, and the locations of those past the limit.

    With ``remove``, one commit removes the files past the limit. The age of a file is the age of the snapshot that
    added it, or of the file itself if that snapshot has expired.
    """
    limit_ms = Policies.parse(identifier, lake.table(identifier).properties).default.late_max_ms
    old: list[Stored] = []
    young: list[Stored] = []
    for file in _files(on_branch(lake.table(identifier), REMOVED_TOMBSTONES)):
        is_old = limit_ms != UNLIMITED and file.is_older(now_ms - limit_ms)
        (old if is_old else young).append(file)
    past = [file.path for file in old]
    if past and remove:
        _drop(lake, identifier, set(past))
    name, limit = f"{identifier} ({REMOVED_TOMBSTONES})", f"late.max.ms = {exact_span(limit_ms)}"
    return [
        Finding.of_files(Kind.TOMBSTONES, name, files, now_ms, goes=goes, reason=reason)
        for files, goes, reason in ((old, True, f"older than {limit}"), (young, False, f"within {limit}"))
        if files
    ], past


def _files(branch: Table) -> list[Stored]:
    """The live files of the branch, each with the time when it was added."""
    added = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in branch.metadata.snapshots}
    return [
        Stored(
            entry.data_file.file_path,
            entry.data_file.file_size_in_bytes,
            added.get(entry.snapshot_id or 0) or _written_ms(branch, entry.data_file.file_path),
        )
        for entry, _ in read_entries(branch)
    ]


def _written_ms(branch: Table, location: str) -> int | None:
    files, path = store(branch, location)
    info = files.get_file_info(path)
    return Stored.of(info).written_ms if info.is_file else None


def _drop(lake: Lake, identifier: str, paths: set[str]) -> None:
    """Remove the files at ``paths`` from the branch; main gets an empty snapshot in the same commit."""

    def changes(table: Table) -> Mapping[str, Change]:
        own = {entry.data_file.file_path for entry, _ in read_entries(on_branch(table, REMOVED_TOMBSTONES))}
        return {REMOVED_TOMBSTONES: Change(removed=sorted(paths & own))} if paths & own else {}

    commit_changes(lake, identifier, changes)
