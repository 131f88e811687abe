"""What the table has to hold whatever happens: all that was landed, less what the rules let go (C1 to C5, C24)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.table import Table

from pipeline.stage import Accounting
from tests.spark.topics import Record

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


def went_back(views: Iterable[View], deleted: set[Place]) -> list[str]:
    """Where a reader that looked again and again saw a key go back to an older value, vanish, or come back."""
    found = []
    last: dict[Key, tuple[int, bool]] = {}
    gone: dict[Key, int] = {}
    for seen in views:
        for key, (offset, tombstone) in last.items():
            if key not in seen and not tombstone and (key[0], offset) not in deleted:
                found.append(f"{key} was at {offset} and is gone")
            if key not in seen:
                gone[key] = offset
        for key, (offset, _) in seen.items():
            before = max(last.get(key, (-1, False))[0], gone.get(key, -1))
            if offset < before:
                found.append(f"{key} was at {before} and is back at {offset}")
            if key not in last and gone.get(key) == offset:
                found.append(f"{key} was gone and is back at {offset}")
        last = dict(seen)
    return found


def unbalanced(table: Table) -> list[str]:
    """Publications whose books don't say what their snapshot did to the number of records (C24)."""
    found = []
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    for snapshot in table.metadata.snapshots:
        parent = by_id.get(snapshot.parent_snapshot_id or 0)
        if parent is None or parent.summary is None or snapshot.summary is None:
            continue
        said = snapshot.summary.additional_properties
        if "firn.records-in" not in said:
            continue
        books = Accounting.of_summary(said)
        lost = books.records_in - books.records_out
        before, after = (int(one["total-records"] or 0) for one in (parent.summary, snapshot.summary))
        if after - before != books.restored - lost:
            found.append(
                f"C24: snapshot {snapshot.snapshot_id} went from {before} to {after} records; its books: {said}"
            )
    return found
