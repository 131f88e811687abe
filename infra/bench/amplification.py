"""Write and space amplification of a policy: the real planner on a virtual clock, over synthetic arrivals.

`due` and `plan_partition` decide, and compaction's own rules say what becomes of a record. Only files are a model:
which offsets are in which segment. The planner looks every minute. All work takes no time, and a lane runs at most one
plan per look, in the order of a run.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

import numpy as np

from firnlake.compact.keep_or_drop import NO_HORIZON, Outcome, Parameters, Records, horizons, outcomes
from firnlake.compact.keys import latest_per_key
from firnlake.iceberg.files import OWN_FOLDER
from firnlake.job.job import staying
from firnlake.job.lane import BEFORE_FULL, Lane
from firnlake.job.plan import Plan
from firnlake.lanes.due import due
from firnlake.plan.make import plan_partition
from firnlake.table.partition import PartitionState
from firnlake.table.policies import PREFIX, Policies
from firnlake.table.policy import Policy
from firnlake.table.segment import LANDED, RUN, Segment, Segments
from firnlake.table.topic_partition import TopicPartition
from infra.bench.arrivals import START_MS, Arrivals, Flags, Offsets, uniform
from infra.bench.inputs import Bench
from infra.bench.measure import Figures, in_turns
from infra.bench.results import Case

EVERY_MS = 60_000
TOPIC_PARTITION = TopicPartition("simulated", 0)


class Model:
    """The segments of one topic partition, in offset order, and the offsets in each of them."""

    def __init__(self, arrivals: Arrivals, policy: Policy, *, leaves_in_place: bool = True) -> None:
        """`leaves_in_place`: segments of the tail that lose nothing are not rewritten. Kafka rewrites whole logs."""
        self.segments: tuple[Segment, ...] = ()
        self.landed = 0
        """Number of records that have landed."""
        self.written_bytes = 0
        self.plans: Counter[Lane] = Counter()
        self._arrivals, self._policy, self._leaves_in_place = arrivals, policy, leaves_in_place
        self._commits = 0
        """The sequence number of the newest commit."""
        self._offsets: dict[str, Offsets] = {}
        self._horizons = np.full(len(arrivals.keys), NO_HORIZON, dtype=np.int64)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(segment.bytes for segment in self.segments)

    def offsets(self, segment: Segment) -> Offsets:
        """The offsets of its records, in order."""
        return self._offsets[segment.path]

    def is_due(self, now_ms: int) -> bool:
        """True when a lane has work at that time, on what has landed."""
        state = self._state(now_ms)
        return any(due(lane, state) for lane in Lane)

    def look(self, now_ms: int) -> None:
        """Land what has come; then every lane in the order of a run, on what the lane before has left."""
        self.land(now_ms)
        for lane in Lane:
            state = self._state(now_ms)
            if plan := self._plan(lane, state):
                self._apply(plan)
                self.plans[lane] += 1

    def land(self, now_ms: int) -> None:
        """Land the segments whose time has come."""
        (end,) = self._arrivals.landed(np.array([now_ms])).tolist()
        size = self._arrivals.per_segment
        landed = []
        for base in range(self.landed, end, size):
            self._commits += 1
            at_ms = self._arrivals.record_at_ms(base + size - 1)
            landed.append(self._segment(f"landed-{base // size:08}", LANDED, np.arange(base, base + size), at_ms))
        self.segments += tuple(landed)
        self.landed = end

    def _plan(self, lane: Lane, state: PartitionState) -> Plan | None:
        """The plan of a run of all lanes."""
        segments = Segments("t", "t", 1, {TOPIC_PARTITION: self.segments})
        plan = plan_partition(lane, segments, state)
        full = plan_partition(Lane.FULL, segments, state) if plan and lane in BEFORE_FULL else None
        return None if plan and full and full.takes(plan) else plan

    def _state(self, now_ms: int) -> PartitionState:
        return PartitionState(TOPIC_PARTITION, self.segments, self._policy, now_ms)

    def _apply(self, plan: Plan) -> None:
        """Replace the inputs of `plan` with its output."""
        paths = {segment.path for segment in plan.inputs}
        inputs = [segment for segment in self.segments if segment.path in paths]
        self._commits += 1
        match plan.lane:
            case Lane.MERGE:
                assert plan.inputs_per_segment
                starts = range(0, len(inputs), plan.inputs_per_segment)
                groups = [self._seen(*inputs[start : start + plan.inputs_per_segment]) for start in starts]
                removed, added = inputs, [self._written(plan, offsets) for offsets in groups if len(offsets)]
            case _:
                removed, added = self._cleaned(plan, inputs)
        for segment in removed:
            del self._offsets[segment.path]
        self.written_bytes += sum(segment.bytes for segment in added)
        gone = {segment.path for segment in removed}
        left = [segment for segment in self.segments if segment.path not in gone]
        self.segments = tuple(sorted((*left, *added), key=lambda segment: segment.order))

    def _cleaned(self, plan: Plan, inputs: Sequence[Segment]) -> tuple[list[Segment], list[Segment]]:
        """What a cleaning removes and adds: one record per key (C2), tombstones in their two stages (C7 to C9)."""
        offsets = self._seen(*inputs)
        newest, has_older = latest_per_key(self._arrivals.keys[offsets], offsets)
        # None lands with a stamp, so any level will do.
        keyless = np.zeros(len(offsets), dtype=np.bool_)
        tombstone, horizon = self._arrivals.tombstones[offsets], self._horizons[offsets]
        records = Records(offsets, keyless, newest, has_older, tombstone, horizon, level=RUN)
        parameters = Parameters.of(plan)
        kept = outcomes(records, parameters) == Outcome.KEPT
        self._horizons[offsets] = horizons(records, parameters)
        changed = ~kept | (self._horizons[offsets] != horizon)
        ends = np.cumsum([segment.records for segment in inputs]).tolist()
        spans = list(zip(inputs, [0, *ends[:-1]], ends, strict=True))
        stay = frozenset[str]()
        if self._leaves_in_place:
            stay = staying(plan, {segment.path for segment, start, end in spans if changed[start:end].any()})
        removed: list[Segment] = []
        added: list[Segment] = []
        for group in _packed(spans, kept, stay, plan.segment_bytes):
            removed += (segment for segment, _, _ in group)
            within = slice(group[0][1], group[-1][2])
            held = offsets[within][kept[within]]
            added += [self._written(plan, held)] if len(held) else []
        return removed, added

    def _seen(self, *segments: Segment) -> Offsets:
        """The offsets that a reader of `segments` sees, in order."""
        return np.concatenate([self._offsets[segment.path] for segment in segments])

    def _written(self, plan: Plan, offsets: Offsets) -> Segment:
        """A segment written by `plan`. Firn's own files lie in their job's folder."""
        path = f"simulated/{OWN_FOLDER}/{UUID(int=0)}/{plan.id}/{offsets[0]}"
        stamped = self._horizons[offsets][self._horizons[offsets] != NO_HORIZON]
        return replace(
            self._segment(path, plan.level_out, offsets, plan.now_ms),
            by_firn=True,
            whole=plan.waiting_segments == 0,
            keys=len(offsets) if plan.level_out >= RUN else None,
            stamped=len(stamped),
            first_horizon_ms=int(stamped.min()) if len(stamped) else None,
            last_horizon_ms=int(stamped.max()) if len(stamped) else None,
        )

    def _segment(self, path: str, level: int, offsets: Offsets, committed_ms: int) -> Segment:
        """A segment with the facts that its metadata would have."""
        self._offsets[path] = offsets
        base, last, size = int(offsets[0]), int(offsets[-1]), int(self._arrivals.bytes[offsets].sum())
        return Segment(
            path=path,
            topic_partition=TOPIC_PARTITION,
            level=level,
            base_offset=base,
            last_offset=last,
            records=len(offsets),
            bytes=size,
            data_bytes=size,
            tombstones=int(np.count_nonzero(self._arrivals.tombstones[offsets])),
            null_keys=0,
            oldest_ms=self._arrivals.record_at_ms(base),
            newest_ms=self._arrivals.record_at_ms(last),
            sequence_number=self._commits,
            row_deletes=0,
            committed_ms=committed_ms,
        )


Span = tuple[Segment, int, int]
"""An input, and the range of its records among the plan's (end exclusive)."""


def _packed(spans: Sequence[Span], kept: Flags, stay: frozenset[str], size: int) -> Iterator[list[Span]]:
    """Neighbours that become one segment: up to `size` bytes of remaining records, never across one left in place.

    The packing is that of ``firnlake.compact.tasks``: a segment is closed before the next is opened.
    """
    group: list[Span] = []
    filled = 0.0
    for segment, start, end in spans:
        written = segment.bytes * np.count_nonzero(kept[start:end]) / max(1, segment.records)
        if group and (segment.path in stay or filled + written > size):
            yield group
            group, filled = [], 0.0
        if segment.path not in stay:
            group.append((segment, start, end))
            filled += written
    if group:
        yield group


def amplification(arrivals: Arrivals, properties: Mapping[str, str]) -> Figures:
    """The figures of a policy (`properties` without prefix), until all has landed: bytes that plans wrote per byte that
    landed; bytes in the table per byte of the newest values, before and after every look, the mean and the most; and
    the same of the number of segments, before every look."""
    named = {PREFIX + name: value for name, value in properties.items()}
    # The rules of Kafka and WarpStream, which are profiles, rewrite whole logs.
    policy = Policies.parse("of the model", named).default
    model = Model(arrivals, policy, leaves_in_place=properties.get("profile") not in ("kafka", "warpstream"))
    looks = np.arange(START_MS + EVERY_MS, arrivals.record_at_ms(len(arrivals.keys)) + EVERY_MS, EVERY_MS)
    live = np.cumsum(arrivals.live_bytes)[arrivals.landed(looks) - 1]
    held, segments = np.zeros((2, len(looks))), np.zeros(len(looks))
    for number, now_ms in enumerate(looks.tolist()):
        model.land(now_ms)
        held[0, number], segments[number] = model.bytes, len(model.segments)
        if model.is_due(now_ms):
            model.look(now_ms)
        held[1, number] = model.bytes
    space = held[:, live > 0] / live[live > 0]
    write = model.written_bytes / int(arrivals.bytes[: model.landed].sum())
    return {
        "written per byte": write,
        "held per byte": float(space.mean()),
        "most held": float(space.max()),
        "segments": float(segments.mean()),
        "most segments": float(segments.max()),
    }


def cases(_: Bench) -> Iterator[Case]:
    """The reference of docs/amplification.md; it is as large at every scale."""
    policies: Mapping[str, Mapping[str, str]] = {
        "Firn": {},
        "Kafka": {"profile": "kafka"},
        "WarpStream": {"profile": "warpstream"},
    }
    arrivals = uniform(50_000)
    entries = {name: partial(amplification, arrivals, properties) for name, properties in policies.items()}
    yield Case("amplification", "1,000,000 records over 50,000 uniform keys", {}, in_turns(entries, 1))
