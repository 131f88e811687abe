"""What every lane says of a topic partition or a segment now: its plan, or why it takes nothing.

`firn status`, `firn explain` and the progress of erasures show this one answer. Each lane is asked once
(``Lane.look``), and nothing is written. A segment that is no longer live is explained by the commit that
removed it (C11 to C20).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.clock import show_ms, show_span
from firnlake.errors import RefusedError
from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.job.outcomes import FailedPlan, failed_plans, waiting
from firnlake.job.plan import Plan
from firnlake.lanes import TOP, Lane, until
from firnlake.lanes.answer import Reason, Waits, Work
from firnlake.plan.make import plan_of, plan_partition
from firnlake.plan.read_states import Scope, Sensed, read_once
from firnlake.table.history import CommitSummary, is_mending, plans_of
from firnlake.table.manifest_reader import removed
from firnlake.table.segment import TAIL, Segment, TopicPartition, UnassignedFile
from firnlake.table.state import State
from firnlake_expectations.wording import count

HANGING_MS: Final = 86_400_000
"""Milliseconds after which an open transaction waits for a person. A broker ends that of a living producer after
transaction.max.timeout.ms, by default 15 minutes (KIP-664)."""


@dataclass(frozen=True)
class LaneOutlook:
    """The due plan of one lane, or the reason why no plan is due. Time alone makes the lane due at ``next_ms``."""

    lane: Lane
    plan: str | None
    segments: int
    reason: Reason
    next_ms: int | None = None


@dataclass(frozen=True)
class Outlook:
    """What the lanes say of ``state``, one of those that were ``sensed``; ``failures`` are the table's failed plans."""

    sensed: Sensed
    state: State
    failures: Sequence[FailedPlan] = ()

    @cached_property
    def answers(self) -> Mapping[Lane, Work | Waits]:
        """What each lane says of the topic partition, whatever has failed before."""
        return {lane: lane.look(self.state) for lane in Lane}

    @cached_property
    def plans(self) -> Mapping[Lane, Plan]:
        """The plan of each due lane, without what failed before."""
        answers = {} if self.state.topic_partition in self.sensed.quiet else self.answers
        works = {lane: one for lane, one in answers.items() if isinstance(one, Work) and lane not in self.failed}
        return {lane: plan_of(lane, work, self.sensed.segments, self.state) for lane, work in works.items()}

    @cached_property
    def top(self) -> Plan | None:
        """The plan of the highest lane without thresholds, which takes segments of every level."""
        return plan_partition(TOP, self.sensed.segments, self.state, force=True)

    @cached_property
    def failed(self) -> Mapping[Lane, FailedPlan]:
        """The lanes whose plan failed on the same segments before; it waits until they change, even if it was asked for
        before it was due (C20)."""
        where = self.state.topic_partition
        tried = {marker.plan.lane for marker in self.failures if marker.plan.topic_partition == where}
        plans = (
            plan_partition(lane, self.sensed.segments, self.state, force=isinstance(self.answers[lane], Waits))
            for lane in Lane
            if lane in tried
        )
        return {plan.lane: marker for plan, marker in waiting(self.failures, filter(None, plans))}

    @cached_property
    def yielding(self) -> frozenset[Lane]:
        """The due lanes that leave their plan to the highest one, which takes all its segments in the same run."""
        top = self.plans.get(TOP)
        return frozenset(lane for lane, plan in self.plans.items() if top and top.takes(plan))

    @cached_property
    def due(self) -> Mapping[Lane, Plan]:
        """The plans that a run of all lanes takes."""
        return {lane: plan for lane, plan in self.plans.items() if lane not in self.yielding}

    def not_due(self, lane: Lane) -> Reason:
        """The reason why ``lane`` takes no segment of the topic partition now."""
        if lane in self.failed:
            return Reason("C20", str(self.failed[lane]))
        if lane in self.yielding:
            return Reason(lane.traits.rule, f"left to lane {TOP}, which takes the segments in the same run")
        answer = self.answers[lane]
        assert isinstance(answer, Waits)  # otherwise it is due
        return answer

    @property
    def lanes(self) -> tuple[LaneOutlook, ...]:
        """What each lane does, or waits for."""
        return tuple(map(self.of_lane, Lane))

    def of_lane(self, lane: Lane) -> LaneOutlook:
        """What ``lane`` does, or waits for."""
        if plan := self.due.get(lane):
            return LaneOutlook(lane, plan.id, len(plan.inputs), Reason(lane.traits.rule, plan.reason))
        next_ms = None if lane in self.failed else until(self.state, [lane])
        return LaneOutlook(lane, None, 0, self.not_due(lane), next_ms)

    @cached_property
    def wrong(self) -> tuple[Reason, ...]:
        """What keeps segments from being cleaned in any run until a person acts."""
        wrong = [Reason("C20", blocker) for blocker in self.state.blockers]
        wrong += [Reason("C17", oversized) for oversized in self.state.oversized]
        return (*wrong, *self._hanging())

    def _hanging(self) -> Iterator[Reason]:
        undecided = self.state.undecided
        if undecided is None or not self.state.policy.compacts:
            return
        first = next(one for one in self.state.segments if one.last_offset >= undecided.offset)
        passed = self.state.now_ms - max(first.arrived_ms, first.newest_ms)
        if passed > HANGING_MS:
            yield Reason(
                "C10",
                f"held back: {undecided}, and has been for {show_span(passed)}; allowed: a transaction that ends "
                "(kafka-transactions.sh finds a hanging one and aborts it)",
            )

    @cached_property
    def holding(self) -> tuple[Reason, ...]:
        """What holds segments or tombstones back for a while."""
        state, held = self.state, self.state.held
        reasons = []
        if state.undecided and not any(self._hanging()):
            reasons.append(Reason("C10", f"held back: {state.undecided}"))
        for stray in state.strays:
            why = f"may hold records from offset {stray.base_offset} on: tombstones from there on are kept"
            reasons.append(Reason("C7", f"segment {stray.path} {why}"))
        if held and held.rule != "C10" and state.policy.compacts:
            ahead = held.segment.newest_ms - state.now_ms
            # Producers set the timestamps, and one in the future prolongs the wait.
            future = f", and its newest timestamp is {show_span(ahead)} in the future" if ahead > 0 else ""
            why = f"segment {held.segment} is {held.why}{future}: this segment and all later ones wait"
            reasons.append(Reason(held.rule, why, held.until_ms))
        return tuple(reasons)

    @property
    def obstacles(self) -> tuple[Reason, ...]:
        """What keeps segments or tombstones from being cleaned now."""
        return (*self.wrong, *self.holding)

    def obstacle(self, path: str) -> Reason | None:
        """The reason why the highest lane, even if due, would leave out the segment at ``path``; None if it would not.

        The text is the rest of a sentence that begins with "the segment".
        """
        state = self.state
        if path in taken(self.top):
            failed = self.failed.get(TOP)
            return Reason("C20", f"is in a plan that failed: {failed}") if failed else None
        for stray in state.strays:
            if stray.path == path:
                return never_taken(stray)
        segment = next(segment for segment in state.segments if segment.path == path)
        if not state.policy.compacts:
            return Reason(
                "C19", f"belongs to a topic that is not compacted (cleanup.policy = {state.policy.cleanup_policy})"
            )
        if state.blockers:
            return Reason("C20", f"waits because its topic partition can't be cleaned: {state.blockers[0]}")
        if not segment.records:
            return Reason("C17", "holds no record")
        if too_large := state.too_large(segment):
            return Reason("C17", f"is too large: {too_large}")
        if segment.level == TAIL and state.tail_is_held:
            return Reason("C10", f"waits, like the whole tail: {state.undecided}")
        if state.held and segment in state.head and segment not in state.cleanable:
            place = "is" if state.held.segment == segment else f"comes after segment {state.held.segment}, which is"
            return Reason(state.held.rule, f"{place} {state.held.why}", state.held.until_ms)
        left = [segment for segment in state.cleanable if segment.path not in taken(self.top)]
        if left and (too_large := state.too_large(left[0])):
            return Reason("C17", f"waits because an older segment is too large: {too_large}")
        fitting = count(len(state.cleanable) - len(left), "older segment")
        return Reason("C17", f"exceeds the budgets of a plan, which takes {fitting} first")


def never_taken(stray: UnassignedFile) -> Reason:
    """The reason why no plan takes a data file whose metadata does not show its topic partition (C20)."""
    return Reason("C20", f"{stray.problem}: no plan takes this file")


def taken(plan: Plan | None) -> frozenset[str]:
    """Paths of the segments that ``plan`` takes; empty if there is no plan."""
    return frozenset(segment.path for segment in plan.inputs) if plan else frozenset()


def in_words(reason: Reason) -> str:
    """The reason, and the time at which it ends by itself, if that is known."""
    return reason.text if reason.until_ms is None else f"{reason.text}, until {show_ms(reason.until_ms)}"


def outlooks(
    lake: Lake, identifier: str, now_ms: int, only: Collection[TopicPartition] = ()
) -> tuple[Sensed, Iterator[Outlook]]:
    """Table ``identifier`` as it is, and what the lanes say of its topic partitions or of those in ``only``, by topic
    and partition, one after the other.

    Raises RefusedError for an unknown table, or a topic partition without a segment.
    """
    with lake.reading(identifier):
        sensed = read_once(lake, identifier, now_ms, scope=Scope(partitions=tuple(only)))
        failures = failed_plans(lake, identifier)
        return sensed, (Outlook(sensed, state, failures) for state in sensed.states())


@dataclass(frozen=True)
class RemovingCommit:
    """The commit that removed a record or a segment."""

    snapshot_id: int
    at_ms: int
    lane: str | None
    """None if the commit is not of a lane."""
    by: str
    """Lane, plan and reason; or who made the commit instead."""

    @classmethod
    def of(cls, table: Table, snapshot: Snapshot, owner: TopicPartition | None) -> Self:
        """The commit of ``snapshot``, with its plan for ``owner``, or else with its first plan."""
        summary = CommitSummary.of(snapshot)
        if summary:
            by = f"lane {summary.lane}, {_plan(table, snapshot, owner) or f'job {summary.job_id}'}"
        elif is_mending(snapshot):
            by = "firn mend"
        else:
            operation = snapshot.summary.operation.value if snapshot.summary else "unknown"
            by = f"by another writer, operation {operation}"
        return cls(snapshot.snapshot_id, snapshot.timestamp_ms, summary.lane if summary else None, by)


def _plan(table: Table, snapshot: Snapshot, owner: TopicPartition | None) -> str:
    """The plan with its reason; empty if the document of the commit's plans is gone."""
    try:
        plans = plans_of(table, snapshot)
    except RefusedError:
        return ""
    plan = next((one for one in plans if one.topic_partition == owner), next(iter(plans), None))
    return f"plan {plan.job_id}: {plan.reason}" if plan else ""


@dataclass(frozen=True)
class SegmentExplanation:
    """One segment: the lanes that would take it now, why other lanes would not, and the commit that removed it."""

    table: str
    segment: Segment | UnassignedFile
    going: tuple[LaneOutlook, ...] = ()
    waiting: tuple[Reason, ...] = ()
    removed_by: RemovingCommit | None = None


def explain_segment(lake: Lake, identifier: str, name: str, now_ms: int) -> list[SegmentExplanation]:
    """Explain the segments named by ``name``: a path, a file name, or ``topic-partition@offset`` (several may match).

    A segment that is no longer live is searched for in the snapshots that have not expired. Raises RefusedError if no
    segment has that name, or for an unknown table.
    """
    sensed, each = outlooks(lake, identifier, now_ms)
    live = [(segment, one) for one in each for segment in one.state.segments if _is_named(name, segment)]
    lost = [item for item in sensed.segments.strays if _is_named(name, item)]
    if live or lost:
        return [
            *(_live(identifier, *one) for one in live),
            *(SegmentExplanation(identifier, item, waiting=(never_taken(item),)) for item in lost),
        ]
    with lake.reading(identifier):
        table = lake.table(identifier)
        for snapshot, item in removed(table, identifier):
            if _is_named(name, item):
                owner = item.topic_partition if isinstance(item, Segment) else None
                return [SegmentExplanation(identifier, item, removed_by=RemovingCommit.of(table, snapshot, owner))]
    raise RefusedError(
        f"table {identifier} holds no segment {name!r}, and none of its snapshots ({len(list(ancestors(table)))}) "
        "removed one; allowed: a path, a file name, or <topic>-<partition>@<offset>"
    )


def _live(identifier: str, segment: Segment, outlook: Outlook) -> SegmentExplanation:
    going = tuple(outlook.of_lane(lane) for lane, plan in outlook.due.items() if segment.path in taken(plan))
    return SegmentExplanation(identifier, segment, going, tuple(_waiting(segment, outlook)))


def _waiting(segment: Segment, outlook: Outlook) -> Iterator[Reason]:
    """The reasons why the lanes that could take ``segment`` do not."""
    if held := outlook.obstacle(segment.path):
        yield held
    elif TOP not in outlook.due:
        yield _later(TOP, outlook)
    for lane in (lane for lane in Lane if lane.traits.level_in == segment.level and not outlook.state.blockers):
        plan = outlook.due.get(lane)
        if plan is None:
            yield _later(lane, outlook)
        elif segment.path not in taken(plan):
            yield Reason("C17", f"lane {lane} is due, but takes {count(len(plan.inputs), 'other segment')} first")


def _later(lane: Lane, outlook: Outlook) -> Reason:
    reason = outlook.not_due(lane)
    return Reason(reason.rule, f"lane {lane} is not due: {reason.text}", reason.until_ms)


def _is_named(name: str, item: Segment | UnassignedFile) -> bool:
    """True if ``name`` is the path or the file name of ``item``, or its topic partition and an offset that it covers,
    such as ``orders-0@7``."""
    if name in (item.path, item.path.rpartition("/")[2]):
        return True
    place, _, offset = name.rpartition("@")
    if isinstance(item, UnassignedFile) or str(item.topic_partition) != place or not offset.isdecimal():
        return False
    return item.records > 0 and item.base_offset <= int(offset) <= item.last_offset
