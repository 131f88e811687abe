"""Explanation of a key: why its records are kept, and which commits removed its other records (C1 to C11)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import MENDED, REMOVED_TOMBSTONES, head_of, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.explain.cleaning import Keeping, KeyRecords
from firnlake.inspect.explain.holds import Prospects, never_taken
from firnlake.inspect.explain.partition import ExplainedCommit, History
from firnlake.inspect.explain.versions import Key, Version, Versions
from firnlake.job.failures import failed_plans
from firnlake.job.lane import Lane
from firnlake.lanes.answer import Reason
from firnlake.lanes.erasure.digests import digests_of, named_values
from firnlake.lanes.erasure.requests import erasures_of
from firnlake.plan.read_states import sense_table
from firnlake.table.arrays import Segments
from firnlake.table.columns import ColumnRoles
from firnlake.table.mendings import mended_entries
from firnlake.table.segment import RUN
from firnlake.table.topic_partition import TopicPartition
from firnlake.table.transactions import NO_TRANSACTIONS


@dataclass(frozen=True)
class Kept:
    """A record that is kept, on main or on a branch, and the rule by which it is."""

    record: Version
    reason: Reason


@dataclass(frozen=True)
class Removed:
    """A record that a commit removed, and the rule by which the commit removed it."""

    record: Version
    reason: Reason
    commit: ExplainedCommit


@dataclass(frozen=True)
class KeyExplanation:
    """All records of a key, or those without a key if ``key`` is None. ``reach`` says how far back the search went."""

    table: str
    snapshot_id: int | None
    key: Key
    kept: tuple[Kept, ...]
    removed_tombstones: tuple[Version, ...]
    """Removed tombstones of the key. Firn restores one if an older record of the key lands late (C9)."""
    mended: tuple[Kept, ...]
    """Records that `firn mend` took out, as far as the branch ``firn_mended`` keeps them, in offset order (C36)."""
    unreadable: tuple[str, ...]
    """Damaged files that `firn mend` took out, which may hold further records of the key."""
    removed: tuple[Removed, ...]
    reach: str


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
    segments, sensed = sense_table(lake, identifier, now_ms, {only} if only else ())
    if only and only not in segments.by_partition:
        raise RefusedError(f"table {identifier} holds no segment of {only}; found: {_names(segments.by_partition)}")
    if segments.snapshot_id is None:
        return KeyExplanation(identifier, None, key, (), (), (), (), (), "the table has no snapshot")
    table = lake.table(identifier)
    columns = ColumnRoles.of(table, identifier)
    named = None if key is None else named_values(table, columns, [key])
    reader = Versions(table, columns, named, only)
    versions = reader.of(segments.snapshot_id)
    removed_tombstones = _removed_tombstones(table, reader) if named is not None else []
    erased_below = _erased_below(table, columns, key)
    states = {state.topic_partition: state for state in sensed}
    failed = failed_plans(lake, identifier)
    kept: list[Kept] = []
    for topic_partition in sorted({version.topic_partition for version in versions}):
        state = states.get(topic_partition)
        of_key = KeyRecords(
            [version for version in versions if version.topic_partition == topic_partition],
            [version for version in removed_tombstones if version.topic_partition == topic_partition],
            has_key=key is not None,
            transactions=state.transactions if state else NO_TRANSACTIONS,
            erased_below=erased_below.get(topic_partition, 0),
        )
        kept += _kept(of_key, segments, Prospects.of(segments, state, failed) if state else None)
    removed, reach = _removed(table, columns, named, only, commits)
    mended, unreadable = _mended(table, reader)
    return KeyExplanation(
        identifier,
        segments.snapshot_id,
        key,
        tuple(kept),
        tuple(removed_tombstones),
        tuple(mended),
        tuple(unreadable),
        tuple(removed),
        reach,
    )


def _removed_tombstones(table: Table, versions: Versions) -> list[Version]:
    """The removed tombstones of the key; a tombstone that was restored and removed again appears twice."""
    head = on_branch(table, REMOVED_TOMBSTONES).current_snapshot()
    return versions.of(head.snapshot_id) if head else []


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


def _kept(of_key: KeyRecords, segments: Segments, prospects: Prospects | None) -> Iterator[Kept]:
    """Explain why each record of the key in one topic partition is kept."""
    strays = {stray.path: stray for stray in segments.strays}
    keeping = Keeping(of_key, prospects) if prospects else None
    for place, version in enumerate(of_key.present):
        if version.path in strays:
            yield Kept(version, never_taken(strays[version.path]))
        elif keeping:
            yield Kept(version, keeping.reason(place))


def _mended(table: Table, versions: Versions) -> tuple[list[Kept], list[str]]:
    """The records of the key that mendings took from main, as far as the branch keeps them; and paths of files on the
    branch that may hold further ones, but can't be read."""
    head = head_of(table, MENDED)
    if head is None:
        return [], []
    mended: list[Kept] = []
    unreadable: list[str] = []
    candidates = versions.files(head.snapshot_id)
    for entry, past in mended_entries(table):
        path = entry.data_file.file_path
        if path not in candidates:
            continue
        reason = Reason("C36", f"taken by {past or 'firn mend, with a snapshot that has expired'}")
        try:
            mended += [Kept(one, reason) for one in versions.of(head.snapshot_id, among=frozenset({path}))]
        except (OSError, RefusedError, pa.ArrowException):
            unreadable.append(path)
    return sorted(mended, key=lambda one: one.record.place), unreadable


def _removed(
    table: Table, columns: ColumnRoles, named: pa.RecordBatch | None, only: TopicPartition | None, limit: int
) -> tuple[list[Removed], str]:
    """The records of the key that Firn's commits removed, newest commit first, and how far back the search went."""
    history = History(table)
    unknown = "unknown which records snapshot {} removed: {}"
    removed: list[Removed] = []
    readers: dict[str, Versions] = {}
    looked: set[int] = set()
    for commit in history.commits():
        place = commit.topic_partition
        if place is None and commit.plan:
            return removed, unknown.format(commit.snapshot_id, "the list of its plans is gone")
        if place is None or not commit.removed or (only and place != str(only)):
            continue
        if commit.snapshot_id not in looked and len(looked) == limit:
            return removed, f"searched the newest commits that removed records, up to --commits {limit}"
        looked.add(commit.snapshot_id)
        if commit.parent_id is None or table.snapshot_by_id(commit.parent_id) is None:
            return removed, unknown.format(commit.snapshot_id, "the snapshot before it has expired")
        if place not in readers:
            readers[place] = Versions(table, columns, named, TopicPartition.parse(place))
        try:
            removed += _removed_by(commit, commit.parent_id, readers[place], has_key=named is not None)
        except FileNotFoundError:
            return removed, unknown.format(commit.snapshot_id, "its data files are deleted")
    if history.complete:
        return removed, f"searched all commits that removed records: {len(looked)}"
    oldest = history.snapshots[-1].snapshot_id
    return removed, f"searched all commits that removed records since snapshot {oldest}, the oldest: {len(looked)}"


def _removed_by(commit: ExplainedCommit, parent_id: int, versions: Versions, has_key: bool) -> Iterator[Removed]:
    before, after = versions.files(parent_id), versions.files(commit.snapshot_id)
    gone = versions.of(parent_id, among=before - after)
    missing = Counter(version.place for version in gone)
    missing.subtract(version.place for version in versions.of(commit.snapshot_id, among=after - before))
    for version in gone:
        if missing[version.place] > 0:
            missing[version.place] -= 1
            yield Removed(version, _took(version, versions.of(commit.snapshot_id), commit, has_key), commit)


def _took(version: Version, left: Sequence[Version], commit: ExplainedCommit, has_key: bool) -> Reason:
    """The rule by which ``commit`` removed ``version``; ``left`` are the records of the key right after the commit."""
    newest = max((other.offset for other in left), default=-1)
    if commit.lane == Lane.RETAIN:
        return Reason("C19", "past the retention of its topic")
    if commit.lane == Lane.ERASE:
        return Reason("C30", "erased on request")
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


def _names(states: Iterable[TopicPartition]) -> str:
    names = sorted(str(topic_partition) for topic_partition in states)
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "") or "none"
