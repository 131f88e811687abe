"""Explanation of a segment: the lane that would take it now, or why none does; if it is gone, the commit that took
it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipeline.errors import RefusedError
from pipeline.explain.history import Commit, History
from pipeline.explain.holds import Prospects, never_taken, taken
from pipeline.explain.reason import Reason
from pipeline.lake import Lake
from pipeline.lake.topic_partition import TopicPartition
from pipeline.plan.failure import failed_plans
from pipeline.segments import Segment, Segments, Stray
from pipeline.segments.read import facts
from pipeline.segments.segment import LANDED, MERGED, RUN
from pipeline.sense import Lane, sense_table

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
    segment: Segment | Stray
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
    identifier: str, item: Segment | Stray, prospects: Mapping[TopicPartition, Prospects]
) -> SegmentExplanation:
    if isinstance(item, Stray):
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
