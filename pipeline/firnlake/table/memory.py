"""The removed tombstones that belong to main's history (C9, C33), and those that this history has made void.

Main's line tells when a topic partition began anew: in some snapshot it has no record, or its log ends below a removed
tombstone. That tombstone then says nothing about the records that landed later, and would delete them. The snapshots
that tell this expire, so the void tombstones leave their branch before Firn publishes or expires anything.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from firnlake.iceberg.branch_snapshot import BranchChange
from firnlake.iceberg.branches import REMOVED_TOMBSTONES, ancestors, at_snapshot, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import commit_changes
from firnlake.table.arrays import Segments
from firnlake.table.mendings import is_mending
from firnlake.table.policy import LONG_MAX
from firnlake.table.segment import Segment
from firnlake.table.segment_cache import ManifestCache
from firnlake.table.segments import read
from firnlake.table.summaries import CommitSummary
from firnlake.table.topic_partition import TopicPartition


def tombstones_on_branch(
    table: Table, identifier: str, cache: ManifestCache | None = None
) -> Mapping[TopicPartition, tuple[Segment, ...]]:
    """The segments of all removed tombstones on their branch, also of void ones, which still hold their keys."""
    branch = on_branch(table, REMOVED_TOMBSTONES)
    return read(branch, f"{identifier} ({REMOVED_TOMBSTONES})", cache=cache).by_partition


def removed_tombstones(
    table: Table, identifier: str, cache: ManifestCache | None = None
) -> Mapping[TopicPartition, tuple[Segment, ...]]:
    """The segments of removed tombstones that count, by topic partition, in offset order."""
    held = tombstones_on_branch(table, identifier, cache)
    void = _void(table, identifier, held)
    if not void:
        return held
    counting = {where: tuple(one for one in own if one.path not in void) for where, own in held.items()}
    return {where: own for where, own in counting.items() if own}


def void_tombstones(table: Table, identifier: str) -> frozenset[str]:
    """Paths of the files of removed tombstones that main's history has made void, but that are still on their branch.

    Usually reads nothing, because no other writer has removed or replaced records since Firn last looked.
    """
    return _void(table, identifier, tombstones_on_branch(table, identifier)) if any(_suspects(table)) else frozenset()


def drop_void_tombstones(lake: Lake, identifier: str) -> None:
    """Remove the void tombstones of table ``identifier`` from their branch; main gets an empty snapshot in this commit.

    There is no commit if no tombstone is void. Raises the errors of ``commit_changes``.
    """

    def changes(table: Table) -> Mapping[str, BranchChange]:
        void = void_tombstones(table, identifier)
        return {REMOVED_TOMBSTONES: Change(removed=sorted(void))} if void else {}

    commit_changes(lake, identifier, changes)


def _void(table: Table, identifier: str, held: Mapping[TopicPartition, tuple[Segment, ...]]) -> frozenset[str]:
    void: set[str] = set()
    if not held:
        return frozenset()
    for step in _suspects(table):
        if step.before is not None and _keeps_all(table, step.after, step.before):
            continue
        after = read(at_snapshot(table, step.after.snapshot_id), identifier)
        before = read(at_snapshot(table, step.before.snapshot_id), identifier) if step.before else None
        for where, own in held.items():
            end = _log_end(after, where)
            former = None if before is None else _log_end(before, where)
            fell_from = LONG_MAX if former is None else former
            is_anew = before is not None and _began_anew(before, after, where)
            void |= {
                one.path
                for one in own
                if one.sequence_number < (step.after.sequence_number or 0)
                and end is not None
                and (is_anew or end < one.last_offset <= fell_from)
            }
    return frozenset(void)


class _Step(NamedTuple):
    """A commit on main: the snapshots that readers saw after it and before it."""

    after: Snapshot
    before: Snapshot | None
    """None if it has expired, or if there was none."""
    operations: frozenset[Operation | None]
    """The operations of the commit's snapshots; None for a snapshot that tells none."""


def _suspects(table: Table) -> Iterator[_Step]:
    """The commits on main, newest first, that may have removed records since Firn published something.

    Firn looks at the earlier ones before it publishes. Iceberg's ``append`` and ``replace`` remove no record (Iceberg
    spec, "Optional Snapshot Summary Fields"). After a mending, the log goes on, although records are missing (C36).
    """
    removing = (one for one in _steps(table) if not one.operations <= {Operation.APPEND, Operation.REPLACE})
    return (one for one in removing if not is_mending(one.after))


def _steps(table: Table) -> Iterator[_Step]:
    """The commits on main since Firn published something, newest first."""
    own: list[Snapshot] = []
    for snapshot in ancestors(table):
        if own and _was_seen(table, snapshot, own[-1]):
            yield _step(own, snapshot)
            own = []
        if CommitSummary.of(snapshot) is not None:
            return
        own.append(snapshot)
    if own:
        yield _step(own, None)


def _step(own: Sequence[Snapshot], before: Snapshot | None) -> _Step:
    operations = (one.summary.operation if one.summary is not None else None for one in own)
    return _Step(own[0], before, frozenset(operations))


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
    own = segments.by_partition.get(where, ())
    if segments.strays_of(where) or any(one.problem and one.last_offset < 0 for one in own):
        return None
    return max((one.last_offset for one in own), default=-1)


def _began_anew(before: Segments, after: Segments, where: TopicPartition) -> bool:
    """True when the topic partition has none of its former data files any more, and its log ends elsewhere."""
    former = {one.path for one in before.by_partition.get(where, ())}
    is_left = any(one.path in former for one in after.by_partition.get(where, ()))
    return bool(former) and not is_left and _log_end(before, where) != _log_end(after, where)
