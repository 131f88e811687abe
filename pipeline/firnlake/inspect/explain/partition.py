"""Explanation of a topic partition or a segment: per lane what is due, what is missing, what blocks it, until when.

Of a segment that is gone, the commit of Firn that took it (C11 to C20).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.snapshots import ancestors
from firnlake.inspect.explain.holds import RULES, Prospects, Reason, never_taken, taken
from firnlake.job.failures import failed_plans
from firnlake.job.lane import Lane
from firnlake.plan.forecast import due_at
from firnlake.plan.read_states import sense_table
from firnlake.table.partition import PartitionState
from firnlake.table.published_plans import PublishedPlan, plans_of
from firnlake.table.segment import LANDED, MERGED, RUN, Segment, Segments, UnassignedFile
from firnlake.table.segments import facts
from firnlake.table.summaries import CommitSummary
from firnlake.table.topic_partition import TopicPartition


@dataclass(frozen=True)
class Commit:
    """A commit on the table, or one plan's share of it.

    ``plan``, ``lane`` and ``reason`` are None if the commit is not Firn's. If a job's plans are no longer known,
    ``plan`` is the job's id and ``topic_partition`` is None.
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
    """Number of records that a plan of Firn removed, for any reason."""

    @classmethod
    def of(cls, snapshot: Snapshot, plan: PublishedPlan | None) -> "Commit":
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
        )


class History:
    """The current snapshot of ``table`` and its ancestors."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """All snapshots that are still known, newest first."""
        return tuple(ancestors(self._table))

    def commits(self) -> Iterator[Commit]:
        """All commits that are still known, newest first; a commit of Firn as one share per plan."""
        for snapshot in self.snapshots:
            yield from self._of(snapshot)

    @property
    def complete(self) -> bool:
        """True when no commit before the oldest known one has expired."""
        return not self.snapshots or self.snapshots[-1].parent_snapshot_id is None

    def removals(self) -> Iterator[tuple[Snapshot, ManifestEntry]]:
        """All data files that commits removed from the table, newest commit first."""
        for snapshot in self.snapshots:
            for manifest in snapshot.manifests(self._table.io):
                # The commit that removes a file lists it once more, as deleted (Iceberg spec, "Manifests").
                if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id == snapshot.snapshot_id:
                    for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=False):
                        if entry.status == ManifestEntryStatus.DELETED:
                            yield snapshot, entry

    def taking(self, snapshot: Snapshot, topic_partition: TopicPartition | None) -> Commit:
        """The commit of ``snapshot``: the share that took a segment of ``topic_partition``, if that is known."""
        commits = list(self._of(snapshot))
        return next((one for one in commits if one.topic_partition == str(topic_partition)), commits[0])

    def _of(self, snapshot: Snapshot) -> Iterator[Commit]:
        try:
            plans = plans_of(self._table, snapshot)
        except RefusedError:
            plans = ()
        for plan in plans:
            yield Commit.of(snapshot, plan)
        if not plans:
            yield Commit.of(snapshot, None)


@dataclass(frozen=True)
class LaneOutlook:
    """One lane: the plan that is due, or what is missing; ``next_ms`` is the time when the clock alone makes it due."""

    lane: Lane
    plan: str | None
    segments: int
    reason: Reason
    next_ms: int | None = None


@dataclass(frozen=True)
class PartitionExplanation:
    """One topic partition. Offsets are inclusive, bytes are file sizes."""

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
        return LaneOutlook(lane, plan.id, len(plan.inputs), Reason(RULES[lane], plan.reason))
    next_ms = None if lane in prospects.failed else due_at(prospects.state, [lane])
    return LaneOutlook(lane, None, 0, prospects.not_due(lane), next_ms)


def _blockers(state: PartitionState) -> list[Reason]:
    """Everything that blocks the topic partition now, in any lane."""
    reasons = [Reason("C20", blocker) for blocker in state.blockers]
    reasons += [Reason("C17", oversized) for oversized in state.oversized]
    for stray in state.strays:
        reasons.append(Reason("C7", f"{stray}: tombstones at or past offset {stray.base_offset} stay"))
    if state.held and state.policy.compacts:
        why = f"{state.held.segment} is {state.held.why}: it and everything after it wait"
        reasons.append(Reason(state.held.rule, why, state.held.until_ms))
    return reasons


LANE_OF_LEVEL = {LANDED: Lane.MERGE, MERGED: Lane.CLEAN, RUN: Lane.TIER}
"""Lane that takes segments of this level only; `full` takes segments of every level."""


@dataclass(frozen=True)
class Destination:
    """A lane that would take the segment now, and why it is due."""

    lane: Lane
    plan: str
    reason: str


@dataclass(frozen=True)
class SegmentExplanation:
    """One segment: the plans that would take it now, why no other does, and if it is gone, the commit that took it."""

    table: str
    segment: Segment | UnassignedFile
    going: tuple[Destination, ...] = ()
    waiting: tuple[Reason, ...] = ()
    removed_by: Commit | None = None

    @property
    def live(self) -> bool:
        """True when readers see the segment."""
        return self.removed_by is None


def explain_segment(lake: Lake, identifier: str, name: str, now_ms: int) -> list[SegmentExplanation]:
    """Explain the segments named by ``name``: a path, a file name, or ``topic-partition@offset`` (several may match).

    A segment that is no longer live is searched for in the snapshots that are still known. Raises RefusedError when no
    segment has that name, or for an unknown table.
    """
    segments, states = sense_table(lake, identifier, now_ms)
    live = [item for item in (*segments, *segments.strays) if name in (item.path, _file_name(item.path))]
    live = live or list(_at_offset(segments, name))
    if live:
        by_partition = {state.topic_partition: state for state in states}
        failed = failed_plans(lake, identifier)
        prospects = {
            place: Prospects.of(segments, by_partition[place], failed)
            for place in {item.topic_partition for item in live if isinstance(item, Segment)}
        }
        return [_explained(identifier, item, prospects) for item in live]
    history = History(lake.table(identifier))
    for snapshot, entry in history.removals():
        if name in (entry.data_file.file_path, _file_name(entry.data_file.file_path)):
            listed = facts(lake.table(identifier), identifier, entry)
            if listed:
                owner = listed.topic_partition if isinstance(listed, Segment) else None
                return [SegmentExplanation(identifier, listed, removed_by=history.taking(snapshot, owner))]
    raise RefusedError(
        f"table {identifier} holds no segment {name!r}, and none of its {len(history.snapshots)} remaining snapshots "
        "removed one; allowed: a path, a file name, or <topic>-<partition>@<offset>"
    )


def _at_offset(segments: Segments, name: str) -> Iterator[Segment]:
    """The live segments whose range covers the offset in ``name``; none when ``name`` has no offset."""
    place, _, offset = name.rpartition("@")
    if not place or not (offset.isascii() and offset.isdigit()):
        return
    topic_partition = TopicPartition.parse(place)
    for segment in segments.by_partition.get(topic_partition, ()):
        if segment.records and segment.base_offset <= int(offset) <= segment.last_offset:
            yield segment


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
            yield Reason("C17", f"the {lane} that is due takes {len(plan.inputs)} others first")


def _later(lane: Lane, prospects: Prospects) -> Reason:
    reason = prospects.not_due(lane)
    return Reason(reason.rule, f"{lane} is not due: {reason.text}", reason.until_ms)


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]
