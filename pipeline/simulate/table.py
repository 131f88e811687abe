"""A model of one topic partition in a table: which records each segment holds, and what a plan makes of them.

Records are known by their offset, and keys and tombstones are looked up by it. What the planner sees are real segments.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.lake.folders import DATA_FOLDER
from pipeline.plan import Plan
from pipeline.plan.staying import staying
from pipeline.segments import Segment, TopicPartition
from pipeline.segments.segment import LANDED, RUN
from pipeline.sense import Lane
from pipeline.simulate.arrivals import Flags, Offsets, Stream

TOPIC_PARTITION = TopicPartition("simulated", 0)
_NO_HORIZON = -1


@dataclass(frozen=True)
class Change:
    """What applying one plan did. ``removed`` and ``added`` are the segments that went and came."""

    removed: tuple[Segment, ...]
    added: tuple[Segment, ...]
    superseded: int = 0
    tombstones_removed: int = 0
    expired: int = 0


class ModelTable:
    """The live segments of one topic partition, in offset order, and the offsets that each of them holds."""

    def __init__(self, stream: Stream, leaves_in_place: bool) -> None:
        """``leaves_in_place``: whether segments of the tail that lose nothing are not written again."""
        self.segments: tuple[Segment, ...] = ()
        self._stream = stream
        self._leaves_in_place = leaves_in_place
        self._offsets: dict[str, Offsets] = {}
        self._horizons = np.full(len(stream.keys), _NO_HORIZON, dtype=np.int64)
        self._arrived = 0
        self._coming: list[Segment] = []
        self._commits = 0

    @property
    def arrived(self) -> int:
        """How many segments have landed."""
        return self._arrived

    def landed(self, until: int) -> tuple[Segment, ...]:
        """The segments as they are once ``until`` segments have landed, if nothing is cleaned before that."""
        for number in range(self._arrived + len(self._coming), until):
            self._coming.append(landed_segment(self._stream, number))
        return self.segments + tuple(self._coming[: until - self._arrived])

    def land(self, until: int) -> None:
        """Let segments land until there were ``until`` in all."""
        self.segments = self.landed(until)
        self._coming = self._coming[until - self._arrived :]
        self._arrived = until

    def offsets(self, segment: Segment) -> Offsets:
        """The offsets of the records in ``segment``, in order."""
        held = self._offsets.get(segment.path)
        return np.arange(segment.base_offset, segment.last_offset + 1) if held is None else held

    def apply(self, plan: Plan) -> Change:
        """Do what ``plan`` says, at its clock: the plan's inputs go, what it makes of them comes."""
        taken = {segment.path for segment in plan.inputs}
        inputs = [segment for segment in self.segments if segment.path in taken]
        self._commits += 1
        match plan.lane:
            case Lane.RETAIN:
                change = Change(tuple(inputs), (), expired=sum(segment.records for segment in inputs))
            case Lane.MERGE:
                assert plan.inputs_per_segment
                groups = _groups(inputs, plan.inputs_per_segment)
                change = Change(tuple(inputs), tuple(self._written(plan, self._all(group)) for group in groups))
            case _:
                change = self._cleaned(plan, inputs)
        gone = {segment.path for segment in change.removed}
        left = [segment for segment in self.segments if segment.path not in gone]
        self.segments = tuple(sorted((*left, *change.added), key=lambda segment: segment.order))
        for path in gone:
            self._offsets.pop(path, None)
        return change

    def _cleaned(self, plan: Plan, inputs: Sequence[Segment]) -> Change:
        """One record per key (C2), tombstones in their two stages (C7 to C9)."""
        offsets = self._all(inputs)
        ends = np.cumsum([segment.records for segment in inputs])
        fate = self._fate(plan, offsets)
        changed = ~fate.kept | (fate.horizons != self._horizons[offsets])
        self._horizons[offsets] = fate.horizons
        places = [
            _Place(segment, int(end) - segment.records, int(end)) for segment, end in zip(inputs, ends, strict=True)
        ]
        stay = frozenset[str]()
        if self._leaves_in_place:
            stay = staying(plan, {place.segment.path for place in places if changed[place.start : place.end].any()})
        rewritten = [place.segment.path not in stay for place in places]
        removed: list[Segment] = []
        added: list[Segment] = []
        for group in _packed(places, rewritten, plan.segment_bytes):
            removed += (place.segment for place in group)
            within = slice(group[0].start, group[-1].end)
            held = offsets[within][fate.kept[within]]
            added += [self._written(plan, held)] if len(held) else []
        return Change(
            tuple(removed),
            tuple(added),
            superseded=int(np.count_nonzero(fate.superseded)),
            tombstones_removed=int(np.count_nonzero(~fate.kept & ~fate.superseded)),
        )

    def _fate(self, plan: Plan, offsets: Offsets) -> "_Fate":
        keys = self._stream.keys[offsets]
        # Of several values for one index numpy keeps the last: the newest forwards, the oldest backwards.
        newest, oldest = self._stream.scratch
        newest[keys] = offsets
        oldest[keys[::-1]] = offsets[::-1]
        superseded = newest[keys] != offsets
        horizons = self._horizons[offsets]
        is_tombstone = self._stream.tombstones[offsets] & ~superseded
        if not is_tombstone.any():
            return _Fate(~superseded, superseded, horizons)
        supersedes = oldest[keys] < offsets
        is_clean = offsets < (len(self._stream.keys) if plan.clean_below is None else plan.clean_below)
        is_stamped = horizons != _NO_HORIZON
        may_go = is_stamped & (horizons <= plan.now_ms) & is_clean & (offsets != plan.log_end_offset) & ~supersedes
        kept = ~superseded & ~(is_tombstone & may_go)
        stamp = np.where(is_clean, plan.now_ms + plan.delete_retention_ms, _NO_HORIZON)
        stamp = np.where(is_stamped & ~supersedes, horizons, stamp)
        return _Fate(kept, superseded, np.where(is_tombstone, stamp, _NO_HORIZON))

    def _all(self, segments: Sequence[Segment]) -> Offsets:
        return np.concatenate([self.offsets(segment) for segment in segments])

    def _written(self, plan: Plan, offsets: Offsets) -> Segment:
        """A segment that ``plan`` writes, with the facts that its metadata would tell."""
        stream, base = self._stream, int(offsets[0])
        # As Firn's own files lie in the folder of their job.
        path = f"simulated/{DATA_FOLDER}/{plan.id}/{base}"
        self._offsets[path] = offsets
        tombstones = int(np.count_nonzero(stream.tombstones[offsets]))
        horizons = self._horizons[offsets] if tombstones else offsets[:0]
        stamped = horizons[horizons != _NO_HORIZON]
        return Segment(
            path=path,
            topic_partition=TOPIC_PARTITION,
            level=plan.level_out,
            base_offset=base,
            last_offset=int(offsets[-1]),
            records=len(offsets),
            bytes=stream.bytes_of(len(offsets), tombstones),
            tombstones=tombstones,
            null_keys=0,
            oldest_ms=stream.record_at_ms(base),
            newest_ms=stream.record_at_ms(int(offsets[-1])),
            sequence_number=self._commits,
            row_deletes=0,
            committed_ms=plan.now_ms,
            by_firn=True,
            whole=plan.left_out == 0,
            keys=len(offsets) if plan.level_out >= RUN else None,
            stamped=len(stamped),
            first_horizon_ms=int(stamped.min()) if len(stamped) else None,
            last_horizon_ms=int(stamped.max()) if len(stamped) else None,
        )


@dataclass(frozen=True)
class _Fate:
    """By place among a plan's records: which are in the result, which a newer one supersedes, and the new horizons."""

    kept: Flags
    superseded: Flags
    horizons: Offsets


@dataclass(frozen=True)
class _Place:
    """An input, and from where to where (exclusive) its records are among the plan's."""

    segment: Segment
    start: int
    end: int


def _packed(places: Sequence[_Place], rewritten: Sequence[bool], size: int) -> Iterator[list[_Place]]:
    """Neighbours that become one segment: up to ``size`` bytes of inputs, none of them past one that stays.

    As ``pipeline.compact.layout`` has Iceberg pack them: a bin is closed before the next is opened.
    """
    group: list[_Place] = []
    left = size
    for place, is_rewritten in zip(places, rewritten, strict=True):
        if group and (not is_rewritten or place.segment.bytes > left):
            yield group
            group, left = [], size
        if is_rewritten:
            group.append(place)
            left -= place.segment.bytes
    if group:
        yield group


def _groups(inputs: Sequence[Segment], size: int) -> Iterator[Sequence[Segment]]:
    for start in range(0, len(inputs), size):
        yield inputs[start : start + size]


def landed_segment(stream: Stream, number: int) -> Segment:
    """The ``number``-th segment that lands, as its metadata would tell."""
    records = stream.workload.records_per_segment
    base, end = number * records, (number + 1) * records
    return Segment(
        path=f"landed-{number:08}",
        topic_partition=TOPIC_PARTITION,
        level=LANDED,
        base_offset=base,
        last_offset=end - 1,
        records=records,
        bytes=int(stream.bytes_before[end] - stream.bytes_before[base]),
        tombstones=int(stream.tombstones_before[end] - stream.tombstones_before[base]),
        null_keys=0,
        oldest_ms=stream.record_at_ms(base),
        newest_ms=stream.record_at_ms(end - 1),
        sequence_number=0,
        row_deletes=0,
        committed_ms=int(stream.landed_ms[number]),
    )
