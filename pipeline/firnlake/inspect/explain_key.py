"""Explanation of a key: why its records are kept, and which commits removed its other records (C1 to C11).

The cleaning rules (``firnlake.compact.keep_or_drop``) are applied to the key's records in the plans' inputs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import groupby
from typing import Final

import numpy as np
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.clock import exact_span
from firnlake.compact.keep_or_drop import NO_HORIZON, Outcome, Parameters, Records, horizons, outcomes
from firnlake.compact.survey import latest_per_key
from firnlake.errors import LostError, RefusedError
from firnlake.iceberg.branches import MENDED, REMOVED_TOMBSTONES, ancestors, head_of, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import path_of
from firnlake.iceberg.keys import NO_KEY
from firnlake.inspect.outlook import Outlook, RemovingCommit, never_taken, outlooks, taken
from firnlake.inspect.versions import Key, Version, Versions
from firnlake.job.plan import Plan
from firnlake.lanes import SERVING, TOP, Lane
from firnlake.lanes.answer import Reason
from firnlake.lanes.erasure.digests import digests_of, named_values
from firnlake.lanes.erasure.requests import erasures_of
from firnlake.maintain.mend import in_words, taken_files
from firnlake.table.columns import ColumnRoles
from firnlake.table.history import CommitSummary
from firnlake.table.segment import RUN, TopicPartition

_NEVER: Final = np.iinfo(np.int64).max
"""A time past every delete horizon."""


@dataclass(frozen=True)
class Fate:
    """A record that is kept, on main or on a branch, or that a commit removed, and the rule by which it is."""

    record: Version
    reason: Reason
    commit: RemovingCommit | None = None
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
    with lake.reading(identifier):
        sensed, each = outlooks(lake, identifier, now_ms, {only} if only else ())
        segments, found = sensed.segments, {one.state.topic_partition: one for one in each}
        if segments.snapshot_id is None:
            return KeyExplanation(identifier, None, key)
        table = lake.table(identifier)
        columns = ColumnRoles.of(table, identifier)
        reader = Versions(table, columns, None if key is None else named_values(table, columns, [key]), only)
        head = on_branch(table, REMOVED_TOMBSTONES).current_snapshot()
        # A tombstone that was restored and removed again appears twice.
        removed_tombstones = reader.of(head.snapshot_id) if head and key is not None else []
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
    named = {*digests_of(table, columns, [key])} if key else set[str]()
    below = Counter[TopicPartition]()
    for request in (one.request for one in erasures_of(table) if not named.isdisjoint(one.request.digests)):
        below |= Counter({TopicPartition(request.topic, partition): end for partition, end in request.log_ends.items()})
    return below


_REASONS: Final = {
    Outcome.ABORTED: ("C10", "of an aborted transaction of producer {producer}"),
    Outcome.QUARANTINED: ("C5", "without a key: quarantined"),
    Outcome.SUPERSEDED: ("C2", "superseded by {survivor}"),
    Outcome.REPEATED: ("C1", "written more than once: another copy is kept, if it is identical"),
    Outcome.TOMBSTONE_REMOVED: ("C9", "a tombstone past its delete horizon"),
    Outcome.KEPT: ("C26", "no rule explains this removal: please report it with the plan's id"),
}
"""Why a cleaning removes a record: the rule, and the reason in words."""


def _reason(outcome: Outcome, version: Version, survivor: str = "") -> Reason:
    """Why a cleaning removes ``version``, which the record ``survivor`` supersedes, if any does."""
    rule, text = _REASONS[outcome]
    return Reason(rule, text.format(producer=version.producer_id, survivor=survivor))


@dataclass(frozen=True)
class Keeping:
    """Says why the records of one key that are ``present`` in one topic partition are there, by what the lanes say."""

    outlook: Outlook
    present: Sequence[Version]
    """In offset order."""
    removed_tombstones: Sequence[Version] = ()
    """The key's removed tombstones, from their side branch (C9)."""
    has_key: bool = True
    erased_below: int = 0
    """Records of the key at lower offsets are to be erased (C30)."""

    def reason(self, place: int) -> Reason:
        """The rule that keeps the present record at ``place``, and what must happen before the record is removed."""
        version, state = self.present[place], self.outlook.state
        if version.offset < self.erased_below:
            return self._to_be_erased()
        for cleaning, when in self._cleanings:
            if going := cleaning.going.get(place):
                return Reason(going.rule, f"{going.text}; {when}")
        if not state.policy.compacts:
            return Reason("C19", "within the retention of its topic, which is not compacted")
        held, newer, cause = self.outlook.obstacle(version.path), self._newer(version), ""
        if self.is_aborted(version):
            cause = _reason(Outcome.ABORTED, version).text
        elif newer:
            cause = f"superseded by offset {newer.offset}"
        elif held and any(one.place == version.place for one in self.present if one is not version):
            cause = "written more than once"
        if cause and held:
            return Reason(held.rule, f"{cause}, but its segment {held.text}", held.until_ms)
        if newer:
            held = self.outlook.obstacle(newer.path)
            assert held  # otherwise the highest lane would take both records
            return Reason(held.rule, f"{cause}, which is not cleaned yet: its segment {held.text}", held.until_ms)
        if self.has_key and not version.tombstone:
            return Reason("C3", "the newest record of its key")
        what = "a tombstone" if self.has_key else "without a key"
        if version.offset >= state.kept_from:
            has = "has" if state.kept_from == state.log_end_offset else "may have"
            return Reason(
                "C4", f"{what}, but it {has} the highest offset of its topic partition, on which readers rely"
            )
        if held:
            return Reason(held.rule, f"{what}; its segment {held.text}", held.until_ms)
        (*_, (top, _)) = self._cleanings  # otherwise the record's segment would be held
        return top.waiting_for(place)

    def is_aborted(self, version: Version) -> bool:
        """True for a record of an aborted transaction; such a record supersedes nothing (C10). Levels 2 and 3 hold only
        committed records, because a cleaning has removed all others."""
        if version.producer_id is None or version.level >= RUN:
            return False
        return self.outlook.state.transactions.is_aborted(version.producer_id, version.offset)

    def _newer(self, than: Version) -> Version | None:
        """The first of the present records that may supersede record ``than``."""
        newer = (other for other in self.present if self.has_key and other.offset > than.offset)
        return next((other for other in newer if not self.is_aborted(other)), None)

    def _to_be_erased(self) -> Reason:
        answer = self.outlook.of_lane(SERVING)
        what = f"lane {answer.lane} removes it, and is due" if answer.plan else answer.reason.text
        return replace(answer.reason, text=f"its key is to be erased; {what}")

    @cached_property
    def _cleanings(self) -> Sequence[tuple["Cleaning", str]]:
        """The due plans, and then that of the highest lane, due or not, unless it failed; each with when it is made."""
        plans = [(plan, f"lane {lane} removes it, and is due") for lane, plan in self.outlook.due.items()]
        if self.outlook.top and TOP not in self.outlook.failed:
            plans.append((self.outlook.top, f"lane {TOP} removes it once it is due"))
        return [(Cleaning(self, plan), when) for plan, when in plans]


class Cleaning:
    """What ``plan`` does to the records of one key that ``keeping`` has, by the same comparison as in compaction."""

    going: Mapping[int, Reason]
    """Why the plan removes records, by their places among the present ones."""

    def __init__(self, keeping: Keeping, plan: Plan) -> None:
        self._plan, self._present = plan, keeping.present
        paths, traits = taken(plan), plan.lane.traits
        beside = {segment.path for segment in plan.removed_tombstones}
        places = [place for place, one in enumerate(keeping.present) if one.path in paths]
        self._places = places if traits.cleans else []
        inputs = [keeping.present[place] for place in self._places]
        removed = [one for one in keeping.removed_tombstones if one.path in beside]
        stamps = (one.delete_horizon_ms for one in inputs)
        horizon = np.array([NO_HORIZON if stamp is None else stamp for stamp in stamps], dtype=np.int64)
        # Of copies of a record, the one at the highest level is kept (C1).
        furthest_last = sorted(range(len(inputs)), key=lambda row: (inputs[row].level, horizon[row]))
        kept = {inputs[row].offset: row for row in furthest_last}
        repeated = np.array([kept[one.offset] != row for row, one in enumerate(inputs)], dtype=np.bool_)
        aborted = np.array([keeping.is_aborted(one) for one in inputs], dtype=np.bool_)
        keyless = np.full(len(inputs), not keeping.has_key)
        offsets = np.array([one.offset for one in (*inputs, *removed)], dtype=np.int64)
        codes = np.zeros(len(offsets), dtype=np.int64)
        codes[: len(inputs)][keyless | aborted | repeated] = NO_KEY
        newest, has_older = latest_per_key(codes, offsets, np.arange(len(offsets)) >= len(inputs))
        self._records = Records(
            offset=offsets[: len(inputs)],
            keyless=keyless,
            newest=newest[: len(inputs)],
            has_older=has_older[: len(inputs)],
            tombstone=np.array([one.tombstone for one in inputs], dtype=np.bool_),
            horizon=horizon,
            level=np.array([one.level for one in inputs], dtype=np.int64),
            aborted=aborted,
            repeated=repeated,
        )
        self._decided = outcomes(self._records, Parameters.of(plan))
        survivor = "".join(f"offset {offset}" for offset in offsets[newest])
        restored = ", a removed tombstone that is restored" if newest[len(inputs) :].any() else ""
        self.going = {
            self._places[row]: _reason(Outcome(self._decided[row]), inputs[row], survivor + restored)
            for row in np.flatnonzero(self._decided != Outcome.KEPT).tolist()
        }
        if traits.writes == "nothing":
            self.going = dict.fromkeys(places, Reason(traits.rule, traits.removal))

    def waiting_for(self, place: int) -> Reason:
        """Why a tombstone stays if it is the newest record of its key: its delete horizon must pass first (KIP-534)."""
        row, parameters, records = self._places.index(place), Parameters.of(self._plan), self._records
        if records.has_older[row]:
            older = records.offset[self._decided == Outcome.SUPERSEDED].min()
            why = f"supersedes offset {older}: its delete horizon is set once that record is removed"
            return Reason("C9", f"a tombstone that {why}")
        if outcomes(records, replace(parameters, now=_NEVER))[row] == Outcome.TOMBSTONE_REMOVED:
            return Reason("C9", "a tombstone before its delete horizon", self._present[place].delete_horizon_ms)
        if horizons(records, replace(parameters, stamp=_NEVER))[row] == _NEVER:
            after = f"delete.retention.ms = {exact_span(self._plan.delete_retention_ms)} after its time"
            return Reason("C8", f"a tombstone without a delete horizon, which the next full clean sets: {after}")
        below = f"the next full clean does not take offsets from {self._plan.clean_below} on"
        return Reason("C7", f"a tombstone that is not clean: {below}")


def _mended(table: Table, versions: Versions) -> tuple[list[Fate], list[str]]:
    """The records of the key that mendings took from main, as far as the branch keeps them; and paths of files on the
    branch that may hold further ones, but can't be read."""
    head = head_of(table, MENDED)
    if head is None:
        return [], []
    mended: list[Fate] = []
    unreadable: list[str] = []
    taken = taken_files(table)
    for path in sorted(versions.files(head.snapshot_id)):
        reason = Reason("C36", f"taken by {in_words(taken.get(path_of(path)))}")
        try:
            mended += [Fate(one, reason) for one in versions.of(head.snapshot_id, among=frozenset({path}))]
        except (LostError, RefusedError):
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
        except (FileNotFoundError, LostError):
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
    removal_of = cache(partial(RemovingCommit.of, table, snapshot))
    for version in gone:
        if missing[version.place] > 0:
            missing[version.place] -= 1
            removal = removal_of(version.topic_partition)
            yield Fate(version, _took(version, newest.get(version.topic_partition, -1), removal, has_key), removal)


def _took(version: Version, newest: int, removal: RemovingCommit, has_key: bool) -> Reason:
    """The rule by which a commit removed ``version``; ``newest`` is the highest offset that it left of the key."""
    for traits in (lane.traits for lane in Lane if lane.value == removal.lane and lane.traits.removal):
        return Reason(traits.rule, traits.removal)
    outcome = Outcome.KEPT
    if version.producer_id is not None and newest < version.offset and not (version.tombstone and version.level >= RUN):
        outcome = Outcome.ABORTED
    elif not has_key:
        outcome = Outcome.QUARANTINED
    elif newest > version.offset:
        outcome = Outcome.SUPERSEDED
    elif newest == version.offset:
        outcome = Outcome.REPEATED
    elif version.tombstone:
        outcome = Outcome.TOMBSTONE_REMOVED
    return _reason(outcome, version, f"offset {newest}")
