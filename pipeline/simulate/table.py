"""A model of one topic partition in a table: the records of each segment, and the effect of a plan on them.

Records are identified by offset, which also looks up keys and tombstones. The planner sees real segments.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.compact.latest_per_key import latest_per_key
from pipeline.compact.outcome import NO_HORIZON, Outcome, Parameters, Records, horizons, outcomes
from pipeline.lake.folders import DATA_FOLDER
from pipeline.lake.topic_partition import TopicPartition
from pipeline.plan import Plan
from pipeline.plan.in_place import staying
from pipeline.segments import Segment
from pipeline.segments.segment import LANDED, RUN
from pipeline.sense import Lane
from pipeline.sense.comparing import DueComparison
from pipeline.simulate.arrivals import Flags, Offsets, Stream
from pipeline.simulate.masks import DeleteFile, MaskEffect, Masks

TOPIC_PARTITION = TopicPartition("simulated", 0)


@dataclass(frozen=True)
class PlanEffect:
    """The effect of one plan. ``removed`` and ``added`` are segments."""

    removed: tuple[Segment, ...]
    added: tuple[Segment, ...]
    superseded: int = 0
    tombstones_removed: int = 0
    expired: int = 0
    forgotten: int = 0
    """Keys that have no record any more."""
    needless: tuple[DeleteFile, ...] = ()
    """Delete files that leave with the segments."""


class ModelTable:
    """The live segments of one topic partition, in offset order, and the offsets in each of them."""

    def __init__(self, stream: Stream, leaves_in_place: bool) -> None:
        """``leaves_in_place``: True when segments of the tail that lose nothing are not rewritten."""
        self.segments: tuple[Segment, ...] = ()
        self._stream = stream
        self._leaves_in_place = leaves_in_place
        self._offsets: dict[str, Offsets] = {}
        self._horizons = np.full(len(stream.keys), NO_HORIZON, dtype=np.int64)
        self.masks = Masks(stream)
        self._arrived = 0
        self._coming: list[Segment] = []
        self._commits = 0

    @property
    def arrived(self) -> int:
        """Number of segments that have landed."""
        return self._arrived

    def landed(self, until: int) -> tuple[Segment, ...]:
        """The segments after ``until`` segments have landed, if nothing is cleaned before that."""
        for number in range(self._arrived + len(self._coming), until):
            self._coming.append(landed_segment(self._stream, number))
        return self.segments + tuple(self._coming[: until - self._arrived])

    def land(self, until: int) -> None:
        """Land segments until ``until`` have landed in total."""
        self._commits *= until == self._arrived
        self.segments = self.landed(until)
        self._coming = self._coming[until - self._arrived :]
        self._arrived = until

    def offsets(self, segment: Segment) -> Offsets:
        """The offsets of the records in ``segment``, in order, hidden ones as well."""
        held = self._offsets.get(segment.path)
        return np.arange(segment.base_offset, segment.last_offset + 1) if held is None else held

    def visible(self, segment: Segment) -> Offsets:
        """The offsets of those that a reader sees."""
        offsets = self.offsets(segment)
        return offsets[~self.masks.hidden[offsets]] if segment.hidden else offsets

    def mask(self, work: DueComparison, most_files: int) -> MaskEffect:
        """Hide what the comparison ``work`` finds superseded; ``most_files`` as in ``Masks.hide``."""
        self._commits += 1
        self.segments, effect = self.masks.hide(self.segments, work, self._number, most_files)
        return effect

    @property
    def _end(self) -> int:
        """Number of records that have landed."""
        return self.arrived * self._stream.workload.records_per_segment

    @property
    def _number(self) -> int:
        """The sequence number of the newest commit: past that of the last landed segment."""
        return sequence_number(self.arrived - 1) + self._commits

    def apply(self, plan: Plan) -> PlanEffect:
        """Apply ``plan`` at its clock: replace its inputs with its output."""
        taken = {segment.path for segment in plan.inputs}
        inputs = [segment for segment in self.segments if segment.path in taken]
        self._commits += 1
        match plan.lane:
            case Lane.RETAIN:
                offsets = self._all(inputs)
                newest = ~np.isin(offsets, self._stream.previous[: self._end])
                change = PlanEffect(tuple(inputs), (), expired=len(offsets), forgotten=int(np.count_nonzero(newest)))
            case Lane.MERGE:
                assert plan.inputs_per_segment
                groups = _groups(inputs, plan.inputs_per_segment)
                visible = (self._all(group) for group in groups)
                change = PlanEffect(tuple(inputs), tuple(self._written(plan, own) for own in visible if len(own)))
            case _:
                change = self._cleaned(plan, inputs)
        gone = {segment.path for segment in change.removed}
        self.masks.replaced(map(self.offsets, change.removed), map(self.offsets, change.added))
        left = [segment for segment in self.segments if segment.path not in gone]
        self.segments = tuple(sorted((*left, *change.added), key=lambda segment: segment.order))
        for path in gone:
            self._offsets.pop(path, None)
        return replace(change, needless=self.masks.drop_needless(self.segments))

    def _cleaned(self, plan: Plan, inputs: Sequence[Segment]) -> PlanEffect:
        """Apply a cleaning: one record per key (C2), tombstones in their two stages (C7 to C9)."""
        offsets = self._all(inputs)
        records, parameters = self._records(offsets), Parameters.of(plan)
        decided, stamps = outcomes(records, parameters), horizons(records, parameters)
        kept = decided == Outcome.KEPT
        changed = ~kept | (stamps != records.horizon)
        self._horizons[offsets] = stamps
        places = list(_places(inputs, kept))
        stay = frozenset[str]()
        if self._leaves_in_place:
            stay = staying(plan, {place.segment.path for place in places if changed[place.start : place.end].any()})
        rewritten = [place.segment.path not in stay for place in places]
        removed: list[Segment] = []
        added: list[Segment] = []
        for group in _packed(places, rewritten, plan.segment_bytes):
            removed += (place.segment for place in group)
            within = slice(group[0].start, group[-1].end)
            held = offsets[within][kept[within]]
            added += [self._written(plan, held)] if len(held) else []
        tombstones_removed = int(np.count_nonzero(decided == Outcome.TOMBSTONE_REMOVED))
        return PlanEffect(
            tuple(removed),
            tuple(added),
            superseded=int(np.count_nonzero(decided == Outcome.SUPERSEDED)),
            tombstones_removed=tombstones_removed,
            forgotten=tombstones_removed,
        )

    def _records(self, offsets: Offsets) -> Records:
        """The records at ``offsets`` in the form that the rules take; none lands with a stamp, so any level will do."""
        newest, has_older = latest_per_key(self._stream.keys[offsets], offsets)
        return Records(
            offset=offsets,
            keyless=np.zeros(len(offsets), dtype=np.bool_),
            newest=newest,
            has_older=has_older,
            tombstone=self._stream.tombstones[offsets],
            horizon=self._horizons[offsets],
            level=RUN,
        )

    def _all(self, segments: Sequence[Segment]) -> Offsets:
        return np.concatenate([self.visible(segment) for segment in segments])

    def _written(self, plan: Plan, offsets: Offsets) -> Segment:
        """A segment written by ``plan``, with the facts that its metadata would have."""
        stream, base = self._stream, int(offsets[0])
        # Firn's own files lie in their job's folder.
        path = f"simulated/{DATA_FOLDER}/{plan.id}/{base}"
        self._offsets[path] = offsets
        tombstones = int(np.count_nonzero(stream.tombstones[offsets]))
        horizons = self._horizons[offsets] if tombstones else offsets[:0]
        stamped = horizons[horizons != NO_HORIZON]
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
            sequence_number=self._number,
            row_deletes=0,
            committed_ms=plan.now_ms,
            by_firn=True,
            whole=plan.waiting_segments == 0,
            keys=len(offsets) if plan.level_out >= RUN else None,
            stamped=len(stamped),
            first_horizon_ms=int(stamped.min()) if len(stamped) else None,
            last_horizon_ms=int(stamped.max()) if len(stamped) else None,
        )


@dataclass(frozen=True)
class _Place:
    """An input, the range of its records among the plan's (end exclusive), and the number of them that stay."""

    segment: Segment
    start: int
    end: int
    kept: int

    @property
    def bytes(self) -> float:
        """Approximate number of bytes written for the input."""
        return self.segment.bytes * self.kept / max(1, self.segment.records)


def _visible(segment: Segment) -> int:
    return segment.records - (segment.hidden or 0)


def _places(inputs: Sequence[Segment], kept: Flags) -> Iterator[_Place]:
    end = 0
    for segment in inputs:
        start, end = end, end + _visible(segment)
        yield _Place(segment, start, end, int(np.count_nonzero(kept[start:end])))


def _packed(places: Sequence[_Place], rewritten: Sequence[bool], size: int) -> Iterator[list[_Place]]:
    """Neighbours that become one segment: up to ``size`` bytes of remaining records, never across one left in place.

    The packing is that of ``pipeline.compact.layout``: a segment is closed before the next is opened.
    """
    group: list[_Place] = []
    filled = 0.0
    for place, is_rewritten in zip(places, rewritten, strict=True):
        if group and (not is_rewritten or filled + place.bytes > size):
            yield group
            group, filled = [], 0.0
        if is_rewritten:
            group.append(place)
            filled += place.bytes
    if group:
        yield group


def _groups(inputs: Sequence[Segment], size: int) -> Iterator[Sequence[Segment]]:
    for start in range(0, len(inputs), size):
        yield inputs[start : start + size]


def sequence_number(number: int) -> int:
    """The sequence number of the ``number``-th append: all commits until the next one have numbers of their own."""
    return (number + 1) << 20


def landed_segment(stream: Stream, number: int) -> Segment:
    """The ``number``-th segment to land, with the facts that its metadata would have."""
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
        sequence_number=sequence_number(number),
        row_deletes=0,
        committed_ms=int(stream.landed_ms[number]),
    )
