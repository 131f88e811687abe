"""The required content of the table, whatever happens: all landed records, less those removed by rule (C1–C5, C24)."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from pyiceberg.table import Table

from firnlake.iceberg.authorship import properties_of
from firnlake.iceberg.branches import QUARANTINE, REMOVED_TOMBSTONES, ancestors, on_branch
from firnlake.table.published_plans import ERASE, JOB_ID, LANE, PLAN_ID, RecordCounts
from infra.foreign.files import on_disk
from tests.support.lakes import held
from tests.support.topics import Record

Place = tuple[int, int]
"""Partition and offset."""
Key = tuple[int, bytes]
"""A key in two partitions is two keys."""
View = Mapping[Key, tuple[int, bool]]
"""The reader's view of each key: its newest offset, and true if that is a tombstone."""


@dataclass(frozen=True)
class Branches:
    """The records that readers of each branch see."""

    main: Sequence[Record]
    quarantine: Sequence[Record] = ()
    removed_tombstones: Sequence[Record] = ()


@dataclass
class Model:
    """Everything that was landed in one table, what a foreign DELETE took out of it, and what is to be erased."""

    landed: dict[Place, Record] = field(default_factory=dict)
    deleted: set[Place] = field(default_factory=set)
    requested: dict[Key, int] = field(default_factory=dict)
    """The offset below which the records of a key are to be erased (C30)."""
    landed_again: set[Place] = field(default_factory=set)
    """Records that a restarted writer landed after they were erased."""

    def land(self, records: Iterable[Record]) -> None:
        self.landed |= {(record.partition, record.offset): record for record in records}

    def delete(self, key: bytes) -> None:
        """A user deletes all that there is of a key by now."""
        self.deleted |= {place for place, record in self.landed.items() if record.key == key}

    def request(self, key: bytes, below: Mapping[int, int]) -> None:
        """Everything of ``key`` that is below these offsets, by partition, is to be erased."""
        for partition, end in below.items():
            self.requested[partition, key] = max(end, self.requested.get((partition, key), 0))

    def erasable(self) -> set[Place]:
        """The records that may be gone because they are requested."""
        return {
            place
            for place, record in self.landed.items()
            if record.key is not None and record.offset < self.requested.get((record.partition, record.key), 0)
        }

    def newest(self) -> dict[Key, Record]:
        """The newest record of each key, but for what was deleted."""
        left = sorted((place, record) for place, record in self.landed.items() if place not in self.deleted)
        return {(record.partition, record.key): record for _, record in left if record.key is not None}

    def violations(self, seen: Branches) -> list[str]:
        """Errors in what readers see now, on main and on the side branches: they move together."""
        visible = _places(seen.main)
        found = [
            *self._changed(seen.main),
            *self._changed(seen.quarantine, f"{QUARANTINE}: "),
            *self._changed(seen.removed_tombstones, f"{REMOVED_TOMBSTONES}: "),
        ]
        found += [f"{place} was deleted and is back" for place in sorted(visible & self.deleted)]
        gone = sorted(self._ends(self.landed) - visible - self.deleted)
        found += [f"C4: the log end {end} is gone" for end in gone]
        return [*found, *self._lost(visible, seen), *self._misplaced(visible, seen)]

    def _changed(self, records: Sequence[Record], branch: str = "") -> Iterator[str]:
        """Records that are not as they were landed, or are there more than once."""
        for record in records:
            place = record.partition, record.offset
            if self.landed.get(place) != record:
                yield f"C1: {branch}{place} is {record}, landed was {self.landed.get(place)}"
        times = Counter((record.partition, record.offset) for record in records)
        yield from (f"{branch}{place} is seen {count} times" for place, count in times.items() if count > 1)

    def _lost(self, visible: set[Place], seen: Branches) -> Iterator[str]:
        """Records that no branch holds, and that nothing newer has superseded."""
        removed, kept = _places(seen.removed_tombstones), _places(seen.quarantine)
        erasable = self.erasable()
        for key, record in self.newest().items():
            place = record.partition, record.offset
            if place in visible:
                continue
            if place in erasable:
                if place not in removed:
                    yield from self._older_than_erased(record, visible)
                continue
            if record.value is not None:
                yield f"C3: the newest record of {key}, {place}, is gone"
            elif place not in removed:
                yield f"C9: the newest record of {key}, {place}, is a tombstone that was removed and not kept"
        for place, record in self.landed.items():
            if record.key is None and place not in visible | kept | self.deleted:
                yield f"C5: {place} without a key is neither in the table nor in quarantine"

    def _older_than_erased(self, newest: Record, visible: set[Place]) -> Iterator[str]:
        """Older values of a key whose newest record was erased: that would bring them back."""
        for place in sorted(visible - self.landed_again):
            older = self.landed.get(place)
            if older and (older.partition, older.key) == (newest.partition, newest.key):
                yield f"C30: {place} is there though {newest.offset}, the newest of its key, was erased"

    def _misplaced(self, visible: set[Place], seen: Branches) -> Iterator[str]:
        """Records that are on two branches, or on one that is not theirs."""
        for record in seen.quarantine:
            if record.key is not None:
                yield f"C5: {record.partition, record.offset} has a key and is in quarantine"
        for record in seen.removed_tombstones:
            if record.key is None or record.value is not None:
                yield f"C9: {record.partition, record.offset} is no tombstone and is kept as one"
        quarantined, removed = _places(seen.quarantine), _places(seen.removed_tombstones)
        yield from (f"C5: {place} is in quarantine and in the table" for place in sorted(visible & quarantined))
        yield from (f"C9: {place} is a removed tombstone and in the table" for place in sorted(visible & removed))

    def unsettled(self, seen: Branches) -> list[str]:
        """Errors that remain when everything has been cleaned and nothing is under way."""
        newest = {(record.partition, record.offset) for record in self.newest().values()}
        # What was deleted may have been the log end: then what is before it is, and stays (C4).
        ends = self._ends(self.landed) | self._ends(self.landed.keys() - self.deleted)
        left = sorted(_places(seen.main) - newest - ends)
        erasable = self.erasable() - self._ends(self.landed)
        requested = sorted((_places(seen.main) | _places(seen.removed_tombstones)) & erasable - ends)
        return [
            *(f"C16: {place} is superseded and still there" for place in left),
            *(f"C30: {place} is to be erased and still there" for place in requested),
        ]

    @staticmethod
    def _ends(places: Iterable[Place]) -> set[Place]:
        """The last offset of each partition."""
        return set(dict(sorted(places)).items())


def _places(records: Iterable[Record]) -> set[Place]:
    return {(record.partition, record.offset) for record in records}


def view(seen: Iterable[Record]) -> View:
    """The reader's view of each key."""
    newest: dict[Key, tuple[int, bool]] = {}
    for record in sorted(seen, key=lambda record: record.offset):
        if record.key is not None:
            newest[record.partition, record.key] = record.offset, record.value is None
    return newest


class Step(NamedTuple):
    """A key that was at offset ``before`` and is at ``after`` now, or nowhere."""

    key: Key
    before: int
    after: int | None


@dataclass
class Looks:
    """A reader that looks again and again never sees a key go back to an older value, or vanish and come back."""

    views: int = 0
    backwards: list[Step] = field(default_factory=list)
    _last: View = field(default_factory=dict)
    _gone: dict[Key, int] = field(default_factory=dict)

    def see(self, seen: View) -> None:
        """The next look."""
        self.views += 1
        for key, (offset, tombstone) in self._last.items():
            if key not in seen:
                self._gone[key] = offset
                if not tombstone:
                    self.backwards.append(Step(key, offset, None))
        for key, (offset, _) in seen.items():
            before = self._last[key][0] if key in self._last else self._gone.get(key, -1)
            if offset < before or (offset == before and key not in self._last):
                self.backwards.append(Step(key, before, offset))
        self._last = seen

    def violations(self, deleted: Container[Place] = ()) -> list[str]:
        """Errors in a reader's view; values that were ``deleted`` may be missing."""
        return [
            f"{step.key} was at offset {step.before} and is {'gone' if step.after is None else f'at {step.after}'}"
            for step in self.backwards
            if (step.key[0], step.before) not in deleted
        ]


def unbalanced(table: Table) -> list[str]:
    """Publications whose record counts don't say what their commit did to the number of records of a branch (C24)."""
    beside = {branch: _added(on_branch(table, branch)) for branch in (QUARANTINE, REMOVED_TOMBSTONES)}
    found = []
    for snapshot, parent in pairwise(ancestors(table)):
        said = properties_of(snapshot)
        if parent.summary is None or "firn.records-in" not in said:
            continue
        counts = RecordCounts.of_summary(said)
        lost = counts.records_in + counts.deleted - counts.records_out
        before, after = (int(properties_of(one).get("total-records", 0)) for one in (parent, snapshot))
        moved = {QUARANTINE: counts.quarantined, REMOVED_TOMBSTONES: counts.tombstones_removed}
        job = said.get(JOB_ID) or said[PLAN_ID]
        added = {branch: own.get(job, 0) for branch, own in beside.items()}
        if said.get(LANE) == ERASE:
            # Removed tombstones that are erased do not count.
            moved[REMOVED_TOMBSTONES] = min(0, added[REMOVED_TOMBSTONES])
        if after - before != counts.restored - lost or added != moved:
            found.append(
                f"C24: snapshot {snapshot.snapshot_id} went from {before} to {after} records, beside main were added "
                f"{added}; its counts: {said}"
            )
    return found


def _added(branch: Table) -> Mapping[str, int]:
    """Number of records by which the snapshots of a side branch grew, by the job of their commit."""
    found: Counter[str] = Counter()
    for snapshot in ancestors(branch):
        properties = properties_of(snapshot)
        if JOB_ID in properties:
            for sign, name in ((1, "added-records"), (-1, "deleted-records")):
                found[properties[JOB_ID]] += sign * int(properties.get(name, 0))
    return found


def lost_files(table: Table) -> list[str]:
    """Data files that a snapshot refers to, on whatever branch, now or in the past, and that are gone."""
    return [f"{path} is gone, and a snapshot refers to it" for path in held(table) if not on_disk(path).exists()]
