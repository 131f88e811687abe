"""Explanation of a topic partition or a segment: for each lane, the plan that is due, or the reason why no plan is due.

A segment that is no longer live is explained by the commit that removed it (C11 to C20).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.manifest import ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.explain.holds import Prospects, never_taken, taken
from firnlake.job.failures import failed_plans
from firnlake.job.lane import Lane
from firnlake.lanes.answer import Reason
from firnlake.lanes.look import until
from firnlake.plan.read_states import sense_table
from firnlake.table.history import CommitSummary, PublishedPlan, plans_of
from firnlake.table.mendings import is_mending
from firnlake.table.segment import LANDED, MERGED, RUN, Segment, UnassignedFile
from firnlake.table.segments import facts, removals
from firnlake.table.state import State
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import count


@dataclass(frozen=True)
class ExplainedCommit:
    """A commit on the table, or the share of one plan in a commit.

    ``plan``, ``lane`` and ``reason`` are None for a mending and for a commit of another writer. If the plans of Firn's
    job are no longer known, ``plan`` is the job's id and ``topic_partition`` is None.
    """

    snapshot_id: int
    parent_id: int | None
    at_ms: int
    operation: str
    plan: str | None = None
    lane: str | None = None
    reason: str | None = None
    topic_partition: str | None = None
    removed: int = 0
    """Number of records that Firn's plan removed, for any reason; 0 without a plan."""
    mended: bool = False
    """True when a person had `firn mend` take files out (C36)."""

    @classmethod
    def of(cls, snapshot: Snapshot, plan: PublishedPlan | None) -> "ExplainedCommit":
        """The commit of ``snapshot``, or the share of ``plan`` in it."""
        told = CommitSummary.of(snapshot)
        job_id, lane = (told.job_id, told.lane) if told else (None, None)
        return cls(
            snapshot_id=snapshot.snapshot_id,
            parent_id=snapshot.parent_snapshot_id,
            at_ms=snapshot.timestamp_ms,
            operation=snapshot.summary.operation.value if snapshot.summary else "unknown",
            plan=plan.id if plan else job_id,
            lane=plan.lane if plan else lane,
            reason=plan.reason if plan else None,
            topic_partition=str(plan.topic_partition) if plan else None,
            removed=plan.counts.records_in - plan.counts.records_out if plan else 0,
            mended=is_mending(snapshot),
        )


class History:
    """The current snapshot of ``table`` and its ancestors."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """All snapshots of the history that have not expired, newest first."""
        return tuple(ancestors(self._table))

    def commits(self) -> Iterator[ExplainedCommit]:
        """All commits whose snapshots have not expired, newest first; for a commit of Firn, one share per plan."""
        for snapshot in self.snapshots:
            yield from self._of(snapshot)

    @property
    def complete(self) -> bool:
        """True when the history goes back to the first snapshot."""
        return not self.snapshots or self.snapshots[-1].parent_snapshot_id is None

    def removals(self) -> Iterator[tuple[Snapshot, ManifestEntry]]:
        """All data files that commits removed from the table, those of the newest commit first."""
        return removals(self._table)

    def taking(self, snapshot: Snapshot, topic_partition: TopicPartition | None) -> ExplainedCommit:
        """The share of the plan for ``topic_partition`` in the commit of ``snapshot``, or else the first share."""
        commits = list(self._of(snapshot))
        return next((one for one in commits if one.topic_partition == str(topic_partition)), commits[0])

    def _of(self, snapshot: Snapshot) -> Iterator[ExplainedCommit]:
        try:
            plans = plans_of(self._table, snapshot)
        except RefusedError:
            plans = ()
        for plan in plans:
            yield ExplainedCommit.of(snapshot, plan)
        if not plans:
            yield ExplainedCommit.of(snapshot, None)


@dataclass(frozen=True)
class LaneOutlook:
    """The due plan of one lane, or the reason why no plan is due. Time alone makes the lane due at ``next_ms``."""

    lane: Lane
    plan: str | None
    segments: int
    reason: Reason
    next_ms: int | None = None


@dataclass(frozen=True)
class PartitionExplanation:
    """One topic partition. Offsets are inclusive; bytes are file sizes."""

    table: str
    topic_partition: TopicPartition
    head_segments: int
    head_bytes: int
    cleanable_bytes: int
    tail_segments: int
    tail_bytes: int
    dirty_ratio: float
    cleaned_through: int | None
    log_end_offset: int
    lanes: tuple[LaneOutlook, ...]
    blockers: tuple[Reason, ...]


def explain_partition(
    lake: Lake, identifier: str, topic_partition: TopicPartition, now_ms: int
) -> PartitionExplanation:
    """Explain ``topic_partition`` of table ``identifier`` at ``now_ms``.

    Raises RefusedError for an unknown table or topic partition.
    """
    segments, states = sense_table(lake, identifier, now_ms, {topic_partition})
    if not states:
        names = ", ".join(sorted(map(str, segments.by_partition))[:20]) or "none"
        raise RefusedError(f"table {identifier} holds no segment of {topic_partition}; found: {names}")
    (state,) = states
    prospects = Prospects.of(segments, state, failed_plans(lake, identifier))
    return PartitionExplanation(
        table=identifier,
        topic_partition=topic_partition,
        head_segments=len(state.head),
        head_bytes=state.cleanable_bytes + state.uncleanable_bytes,
        cleanable_bytes=state.cleanable_bytes,
        tail_segments=len(state.tail),
        tail_bytes=state.tail_bytes,
        dirty_ratio=state.dirty_ratio,
        cleaned_through=state.cleaned_through,
        log_end_offset=state.log_end_offset,
        lanes=tuple(_outlook(lane, prospects) for lane in Lane),
        blockers=tuple(_blockers(state)),
    )


def _outlook(lane: Lane, prospects: Prospects) -> LaneOutlook:
    plan = prospects.due.get(lane)
    if plan:
        return LaneOutlook(lane, plan.id, len(plan.inputs), Reason(lane.traits.rule, plan.reason))
    next_ms = None if lane in prospects.failed else until(prospects.state, [lane])
    return LaneOutlook(lane, None, 0, prospects.not_due(lane), next_ms)


def _blockers(state: State) -> list[Reason]:
    """The reasons that block the topic partition now, in any lane."""
    reasons = [Reason("C20", blocker) for blocker in state.blockers]
    reasons += [Reason("C17", oversized) for oversized in state.oversized]
    for stray in state.strays:
        reasons.append(Reason("C7", f"{stray}: tombstones at offset {stray.base_offset} or later are kept"))
    if state.held and state.policy.compacts:
        why = f"segment {state.held.segment} is {state.held.why}: this segment and all later ones wait"
        reasons.append(Reason(state.held.rule, why, state.held.until_ms))
    return reasons


LANE_OF_LEVEL = {LANDED: Lane.MERGE, MERGED: Lane.CLEAN, RUN: Lane.TIER}
"""For each level, the lane that takes only segments of this level; lane `full` takes segments of every level."""


@dataclass(frozen=True)
class Destination:
    """A lane that would take the segment now, and the reason why the lane is due."""

    lane: Lane
    plan: str
    reason: str


@dataclass(frozen=True)
class SegmentExplanation:
    """One segment: the plans that would take it now, why other lanes would not, and the commit that removed it."""

    table: str
    segment: Segment | UnassignedFile
    going: tuple[Destination, ...] = ()
    waiting: tuple[Reason, ...] = ()
    removed_by: ExplainedCommit | None = None

    @property
    def live(self) -> bool:
        """True when readers see the segment."""
        return self.removed_by is None


def explain_segment(lake: Lake, identifier: str, name: str, now_ms: int) -> list[SegmentExplanation]:
    """Explain the segments named by ``name``: a path, a file name, or ``topic-partition@offset`` (several may match).

    A segment that is no longer live is searched for in the snapshots that have not expired. Raises RefusedError if no
    segment has that name, or for an unknown table.
    """
    segments, states = sense_table(lake, identifier, now_ms)
    live = [item for item in (*segments, *segments.strays) if name in (item.path, _file_name(item.path))]
    place = _place(name)
    live = live or [one for one in segments if place and _covers(one, *place)]
    if live:
        by_partition = {state.topic_partition: state for state in states}
        failed = failed_plans(lake, identifier)
        prospects = {
            place: Prospects.of(segments, by_partition[place], failed)
            for place in {item.topic_partition for item in live if isinstance(item, Segment)}
        }
        return [_explained(identifier, item, prospects) for item in live]
    table = lake.table(identifier)
    history = History(table)
    for snapshot, entry in history.removals():
        is_named = name in (entry.data_file.file_path, _file_name(entry.data_file.file_path))
        if is_named or place:
            listed = facts(table, identifier, entry)
            if listed and (is_named or (place and isinstance(listed, Segment) and _covers(listed, *place))):
                owner = listed.topic_partition if isinstance(listed, Segment) else None
                return [SegmentExplanation(identifier, listed, removed_by=history.taking(snapshot, owner))]
    raise RefusedError(
        f"table {identifier} holds no segment {name!r}, and none of its snapshots ({len(history.snapshots)}) removed "
        "one; allowed: a path, a file name, or <topic>-<partition>@<offset>"
    )


def _place(name: str) -> tuple[TopicPartition, int] | None:
    """The topic partition and the offset in ``name``; None if it is the name of a file."""
    place, _, offset = name.rpartition("@")
    if not place or not (offset.isascii() and offset.isdigit()):
        return None
    return TopicPartition.parse(place), int(offset)


def _covers(segment: Segment, topic_partition: TopicPartition, offset: int) -> bool:
    """True if the segment's range of offsets covers ``offset``."""
    within = segment.base_offset <= offset <= segment.last_offset
    return segment.topic_partition == topic_partition and segment.records > 0 and within


def _explained(
    identifier: str, item: Segment | UnassignedFile, prospects: Mapping[TopicPartition, Prospects]
) -> SegmentExplanation:
    if isinstance(item, UnassignedFile):
        return SegmentExplanation(identifier, item, waiting=(never_taken(item),))
    own = prospects[item.topic_partition]
    going = [Destination(lane, plan.id, plan.reason) for lane, plan in own.due.items() if item.path in taken(plan)]
    return SegmentExplanation(identifier, item, tuple(going), tuple(_waiting(item, own)))


def _waiting(segment: Segment, prospects: Prospects) -> Iterator[Reason]:
    """The reasons why the lanes that could take ``segment`` do not."""
    if held := prospects.held(segment.path):
        yield held
    elif Lane.FULL not in prospects.due:
        yield _later(Lane.FULL, prospects)
    lane = LANE_OF_LEVEL.get(segment.level)
    if lane and not prospects.state.blockers:
        plan = prospects.due.get(lane)
        if plan is None:
            yield _later(lane, prospects)
        elif segment.path not in taken(plan):
            yield Reason("C17", f"lane {lane} is due, but takes {count(len(plan.inputs), 'other segment')} first")


def _later(lane: Lane, prospects: Prospects) -> Reason:
    reason = prospects.not_due(lane)
    return Reason(reason.rule, f"lane {lane} is not due: {reason.text}", reason.until_ms)


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]
