"""What the table has to hold whatever happens: all that was landed, less what the rules let go (C1 to C5, C24)."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from pyiceberg.table import Table

from pipeline.history.ancestors import ancestors
from pipeline.history.record_counts import RecordCounts
from tests.support.topics import Record

Place = tuple[int, int]
"""Partition and offset."""
Key = tuple[int, bytes]
"""A key in two partitions is two keys."""
View = Mapping[Key, tuple[int, bool]]
"""What a reader sees of each key: its newest offset, and whether that is a tombstone."""


@dataclass
class Model:
    """Everything that was landed in one table, and what a foreign DELETE took out of it."""

    landed: dict[Place, Record] = field(default_factory=dict)
    deleted: set[Place] = field(default_factory=set)

    def land(self, records: Iterable[Record]) -> None:
        self.landed |= {(record.partition, record.offset): record for record in records}

    def delete(self, key: bytes) -> None:
        """A user deletes all that there is of a key by now."""
        self.deleted |= {place for place, record in self.landed.items() if record.key == key}

    def newest(self) -> dict[Key, Record]:
        """The newest record of each key, but for what was deleted."""
        left = sorted((place, record) for place, record in self.landed.items() if place not in self.deleted)
        return {(record.partition, record.key): record for _, record in left if record.key is not None}

    def violations(self, seen: Iterable[Record], quarantined: Iterable[Place]) -> list[str]:
        """What is wrong with what a reader sees now."""
        found = []
        seen = list(seen)
        visible = {(record.partition, record.offset): record for record in seen}
        for record in seen:
            place = record.partition, record.offset
            if self.landed.get(place) != record:
                found.append(f"C1: {place} is {record}, landed was {self.landed.get(place)}")
            if place in self.deleted:
                found.append(f"{place} was deleted and is back")
        twice = [place for place, count in Counter((one.partition, one.offset) for one in seen).items() if count > 1]
        found += [f"{place} is seen twice" for place in twice]
        for key, record in self.newest().items():
            place = record.partition, record.offset
            if place not in visible and record.value is not None:
                found.append(f"C3: the newest record of {key}, {place}, is gone")
        for partition in {partition for partition, _ in self.landed}:
            end = max(place for place in self.landed if place[0] == partition)
            if end not in visible and end not in self.deleted:
                found.append(f"C4: the log end {end} is gone")
        kept = set(quarantined)
        for place, record in self.landed.items():
            if record.key is None and place not in visible and place not in kept and place not in self.deleted:
                found.append(f"C5: {place} without a key is neither in the table nor in quarantine")
        return found

    def unsettled(self, seen: Iterable[Record], quarantined: Iterable[Place]) -> list[str]:
        """What is wrong when everything has been cleaned and nothing is under way."""
        newest = {(record.partition, record.offset) for record in self.newest().values()}
        ends = {max(place for place in self.landed if place[0] == partition) for partition, _ in self.landed}
        visible = {(record.partition, record.offset) for record in seen}
        found = [f"C16: {place} is superseded and still there" for place in sorted(visible - newest - ends)]
        held = Counter(quarantined)
        found += [f"C5: {place} is in quarantine {count} times" for place, count in held.items() if count > 1]
        found += [f"C5: {place} is in quarantine and in the table" for place in sorted(visible & set(held))]
        return found


def view(seen: Iterable[Record]) -> View:
    """What a reader sees of each key."""
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
        """What a reader must not see; values that were ``deleted`` may go."""
        return [
            f"{step.key} was at offset {step.before} and is {'gone' if step.after is None else f'at {step.after}'}"
            for step in self.backwards
            if (step.key[0], step.before) not in deleted
        ]


def unbalanced(table: Table) -> list[str]:
    """Publications whose record counts don't say what their snapshot did to the number of records (C24)."""
    found = []
    for snapshot, parent in pairwise(ancestors(table)):
        if parent.summary is None or snapshot.summary is None:
            continue
        said = snapshot.summary.additional_properties
        if "firn.records-in" not in said:
            continue
        counts = RecordCounts.of_summary(said)
        lost = counts.records_in - counts.records_out
        before, after = (int(one["total-records"] or 0) for one in (parent.summary, snapshot.summary))
        if after - before != counts.restored - lost:
            found.append(
                f"C24: snapshot {snapshot.snapshot_id} went from {before} to {after} records; its counts: {said}"
            )
    return found
