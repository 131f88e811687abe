"""What main shows at each of its snapshots, as its writers know it: the records appended on that line, in order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tests.nightly.trials.records import Record


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


def _same(line: Line) -> Line:
    return line


@dataclass(frozen=True)
class Effect:
    """What a commit on main does to its line. Without an argument readers see the same afterwards."""

    change: Callable[[Line], Line] = field(default=_same)


def appends(batch: int, records: tuple[Record, ...]) -> Effect:
    """An append of ``records``."""

    def change(line: Line) -> Line:
        return replace(
            line,
            records=(*line.records, *records),
            batches=(*line.batches, batch),
            cut=line.cut - {one.partition for one in records},
        )

    return Effect(change)


def overwrites(batch: int, records: tuple[Record, ...]) -> Effect:
    """A load of ``records`` in place of everything."""
    return Effect(lambda line: replace(line, records=records, batches=(*line.batches, batch), cut=frozenset()))


def deletes(goes: Callable[[Record], bool]) -> Effect:
    """A user's DELETE FROM."""

    def change(line: Line) -> Line:
        cut = {partition for partition, end in line.ends().items() if goes(end)}
        left = tuple(one for one in line.records if not goes(one))
        forgotten = {one for one in left if one.partition in cut and one.value is None}
        return replace(line, records=left, cut=line.cut | cut, forgotten=line.forgotten | forgotten)

    return Effect(change)
