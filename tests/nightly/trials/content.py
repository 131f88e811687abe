"""What readers may see of a line of records (C1 to C9): nothing invented, nothing lost, nothing twice."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tests.nightly.trials.files import Row
from tests.nightly.trials.lines import Line
from tests.nightly.trials.records import Record

_DAY: Final = 86_400_000
Wrong = tuple[str, object]
Requested = Mapping[tuple[int, bytes], int]


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
    places = {one.place for one in line.records}
    for record, times in Counter(row.record for row in seen.main).items():
        if record not in appended:
            what = "a record has changed" if record.place in places else "a record is there that this line never had"
            yield what, record
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
        if row.horizon_ms > now_ms + _DAY:
            return "a tombstone stays for more than a day"
        if row.horizon_ms < now_ms - _DAY:
            return "a tombstone is there a day past its horizon"
    return None
