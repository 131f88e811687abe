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
    restart: int = 0
    """Place in ``records`` at which the topic was made again; 0: it was not."""
    cut: frozenset[int] = frozenset()
    """Partitions whose newest records a user has deleted: what the end of their log is nobody promises."""
    forgotten: frozenset[Record] = frozenset()
    """Tombstones of partitions whose newest records a user had deleted: once Firn has removed them from main, nobody
    promises to keep them."""
    progress: Mapping[str, str] = field(default_factory=dict)
    """What each writer committed last, by writer."""

    def ends(self) -> Mapping[int, Record]:
        """The record with the highest offset of each partition, of the topic as it is now."""
        ends = {one.partition: one for one in sorted(self.records[self.restart :], key=lambda one: one.offset)}
        return {partition: one for partition, one in ends.items() if partition not in self.cut}

    def newest(self, since: int = 0) -> Mapping[tuple[int, bytes], Record]:
        """The newest record of each key of a partition, by offset, among ``records`` from that place on."""
        keyed = (one for one in sorted(self.records[since:], key=lambda one: one.offset))
        return {(one.partition, one.key): one for one in keyed if one.key is not None}


EMPTY: Final = Line()


def _same(line: Line) -> Line:
    return line


@dataclass(frozen=True)
class Effect:
    """What a commit on main does to its line. Without an argument readers see the same afterwards."""

    change: Callable[[Line], Line] = field(default=_same)


def appends(batch: int, records: tuple[Record, ...], progress: Mapping[str, str] | None = None) -> Effect:
    """An append of ``records``, by a writer that says how far it has come."""

    def change(line: Line) -> Line:
        return replace(
            line,
            records=(*line.records, *records),
            batches=(*line.batches, batch),
            cut=line.cut - {one.partition for one in records},
            progress={**line.progress, **(progress or {})},
        )

    return Effect(change)


def restarts(batch: int, records: tuple[Record, ...]) -> Effect:
    """The first append of a topic that was deleted and made again."""
    return Effect(lambda line: replace(appends(batch, records).change(line), restart=len(line.records)))


def overwrites(batch: int, records: tuple[Record, ...]) -> Effect:
    """A load of ``records`` in place of everything."""
    return Effect(
        lambda line: replace(line, records=records, batches=(*line.batches, batch), restart=0, cut=frozenset())
    )


def deletes(goes: Callable[[Record], bool]) -> Effect:
    """A user's DELETE FROM."""

    def change(line: Line) -> Line:
        cut = {partition for partition, end in line.ends().items() if goes(end)}
        left = tuple(one for one in line.records if not goes(one))
        forgotten = {one for one in left if one.partition in cut and one.value is None}
        return replace(line, records=left, restart=0, cut=line.cut | cut, forgotten=line.forgotten | forgotten)

    return Effect(change)
