"""Explanation of a key: why its records are kept, and which commits removed its other records (C1 to C11)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from typing import Final

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import MENDED, REMOVED_TOMBSTONES, ancestors, head_of, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.explain_segment import ExplainedCommit, outlooks
from firnlake.inspect.keeping import Keeping
from firnlake.inspect.outlook import never_taken
from firnlake.inspect.versions import Key, Version, Versions
from firnlake.job.lane import Lane
from firnlake.lanes.answer import Reason
from firnlake.lanes.erasure.digests import digests_of, named_values
from firnlake.lanes.erasure.requests import erasures_of
from firnlake.maintain.mend import mended_entries
from firnlake.table.columns import ColumnRoles
from firnlake.table.history import CommitSummary
from firnlake.table.segment import RUN
from firnlake.table.topic_partition import TopicPartition


@dataclass(frozen=True)
class Fate:
    """A record that is kept, on main or on a branch, or that a commit removed, and the rule by which it is."""

    record: Version
    reason: Reason
    commit: ExplainedCommit | None = None
    """The commit that removed it; None for a record that is kept."""


@dataclass(frozen=True)
class KeyExplanation:
    """All records of a key, or those without a key if ``key`` is None. ``reach`` says how far back the search went."""

    table: str
    snapshot_id: int | None
    key: Key
    kept: tuple[Fate, ...] = ()
    removed_tombstones: tuple[Fate, ...] = ()
    """Removed tombstones of the key, on their side branch (C9)."""
    mended: tuple[Fate, ...] = ()
    """Records that `firn mend` took out, as far as the branch ``firn_mended`` keeps them, in offset order (C36)."""
    unreadable: tuple[str, ...] = ()
    """Damaged files that `firn mend` took out, which may hold further records of the key."""
    removed: tuple[Fate, ...] = ()
    reach: str = "the table has no snapshot"


_RESTORABLE: Final = Reason("C9", "kept on a side branch, and restored if an older record of its key lands")


def explain_key(
    lake: Lake,
    identifier: str,
    key: Key,
    now_ms: int,
    only: TopicPartition | None = None,
    commits: int = 100,
) -> KeyExplanation:
    """Explain the records of ``key`` (None: records without a key) in table ``identifier`` at ``now_ms``.

    ``only`` restricts the explanation to one topic partition. ``commits`` is the maximum number of commits that are
    searched for removed records, newest first. Raises RefusedError for an unknown table or topic partition, but not for
    an unknown key.
    """
    segments, found = outlooks(lake, identifier, now_ms, {only} if only else ())
    if segments.snapshot_id is None:
        return KeyExplanation(identifier, None, key)
    table = lake.table(identifier)
    columns = ColumnRoles.of(table, identifier)
    named = None if key is None else named_values(table, columns, [key])
    reader = Versions(table, columns, named, only)
    head = on_branch(table, REMOVED_TOMBSTONES).current_snapshot()
    # A tombstone that was restored and removed again appears twice.
    removed_tombstones = reader.of(head.snapshot_id) if head and named is not None else []
    erased_below = _erased_below(table, columns, key)
    strays = {stray.path: never_taken(stray) for stray in segments.strays}
    kept: list[Fate] = []
    for where, present in groupby(reader.of(segments.snapshot_id), key=lambda version: version.topic_partition):
        versions, own = list(present), [one for one in removed_tombstones if one.topic_partition == where]
        keeping = None
        if where in found:
            keeping = Keeping(found[where], versions, own, key is not None, erased_below.get(where, 0))
        for place, version in enumerate(versions):
            if version.path in strays:
                kept.append(Fate(version, strays[version.path]))
            elif keeping:
                kept.append(Fate(version, keeping.reason(place)))
    removed, reach = _removed(table, reader, key is not None, commits)
    mended, unreadable = _mended(table, reader)
    return KeyExplanation(
        identifier,
        segments.snapshot_id,
        key,
        tuple(kept),
        tuple(Fate(version, _RESTORABLE) for version in removed_tombstones),
        tuple(mended),
        tuple(unreadable),
        tuple(removed),
        reach,
    )


def _erased_below(table: Table, columns: ColumnRoles, key: Key) -> Mapping[TopicPartition, int]:
    """The offsets below which records of the key are to be erased, by topic partition."""
    erasures = erasures_of(table)
    if not erasures or key is None:
        return {}
    (digest,) = digests_of(table, columns, [key])
    below: dict[TopicPartition, int] = {}
    for request in (erasure.request for erasure in erasures if digest in erasure.request.digests):
        for partition, end in request.log_ends.items():
            owner = TopicPartition(request.topic, partition)
            below[owner] = max(end, below.get(owner, 0))
    return below


def _mended(table: Table, versions: Versions) -> tuple[list[Fate], list[str]]:
    """The records of the key that mendings took from main, as far as the branch keeps them; and paths of files on the
    branch that may hold further ones, but can't be read."""
    head = head_of(table, MENDED)
    if head is None:
        return [], []
    mended: list[Fate] = []
    unreadable: list[str] = []
    candidates = versions.files(head.snapshot_id)
    for entry, past in mended_entries(table):
        path = entry.data_file.file_path
        if path not in candidates:
            continue
        reason = Reason("C36", f"taken by {past or 'firn mend, with a snapshot that has expired'}")
        try:
            mended += [Fate(one, reason) for one in versions.of(head.snapshot_id, among=frozenset({path}))]
        except (OSError, RefusedError, pa.ArrowException):
            unreadable.append(path)
    return sorted(mended, key=lambda one: one.record.place), unreadable


def _removed(table: Table, versions: Versions, has_key: bool, limit: int) -> tuple[list[Fate], str]:
    """The records of the key that Firn's commits removed, newest commit first, and how far back the search went."""
    removed: list[Fate] = []
    snapshots = list(ancestors(table))
    removing = [
        one for one in snapshots if (told := CommitSummary.of(one)) and told.counts.records_out < told.counts.records_in
    ]
    for looked, snapshot in enumerate(removing):
        if looked == limit:
            return removed, f"searched the newest commits that removed records, up to --commits {limit}"
        unknown = f"unknown which records snapshot {snapshot.snapshot_id} removed"
        parent_id = snapshot.parent_snapshot_id
        if parent_id is None or table.snapshot_by_id(parent_id) is None:
            return removed, f"{unknown}: the snapshot before it has expired"
        try:
            removed += _removed_by(table, snapshot, parent_id, versions, has_key)
        except FileNotFoundError:
            return removed, f"{unknown}: its data files are deleted"
    since = ""
    if snapshots and snapshots[-1].parent_snapshot_id is not None:
        since = f" since snapshot {snapshots[-1].snapshot_id}, the oldest"
    return removed, f"searched all commits that removed records{since}: {len(removing)}"


def _removed_by(table: Table, snapshot: Snapshot, parent_id: int, versions: Versions, has_key: bool) -> Iterator[Fate]:
    before, after = versions.files(parent_id), versions.files(snapshot.snapshot_id)
    gone = versions.of(parent_id, among=before - after)
    missing = Counter(version.place for version in gone)
    missing.subtract(version.place for version in versions.of(snapshot.snapshot_id, among=after - before))
    # The last of each topic partition is the newest record that the commit left there.
    newest = {one.topic_partition: one.offset for one in versions.of(snapshot.snapshot_id)} if gone else {}
    explained = cache(partial(ExplainedCommit.of, table, snapshot))
    for version in gone:
        if missing[version.place] > 0:
            missing[version.place] -= 1
            owner = version.topic_partition
            commit = explained(owner)
            yield Fate(version, _took(version, newest.get(owner, -1), commit, has_key), commit)


def _took(version: Version, newest: int, commit: ExplainedCommit, has_key: bool) -> Reason:
    """The rule by which ``commit`` removed ``version``; ``newest`` is the highest offset that it left of the key."""
    for traits in (lane.traits for lane in Lane if lane.value == commit.lane and lane.traits.removal):
        return Reason(traits.rule, traits.removal)
    if version.producer_id is not None and newest < version.offset and not (version.tombstone and version.level >= RUN):
        return Reason("C10", f"of an aborted transaction of producer {version.producer_id}")
    if not has_key:
        return Reason("C5", "without a key: quarantined")
    if newest > version.offset:
        return Reason("C2", f"superseded by offset {newest}")
    if newest == version.offset:
        return Reason("C1", "written more than once: another copy was kept")
    if version.tombstone:
        return Reason("C9", "a tombstone whose delete horizon had passed")
    return Reason("C26", "no rule explains this removal: please report it with the plan's id")
