"""Remove whole data files past their age limit from side branches (C5, C9).

Removed tombstones stay on their branch for ``firn.late.max.ms``; without a limit their keys would stay for ever.
Quarantined records may be the only copy, so they stay unless ``firn.maintenance.quarantine.age.ms`` sets a limit. If a
plan needs a removed tombstone that is no longer on the branch, Firn makes the plan again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table import Table

from firnlake.iceberg.branch_snapshot import BranchChange
from firnlake.iceberg.branches import QUARANTINE, REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.iceberg.files import Stored, store
from firnlake.table.policies import Policies
from firnlake.table.policy import UNLIMITED
from firnlake.table.segments import read_entries


@dataclass(frozen=True)
class _Limit:
    """Maximum age of a data file on a branch, in milliseconds, and the property that sets it."""

    branch: str
    kind: Kind
    property: str
    age_ms: int

    def __str__(self) -> str:
        return f"{self.property} = {self.age_ms}"


def old_on_branches(
    lake: Lake, identifier: str, now_ms: int, *, remove: bool
) -> tuple[list[Finding], dict[str, list[str]]]:
    """Findings about files on the side branches of ``identifier``, and, by branch, locations of those past their limit.

    With ``remove``, a commit for each branch removes its files past the limit. The age of a file is the age of the
    snapshot that added it, or of the file itself if that snapshot has expired.
    """
    garbage: list[Finding] = []
    past: dict[str, list[str]] = {}
    for limit in _limits(lake, identifier):
        old, young = _parted(lake, identifier, limit, now_ms)
        if old:
            past[limit.branch] = [file.path for file in old]
            if remove:
                _drop(lake, identifier, limit.branch, set(past[limit.branch]))
        name = f"{identifier} ({limit.branch})"
        for files, goes, reason in ((old, True, f"older than {limit}"), (young, False, f"within {limit}")):
            if files:
                garbage.append(Finding.of_files(limit.kind, name, files, now_ms, goes=goes, reason=reason))
    return garbage, past


def _limits(lake: Lake, identifier: str) -> tuple[_Limit, ...]:
    policy = Policies.parse(identifier, lake.table(identifier).properties).default
    return (
        _Limit(QUARANTINE, Kind.QUARANTINE, "firn.maintenance.quarantine.age.ms", policy.maintenance_quarantine_age_ms),
        _Limit(REMOVED_TOMBSTONES, Kind.TOMBSTONES, "firn.late.max.ms", policy.late_max_ms),
    )


def _parted(lake: Lake, identifier: str, limit: _Limit, now_ms: int) -> tuple[list[Stored], list[Stored]]:
    """The files of the branch that are past the limit, and its other files."""
    old: list[Stored] = []
    young: list[Stored] = []
    for file in _files(on_branch(lake.table(identifier), limit.branch)):
        is_old = limit.age_ms != UNLIMITED and file.is_older(now_ms - limit.age_ms)
        (old if is_old else young).append(file)
    return old, young


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


def _drop(lake: Lake, identifier: str, branch: str, paths: set[str]) -> None:
    """Remove the files at ``paths`` from ``branch``; main gets an empty snapshot in the same commit."""

    def changes(table: Table) -> Mapping[str, BranchChange]:
        going = sorted(paths & {entry.data_file.file_path for entry, _ in read_entries(on_branch(table, branch))})
        return {branch: Change(removed=going)} if going else {}

    commit_changes(lake, identifier, changes)
