"""Explain a topic partition or a segment: for each lane, the plan that is due, or the reason why no plan is due.

A segment that is no longer live is explained by the commit that removed it (C11 to C20).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.outlook import LaneOutlook, Outlook, never_taken, taken
from firnlake.job.failures import failed_plans
from firnlake.job.lane import TOP, Lane
from firnlake.lanes.answer import Reason
from firnlake.plan.read_states import Scope, read_once
from firnlake.table.history import CommitSummary, is_mending, plans_of
from firnlake.table.live_files import removals
from firnlake.table.manifest_reader import facts
from firnlake.table.segment import Segment, UnassignedFile
from firnlake.table.segments import Segments
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import count


@dataclass(frozen=True)
class ExplainedCommit:
    """A commit on the table; if Firn made it, with its plan for a topic partition.

    ``plan``, ``lane`` and ``reason`` are None for a mending and for a commit of another writer. If the plans of Firn's
    job are no longer known, ``plan`` is the job's id.
    """

    snapshot_id: int
    at_ms: int
    operation: str
    plan: str | None
    lane: str | None
    reason: str | None
    mended: bool
    """True when a person had `firn mend` take files out (C36)."""

    @classmethod
    def of(cls, table: Table, snapshot: Snapshot, owner: TopicPartition | None) -> "ExplainedCommit":
        """The commit of ``snapshot``, with its plan for ``owner``, or else with its first plan."""
        told = CommitSummary.of(snapshot)
        try:
            plans = plans_of(table, snapshot)
        except RefusedError:
            plans = ()
        plan = next((one for one in plans if one.topic_partition == owner), next(iter(plans), None))
        return cls(
            snapshot_id=snapshot.snapshot_id,
            at_ms=snapshot.timestamp_ms,
            operation=snapshot.summary.operation.value if snapshot.summary else "unknown",
            plan=plan.id if plan else told.job_id if told else None,
            lane=told.lane if told else None,
            reason=plan.reason if plan else None,
            mended=is_mending(snapshot),
        )


def outlooks(
    lake: Lake, identifier: str, now_ms: int, only: Collection[TopicPartition] = ()
) -> tuple[Segments, dict[TopicPartition, Outlook]]:
    """The segments of table ``identifier``, and what the lanes say of its topic partitions or of those in ``only``.

    Raises RefusedError for an unknown table, or a topic partition without a segment.
    """
    sensed = read_once(lake, identifier, now_ms, scope=Scope(partitions=tuple(only)))
    segments, failures = sensed.segments, failed_plans(lake, identifier)
    return segments, {state.topic_partition: Outlook(segments, state, failures) for state in sensed.states()}


def explain_partition(lake: Lake, identifier: str, topic_partition: TopicPartition, now_ms: int) -> Outlook:
    """Explain ``topic_partition`` of table ``identifier`` at ``now_ms``.

    Raises RefusedError for an unknown table or topic partition.
    """
    _, found = outlooks(lake, identifier, now_ms, {topic_partition})
    return found[topic_partition]


@dataclass(frozen=True)
class SegmentExplanation:
    """One segment: the lanes that would take it now, why other lanes would not, and the commit that removed it."""

    table: str
    segment: Segment | UnassignedFile
    going: tuple[LaneOutlook, ...] = ()
    waiting: tuple[Reason, ...] = ()
    removed_by: ExplainedCommit | None = None

    @classmethod
    def of(cls, outlook: Outlook, segment: Segment) -> "SegmentExplanation":
        """What the lanes say of a live ``segment``."""
        going = tuple(outlook.of_lane(lane) for lane, plan in outlook.due.items() if segment.path in taken(plan))
        return cls(outlook.segments.identifier, segment, going, tuple(_waiting(segment, outlook)))


def _waiting(segment: Segment, outlook: Outlook) -> Iterator[Reason]:
    """The reasons why the lanes that could take ``segment`` do not."""
    if held := outlook.obstacle(segment.path):
        yield held
    elif TOP not in outlook.due:
        yield _later(TOP, outlook)
    lane = next((lane for lane in Lane if lane.traits.level_in == segment.level), None)
    if lane and not outlook.state.blockers:
        plan = outlook.due.get(lane)
        if plan is None:
            yield _later(lane, outlook)
        elif segment.path not in taken(plan):
            yield Reason("C17", f"lane {lane} is due, but takes {count(len(plan.inputs), 'other segment')} first")


def _later(lane: Lane, outlook: Outlook) -> Reason:
    reason = outlook.not_due(lane)
    return Reason(reason.rule, f"lane {lane} is not due: {reason.text}", reason.until_ms)


def explain_segment(lake: Lake, identifier: str, name: str, now_ms: int) -> list[SegmentExplanation]:
    """Explain the segments named by ``name``: a path, a file name, or ``topic-partition@offset`` (several may match).

    A segment that is no longer live is searched for in the snapshots that have not expired. Raises RefusedError if no
    segment has that name, or for an unknown table.
    """
    segments, found = outlooks(lake, identifier, now_ms)
    every: tuple[Segment | UnassignedFile, ...] = (*segments.each(), *segments.strays)
    live = [item for item in every if _is_path(name, item.path) or _is_offset(name, item)]
    if live:
        return [
            SegmentExplanation.of(found[item.topic_partition], item)
            if isinstance(item, Segment)
            else SegmentExplanation(identifier, item, waiting=(never_taken(item),))
            for item in live
        ]
    table = lake.table(identifier)
    for snapshot, entry in removals(table):
        is_path = _is_path(name, entry.data_file.file_path)
        item = facts(table, identifier, entry) if is_path or "@" in name else None
        if item and (is_path or _is_offset(name, item)):
            owner = item.topic_partition if isinstance(item, Segment) else None
            return [SegmentExplanation(identifier, item, removed_by=ExplainedCommit.of(table, snapshot, owner))]
    raise RefusedError(
        f"table {identifier} holds no segment {name!r}, and none of its snapshots ({len(list(ancestors(table)))}) "
        "removed one; allowed: a path, a file name, or <topic>-<partition>@<offset>"
    )


def _is_path(name: str, path: str) -> bool:
    return name in (path, path.rpartition("/")[2])


def _is_offset(name: str, item: Segment | UnassignedFile) -> bool:
    """True if ``name`` is a topic partition and an offset that the segment covers, such as ``orders-0@7``."""
    place, _, offset = name.rpartition("@")
    if isinstance(item, UnassignedFile) or str(item.topic_partition) != place or not offset.isdecimal():
        return False
    return item.records > 0 and item.base_offset <= int(offset) <= item.last_offset
