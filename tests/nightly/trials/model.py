"""What main shows at each of its snapshots, as its writers know it, and what readers may see of that (C1 to C9):
nothing invented, nothing lost, nothing twice.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tests.nightly.trials.files import Row
from tests.support.records import DAY, Record

Wrong = tuple[str, object]
Requested = Mapping[tuple[int, bytes], int]
"""The offset below which records of a key of a partition are to be erased."""


@dataclass(frozen=True)
class Line:
    """The content of main at one snapshot."""

    records: tuple[Record, ...] = ()
    """Everything appended since the line began, less what users deleted."""
    batches: tuple[int, ...] = ()
    """The appends in their order, each of which may be there once."""
    cut: frozenset[int] = frozenset()
    """Partitions whose newest records a user has deleted: what the end of their log is nobody promises."""
    forgotten: frozenset[Record] = frozenset()
    """Tombstones of partitions whose newest records a user had deleted: once Firn has removed them from main, nobody
    promises to keep them."""

    def ends(self) -> Mapping[int, Record]:
        """The record with the highest offset of each partition."""
        ends = {one.partition: one for one in sorted(self.records, key=lambda one: one.offset)}
        return {partition: one for partition, one in ends.items() if partition not in self.cut}

    def newest(self) -> Mapping[tuple[int, bytes], Record]:
        """The newest record of each key of a partition, by offset."""
        in_order = sorted(self.records, key=lambda one: one.offset)
        return {(one.partition, one.key): one for one in in_order if one.key is not None}


EMPTY: Final = Line()


Effect = Callable[[Line], Line]
"""What a commit on main does to its line."""


def nothing(line: Line) -> Line:
    """Readers see the same afterwards."""
    return line


def appends(batch: int, records: tuple[Record, ...]) -> Effect:
    """An append of ``records``."""

    def change(line: Line) -> Line:
        return replace(
            line,
            records=(*line.records, *records),
            batches=(*line.batches, batch),
            cut=line.cut - {one.partition for one in records},
        )

    return change


def overwrites(batch: int, records: tuple[Record, ...]) -> Effect:
    """A load of ``records`` in place of everything."""
    return lambda line: replace(line, records=records, batches=(*line.batches, batch), cut=frozenset())


def deletes(goes: Callable[[Record], bool]) -> Effect:
    """A user's DELETE FROM."""

    def change(line: Line) -> Line:
        cut = {partition for partition, end in line.ends().items() if goes(end)}
        left = tuple(one for one in line.records if not goes(one))
        forgotten = {one for one in left if one.partition in cut and one.value is None}
        return replace(line, records=left, cut=line.cut | cut, forgotten=line.forgotten | forgotten)

    return change


class Branches(NamedTuple):
    """The rows on main and on Firn's side branches."""

    main: Sequence[Row]
    quarantine: Sequence[Row]
    removed_tombstones: Sequence[Row]


def wrong(line: Line, seen: Branches, requested: Requested) -> Iterator[Wrong]:
    """What readers see and must not, or do not see and must."""
    visible = {row.record for row in seen.main}
    removed = {row.record for row in seen.removed_tombstones}
    yield from _invented(line, seen)
    ends = line.ends().values()
    yield from (("the end of a log is gone", end) for end in ends if end not in visible)
    yield from _lost(line, visible, removed, requested)
    # A record that comes there again is listed once, so its number of copies on the branch does not matter.
    kept = {row.record for row in seen.quarantine}
    yield from (
        ("a record without a key is neither in the table nor in quarantine", one)
        for one in line.records
        if one.key is None and one not in visible and one not in kept
    )


def _invented(line: Line, seen: Branches) -> Iterator[Wrong]:
    appended = Counter(line.records)
    places = {(one.partition, one.offset) for one in line.records}
    for record, times in Counter(row.record for row in seen.main).items():
        if record not in appended:
            known = (record.partition, record.offset) in places
            yield "a record has changed" if known else "a record is there that this line never had", record
        elif times > appended[record]:
            yield "a record is seen twice", record


def _lost(line: Line, visible: set[Record], removed: set[Record], requested: Requested) -> Iterator[Wrong]:
    for key, record in line.newest().items():
        known = record in visible or record in removed or record in line.forgotten
        if not known and record.offset >= requested.get(key, 0):
            tombstone = record.value is None
            yield "a tombstone is gone and not kept" if tombstone else "the newest record of a key is gone", record


def unsettled(line: Line, seen: Branches, requested: Requested, now_ms: int) -> Iterator[Wrong]:
    """Files that are left although everything was cleaned and nothing is under way."""
    newest = set(line.newest().values())
    highest = {row.record.partition: row.record for row in sorted(seen.main, key=lambda row: row.record.offset)}
    ends = {*line.ends().values(), *highest.values()}
    for record, times in Counter(row.record for row in seen.main).items():
        if times > 1:
            yield "a record that was sent again is there twice", record
    for row in seen.main:
        if row.record not in ends and (what := _should_be_gone(row, newest, requested, now_ms)):
            yield what, row.record


def _should_be_gone(row: Row, newest: set[Record], requested: Requested, now_ms: int) -> str | None:
    """Why the row is one too many; None when it is not."""
    record = row.record
    if record.key is None:
        return "a record without a key is still there"
    if record.offset < requested.get((record.partition, record.key), 0):
        return "a record that is to be erased is still there"
    if record not in newest:
        return "a superseded record is still there"
    if record.value is None and row.horizon_ms is not None:
        if row.horizon_ms > now_ms + DAY:
            return "a tombstone stays for more than a day"
        if row.horizon_ms < now_ms - DAY:
            return "a tombstone is there a day past its horizon"
    return None
