"""The removed tombstones that belong to main's history (C9, C33), and those that this history has made void.

Main's line tells when a topic partition began anew: in some snapshot it has no record, its log ends below a removed
tombstone, or it has other records in place of all. The tombstones of the same file, which one cleaning removed, then
say nothing about the records that landed later, and would delete them. The snapshots that tell this expire, so the void
tombstones leave their branch before Firn publishes or expires anything.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import REMOVED_TOMBSTONES, ancestors, at_snapshot, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.table.columns import ColumnRoles
from firnlake.table.history import CommitSummary, is_mending
from firnlake.table.manifest_reader import ManifestCache, read, read_entries
from firnlake.table.policy import LONG_MAX
from firnlake.table.segment import TAIL, Segment, Segments, TopicPartition


def removed_tombstones(
    table: Table, identifier: str, cache: ManifestCache | None = None
) -> Mapping[TopicPartition, tuple[Segment, ...]]:
    """The segments of removed tombstones that count, by topic partition, in offset order."""
    held = _on_branch(table, identifier, cache)
    void = _void(table, identifier, held)
    counting = {where: tuple(one for one in segments if one.path not in void) for where, segments in held.items()}
    return {where: segments for where, segments in counting.items() if segments}


def awaited_tombstones(table: Table, identifier: str) -> frozenset[str]:
    """Paths of the files of removed tombstones that a later cleaning may have to restore, because an older record may
    have landed and not reached the tail yet (C9)."""
    segments, found = read(table, identifier), set()
    for where, held in _on_branch(table, identifier).items():
        starts = [one.base_offset for one in segments.get(where, ()) if one.level != TAIL and one.records]
        starts += [one.base_offset for one in segments.strays_of(where)]
        found |= {one.path for one in held if min(starts, default=LONG_MAX) < one.last_offset}
    return frozenset(found)


def void_tombstones(table: Table, identifier: str) -> frozenset[str]:
    """Paths of the files of removed tombstones that main's history has made void, but that are still on their branch.

    Usually reads nothing, because no other writer has removed or replaced records since Firn last looked.
    """
    return _void(table, identifier, _on_branch(table, identifier)) if any(_suspects(table)) else frozenset()


def drop_void_tombstones(lake: Lake, identifier: str) -> None:
    """Remove the void tombstones of table ``identifier`` from their branch; main gets an empty snapshot in this commit.

    There is no commit if no tombstone is void. Raises the errors of ``commit_changes``.
    """

    def changes(table: Table) -> Mapping[str, BranchChange]:
        void = void_tombstones(table, identifier)
        return {REMOVED_TOMBSTONES: BranchChange(removed=sorted(void))} if void else {}

    commit_changes(lake, identifier, changes)


def _on_branch(
    table: Table, identifier: str, cache: ManifestCache | None = None
) -> Mapping[TopicPartition, tuple[Segment, ...]]:
    """The segments of all removed tombstones, void ones included."""
    branch = on_branch(table, REMOVED_TOMBSTONES)
    return read(branch, f"{identifier} ({REMOVED_TOMBSTONES})", cache=cache)


def _void(table: Table, identifier: str, held: Mapping[TopicPartition, tuple[Segment, ...]]) -> frozenset[str]:
    void: set[str] = set()
    for after, before in _suspects(table) if held else ():
        if before is not None and _keeps_all(table, after, before):
            continue
        now = read(at_snapshot(table, after.snapshot_id), identifier)
        former = read(at_snapshot(table, before.snapshot_id), identifier) if before else None
        for where, segments in held.items():
            end = _log_end(now, where)
            former_end = _log_end(former, where) if former else None
            is_anew = former is not None and _began_anew(table, former, now, where)
            void |= {
                one.path
                for one in segments
                if one.sequence_number < (after.sequence_number or 0)
                and end is not None
                and (is_anew or end < one.last_offset <= (LONG_MAX if former_end is None else former_end))
            }
    return frozenset(void)


def _suspects(table: Table) -> Iterator[tuple[Snapshot, Snapshot | None]]:
    """The commits on main, newest first, that may have removed records since Firn published something: the snapshots
    that readers saw after each and before it; None if that has expired, or if there was none.

    Firn looks at the earlier ones before it publishes. Iceberg's ``append`` and ``replace`` remove no record (Iceberg
    spec, "Optional Snapshot Summary Fields"). After a mending, the log goes on, although records are missing (C36).
    """
    commit: list[Snapshot] = []
    for snapshot in chain(ancestors(table), [None]):
        if commit and (snapshot is None or _was_seen(table, snapshot, commit[-1])):
            operations = {one.summary.operation if one.summary is not None else None for one in commit}
            if not operations <= {Operation.APPEND, Operation.REPLACE} and not is_mending(commit[0]):
                yield commit[0], snapshot
            commit = []
        if snapshot is None or CommitSummary.of(snapshot) is not None:
            return
        commit.append(snapshot)


def _was_seen(table: Table, snapshot: Snapshot, child: Snapshot) -> bool:
    """False if readers never saw ``snapshot``, because the commit that made it also made its ``child``.

    PyIceberg's ``overwrite`` makes two snapshots: the first removes, the second adds. A metadata file has the time of
    the snapshot with which it was written, so the metadata log tells; True if the log does not reach back so far.
    """
    log = [one.timestamp_ms for one in table.metadata.metadata_log]
    at = snapshot.timestamp_ms
    if min(log, default=at) >= at:
        return True
    if child.timestamp_ms == at:
        return [*log, table.metadata.last_updated_ms].count(at) > 1
    return any(one == at or at <= one < child.timestamp_ms for one in log)


def _keeps_all(table: Table, snapshot: Snapshot, parent: Snapshot) -> bool:
    """True when ``snapshot`` lists all data manifests of ``parent``, so that it has removed no data file."""
    listed = {one.manifest_path for one in snapshot.manifests(table.io)}
    return all(one.manifest_path in listed for one in parent.manifests(table.io) if one.content == ManifestContent.DATA)


def _log_end(segments: Segments, where: TopicPartition) -> int | None:
    """The last offset of the topic partition; -1 if it has no record, None if nobody can tell."""
    own = segments.get(where, ())
    if segments.strays_of(where) or any(one.problem and one.last_offset < 0 for one in own):
        return None
    return max((one.last_offset for one in own), default=-1)


def _began_anew(table: Table, before: Segments, after: Segments, where: TopicPartition) -> bool:
    """True when the topic partition has none of its former data files any more, and its log ends elsewhere, in a record
    that was not there before. After a DELETE that rewrites every file, it ends in a former record."""
    former, end = {one.path for one in before.get(where, ())}, _log_end(after, where)
    is_left = any(one.path in former for one in after.get(where, ()))
    if not former or is_left or end is None or end == _log_end(before, where):
        return False
    try:
        earlier, now = (_records_at(table, one, where, end) for one in (before, after))
    except RefusedError:  # a file can't be read
        return True
    return not now or any(record not in earlier for record in now)


def _records_at(table: Table, segments: Segments, where: TopicPartition, offset: int) -> list[dict[str, Any]]:
    """The records of the topic partition at ``offset``, without the columns that Firn writes."""
    roles, files = ColumnRoles.of(table, segments.identifier), DataFiles.of(table)
    names = [one.name for one in table.schema().fields if one.name not in (roles.level, roles.delete_horizon)]
    paths = {one.path for one in segments.get(where, ()) if one.base_offset <= offset <= one.last_offset}
    is_there = pc.field(roles.offset) == offset
    return [
        record
        for entry, _ in read_entries(at_snapshot(table, segments.snapshot_id), among=paths)
        for batch in files.batches(Source.of(entry.data_file), names)
        for record in pa.Table.from_batches([batch]).filter(is_there).to_pylist()
    ]
