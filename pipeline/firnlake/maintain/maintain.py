"""Maintenance of a table: what may go is found first, then it goes.

So a dry run finds exactly what a run would remove. Right before anything is deleted, each part looks again, so that
several maintenance runs, lane runs and other writers may work at the same time. If a run is interrupted, the next run
finishes its work. The next run also takes what the commits of this one allow to go.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from pyiceberg.table import Table

from firnlake.clock import exact_span
from firnlake.iceberg.branches import REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.iceberg.files import Stored, store
from firnlake.job.garbage import OwnGarbage
from firnlake.lanes.erasure.certificate import certificates
from firnlake.maintain.expire import Expiry
from firnlake.maintain.manifests import rewrite_manifests
from firnlake.maintain.orphans import orphans
from firnlake.table.live_files import read_entries
from firnlake.table.policy import UNLIMITED, Policies
from firnlake.table.reached import Contents, Reached, UnknownReferencesError, whole_table

GC_ENABLED: Final = "gc.enabled"
"""Iceberg's property that allows the deletion of a table's files."""

_OPTIONAL: Final = frozenset({Kind.SNAPSHOTS, Kind.ORPHANS, Kind.MANIFESTS})
"""The parts that ``firn.maintenance`` has to name."""
HOURLY: Final = frozenset({Kind.FIRN, Kind.TOMBSTONES})
"""The parts that are cheap enough to run every hour."""
ALL: Final = _OPTIONAL | HOURLY | {Kind.CERTIFICATE}


def maintain_table(
    lake: Lake, identifier: str, now_ms: int, *, remove: bool, parts: Collection[Kind] = ALL
) -> list[Finding]:
    """Maintain table ``identifier`` and return the findings of the ``parts``, which are named by what they are about;
    without ``remove``, change nothing.

    A file that a kept snapshot, branch or tag refers to is never deleted (C29). Raises RefusedError for an unknown
    table or a wrong limit, UnavailableError when catalog or store do not answer. All files that were deleted before an
    error were garbage.
    """
    with lake.answering():
        table = whole_table(lake, identifier)
        maintained = Policies.parse(identifier, table.properties).default.maintained
        asked = {part for part in parts if part in maintained or part not in _OPTIONAL}
        found: list[Finding] = []
        if table.properties.get(GC_ENABLED, "true").strip().lower() == "false":
            for part in sorted(asked & {Kind.SNAPSHOTS, Kind.ORPHANS}):
                reason = f"property {GC_ENABLED} is false, so another table may use the files; allowed: true"
                found.append(Finding(part, identifier, goes=False, reason=reason, files=0))
                asked.remove(part)
        garbage = _garbage(lake, identifier, now_ms, asked, found, remove=remove)
        for one in garbage:
            found += one.delete() if remove else one.findings()
        if Kind.MANIFESTS in asked:
            found += rewrite_manifests(lake, identifier, now_ms, remove=remove)
        if Kind.TOMBSTONES in asked:
            found += old_tombstones(lake, identifier, now_ms, remove=remove)
        if Kind.CERTIFICATE in asked:
            found += certificates(lake, identifier, now_ms, issue=remove)
        return found


def _garbage(
    lake: Lake, identifier: str, now_ms: int, parts: Collection[Kind], found: list[Finding], *, remove: bool
) -> list[Expiry | OwnGarbage]:
    """All garbage of the ``parts``, of the oldest kind first; what can't be looked at is added to ``found``."""
    contents = Contents(lake.table(identifier).io)
    expiry = Expiry.find(lake, identifier, now_ms, contents) if Kind.SNAPSHOTS in parts else None
    try:
        reached = Reached.look(lake, identifier, contents, expiry.leaving if expiry else ())
    except UnknownReferencesError as error:
        found.append(Finding.of_error(Kind.EXPIRED if expiry else Kind.FIRN, identifier, error))
        return []
    reason = "the metadata log does not name it, so another catalog or a late commit may: what it reaches stays"
    found += (Finding(Kind.METADATA, one, goes=False, reason=reason) for one in reached.others)
    garbage: list[Expiry | OwnGarbage] = []
    if expiry:
        expiry.look(reached)
        garbage.append(expiry)
    if Kind.FIRN in parts:
        own = OwnGarbage.find(lake, identifier, reached, remove=remove)
        others, staying = orphans(lake, reached, remove=remove) if Kind.ORPHANS in parts else ([], [])
        garbage.append(replace(own, others=[*own.others, *others], staying=[*own.staying, *staying]))
    return garbage


def old_tombstones(lake: Lake, identifier: str, now_ms: int, *, remove: bool) -> list[Finding]:
    """Findings about the files of removed tombstones that are older than ``firn.late.max.ms``; ``remove`` removes them
    from their branch, in one commit (C9).

    The age of a file is that of the snapshot that added it, or of the file itself if that snapshot has expired. If a
    plan needs a removed tombstone that is no longer on the branch, Firn makes the plan again.
    """
    table = lake.table(identifier)
    limit_ms = Policies.parse(identifier, table.properties).default.late_max_ms
    old = [file for file in _removed(table) if limit_ms != UNLIMITED and file.is_older(now_ms - limit_ms)]
    if not old:
        return []
    paths = {file.path for file in old}

    def changes(current: Table) -> Mapping[str, BranchChange]:
        own = {entry.data_file.file_path for entry, _ in read_entries(on_branch(current, REMOVED_TOMBSTONES))}
        return {REMOVED_TOMBSTONES: BranchChange(removed=sorted(paths & own))} if paths & own else {}

    if remove:
        commit_changes(lake, identifier, changes)
    name, reason = f"{identifier} ({REMOVED_TOMBSTONES})", f"older than late.max.ms = {exact_span(limit_ms)}"
    return [Finding.of_files(Kind.TOMBSTONES, name, old, now_ms, goes=True, reason=reason)]


def _removed(table: Table) -> list[Stored]:
    """The files of removed tombstones, each with the time when it was added."""
    branch = on_branch(table, REMOVED_TOMBSTONES)
    added = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.metadata.snapshots}
    files = []
    for entry, _ in read_entries(branch):
        path, size = entry.data_file.file_path, entry.data_file.file_size_in_bytes
        access, place = store(table, path)
        written_ms = added.get(entry.snapshot_id or 0) or Stored.of(access.get_file_info(place)).written_ms
        files.append(Stored(path, size, written_ms))
    return files
