"""Makes plans from states, and takes them in the order of work as far as the table's budget allows.

1. Overdue plans come first, and among them the plan that has been overdue longest. A plan is overdue if its topic
   partition is past ``max.compaction.lag.ms``, if it has records below a removed tombstone (readers may see a deleted
   value, C9), or if the oldest segment of its head arrived more than ``PATIENCE_MS`` ago. Time before the lane's last
   work on the topic partition does not count. So no plan starves: an overdue plan waits only for plans that were
   overdue earlier, and once the lane has worked on a topic partition, its next plan moves to the end of the queue.
2. Among all other plans, the plan whose topic partition has the highest dirty ratio comes first (C12).
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Final

from firnlake.clock import ahead
from firnlake.errors import FirnError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.inputs import rules_of
from firnlake.job.outcomes import FailedPlan, PlanOutcome, failed_plans, waiting
from firnlake.job.plan import Plan
from firnlake.job.stage import jobs_of
from firnlake.lanes import Lane
from firnlake.lanes.answer import Work
from firnlake.lanes.dirty_ratio import dirty_ratio
from firnlake.lanes.full import may_stay
from firnlake.plan.read_states import EVERYTHING, SHOWN, Scope, read_once
from firnlake.table.policy import DAY_MS
from firnlake.table.segment import TAIL, Segment, Segments
from firnlake.table.state import State

log = logging.getLogger(__name__)

PATIENCE_MS: Final = DAY_MS
"""Milliseconds after which a plan that is due is overdue."""


@dataclass
class LaneRun:
    """The due work in one lane of a table, and what a run has made of it; ``seconds`` maps steps to wall time."""

    table: str
    lane: Lane
    plans: Sequence[Plan] = ()
    """The plans that the run takes, in the order of work."""
    postponed: Sequence[str] = ()
    """A line for each due plan that exceeds the budget of the run and waits for the next one."""
    failed: Sequence[FailedPlan] = ()
    """Due plans that failed before on the same segments (C20)."""
    oversized: Sequence[str] = ()
    """A line for each of the first segments that are too large for any plan (C17, C18)."""
    outcomes: dict[str, PlanOutcome] = field(default_factory=dict)
    """By plan id, what the last step that worked on the plan has made of it."""
    seconds: dict[str, float] = field(default_factory=dict)

    def left(self) -> Iterator[str]:
        """Yield a line for each failed plan, and those of ``later``."""
        yield from map(str, self.failed)
        yield from self.later()

    def later(self) -> Iterator[str]:
        """Yield a line for the first ``SHOWN`` plans that wait for the next run."""
        yield from _first(self.postponed, "waiting for the next run")

    def warn(self) -> None:
        """Log a warning for each plan that is left out."""
        for line in self.left():
            log.warning("%s: %s", self.table, line)

    def add(self, outcomes: Iterable[PlanOutcome]) -> None:
        """Add what a step has made of plans. What failed before stays so, unless it was published after all."""
        for one in outcomes:
            before = self.outcomes.get(one.plan_id)
            if one.snapshot_id is not None or not before or not before.error:
                self.outcomes[one.plan_id] = one

    @property
    def publications(self) -> list[PlanOutcome]:
        """The plans that are published, whoever did it."""
        return [one for one in self.outcomes.values() if one.snapshot_id is not None]

    @property
    def failures(self) -> dict[str, FirnError]:
        """The errors of the other plans, by the plan's title."""
        return {one.title: one.error for one in self.outcomes.values() if one.error}

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[step] = time.monotonic() - started


def plan_table(
    lake: Lake,
    identifier: str,
    lane: Lane,
    now_ms: int,
    force: bool = False,
    scope: Scope = EVERYTHING,
    lanes: Collection[Lane] = (),
) -> list[Plan]:
    """The plans of one lane (``plan_lanes``), to be carried out; logs a warning for each plan that is left out.

    Raises RefusedError, too, if ``now_ms`` is too far ahead of this machine's clock.
    """
    check_clock(identifier, now_ms)
    (work,) = plan_lanes(lake, identifier, now_ms, force, scope, [lane], lanes)
    work.warn()
    return [*work.plans]


def check_clock(identifier: str, now_ms: int) -> None:
    """Raise RefusedError if plans made at ``now_ms``, epoch milliseconds, must not be carried out (``clock.ahead``)."""
    if problem := ahead(now_ms):
        raise RefusedError(f"table {identifier}: the time {problem} (firn plan, status and explain may look ahead)")


def plan_lanes(
    lake: Lake,
    identifier: str,
    now_ms: int,
    force: bool = False,
    scope: Scope = EVERYTHING,
    lanes: Collection[Lane] = tuple(Lane),
    run: Collection[Lane] = (),
) -> Iterator[LaneRun]:
    """Yield the work that is due in each of ``lanes`` of table ``identifier`` at ``now_ms``, epoch milliseconds.

    Several lanes that can't keep to ``scope`` are left out. The table is read once, and nothing is changed.

    The plans are in the order of work, within the budgets of one run of a lane (``firn.run.max.bytes``). Three lanes
    have no budgets: `retain`, because it reads and writes only metadata; `erase`, because it must erase all requested
    keys at once; `convert`, because it reads only a few columns. A plan of `convert` is left out unless its job makes
    an equality delete file needless.

    ``run`` are all lanes of the run, ``lanes`` by default: a plan is left out if a plan of the highest of them takes
    all its segments, as the run would rewrite these segments twice, with the same result (C13).
    ``scope`` restricts the plans, and the plans' reasons name the scope. A plan that failed on the same segments before
    is left out unless ``force`` asks for another try (C20). Raises RefusedError for an unknown table, a table without
    the record columns, a wrong property, or a scope that the table or the only lane can't keep to.
    """
    if len(lanes) == 1 and (obstacle := scope.obstacle(*lanes)):
        raise RefusedError(obstacle)
    chosen = [lane for lane in lanes if not scope.obstacle(lane)]
    # Retention drops segments whatever they hold, so it need not read transactions.
    reads = any(lane.traits.writes != "nothing" for lane in chosen)
    with lake.answering():
        sensed = read_once(lake, identifier, now_ms, look_at_transactions=reads, scope=scope)
        # The lanes share what states have computed.
        planned = cache(partial(_planned, lake, sensed.segments, [*sensed.states(every=force)], force, str(scope)))
        top = max(run or chosen, key=_level, default=None)
        for lane in chosen:
            above = partial(planned, top) if top and 0 < _level(lane) < _level(top) else None
            yield planned(lane, above) if above else planned(lane)


def _level(lane: Lane) -> int:
    """The level to which ``lane`` writes segments; 0 if it writes none, or leaves them at their levels."""
    return lane.traits.level_out or 0


def _planned(
    lake: Lake,
    segments: Segments,
    states: list[State],
    force: bool,
    asked: str,
    lane: Lane,
    above: Callable[[], LaneRun] | None = None,
) -> LaneRun:
    """The work of ``lane``; ``asked`` describes the scope, and ``above`` gives the work of the run's highest lane.

    Plans whose segments that lane takes anyway are left out. It takes the plans that the run really gets: without those
    that failed before, or that exceed its budget.
    """
    due = due_plans(lane, segments, states, force, asked)
    if due and above:
        taken = {plan.topic_partition: plan for plan in above().plans}
        due = [plan for plan in due if not ((own := taken.get(plan.topic_partition)) and own.takes(plan))]
    failed: dict[str, FailedPlan] = {}
    if due and not force:
        failed = {plan.id: marker for plan, marker in waiting(failed_plans(lake, segments.identifier), due)}
    plans = [plan for plan in due if plan.id not in failed]
    postponed: list[str] = []
    if lane.traits.level_out is not None and states:
        # The budget of a run is set for the table, so every topic's policy has the same one.
        plans, postponed = admit(plans, states[0].policy.run_max_bytes)
    elif lane.traits.writes == "deletes":
        plans = _relieving(plans, segments.relieved)
    problems = [problem for state in states for problem in state.oversized]
    oversized = [*_first(problems, "segments too large for any plan (firn status names all)")]
    return LaneRun(segments.identifier, lane, plans, postponed, [*failed.values()], oversized)


def due_plans(
    lane: Lane, segments: Segments, states: Iterable[State], force: bool = False, asked: str = ""
) -> list[Plan]:
    """The due plans of ``lane`` for ``states``, in the order of work; ``asked`` describes the scope of the run."""
    works = [(work, state) for state in states if isinstance(work := lane.look(state, force), Work)]
    in_order = sorted(works, key=lambda one: _rank(*one))
    plans = (plan_of(lane, work, segments, state, asked) for work, state in in_order)
    return [plan for plan in plans if plan.changes]


def _rank(work: Work, state: State) -> tuple[bool, int, float, str, int]:
    """The place of the plan for ``work`` in the order of work; the lowest comes first."""
    limit = _limit_ms(work, state)
    overdue = limit < state.now_ms
    return not overdue, limit if overdue else 0, -dirty_ratio(state), *state.topic_partition


def _limit_ms(work: Work, state: State) -> int:
    """The time (epoch milliseconds) after which ``work`` is overdue; the clock of ``state`` or later if it is not."""
    last = _last_work_ms(state, work.inputs)
    head = (segment.arrived_ms for segment in work.inputs if segment.level != TAIL)
    limits = [max(min(head, default=last), last) + PATIENCE_MS]
    if state.cleanable:
        oldest = min(segment.oldest_ms for segment in state.cleanable)
        limits.append(max(oldest + state.policy.max_compaction_lag_ms, last))
    if state.late:
        limits.append(max(min(segment.arrived_ms for segment in state.late), last))
    return min(*limits, state.now_ms)


def _last_work_ms(state: State, inputs: Sequence[Segment]) -> int:
    """The time of Firn's newest commit (epoch milliseconds) above the levels of the head's ``inputs``; 0 if none."""
    highest = max((segment.level for segment in inputs if segment.level != TAIL), default=0)
    worked = (segment for segment in state.segments if segment.level > highest and segment.by_firn)
    return max((segment.committed_ms for segment in worked if segment.committed_ms is not None), default=0)


def admit(plans: Iterable[Plan], most_bytes: int) -> tuple[list[Plan], list[str]]:
    """Those of ``plans``, which are in the order of work, that one run takes, and a line for each other one.

    All that it takes together have up to ``most_bytes`` in files. A plan that does not fit waits for the next run,
    while smaller plans after it are taken. If it is first in the next run, that run has room for it. A plan larger than
    the whole budget is never taken (C17).
    """
    taken: list[Plan] = []
    postponed: list[str] = []
    available = most_bytes
    for plan in plans:
        if plan.bytes <= available:
            taken.append(plan)
            available -= plan.bytes
            continue
        until = "for a larger budget" if plan.bytes > most_bytes else "for the next run"
        postponed.append(
            f"{plan.topic_partition} {plan.lane} waits {until}: its plan needs {plan.bytes} bytes; available: "
            f"{available} of {most_bytes} (firn.run.max.bytes)"
        )
    return taken, postponed


def _relieving(plans: list[Plan], relieved: Callable[[Collection[str]], Collection[str]] | None) -> list[Plan]:
    """Those ``plans`` of lane `convert` whose job, as a whole, allows the removal of an equality delete file.

    The other plans would stay due for ever, because each of their delete files also applies to segments of another
    job, to segments without a plan, or to files that are no segments.
    """
    if relieved is None:
        return []
    chosen: list[Plan] = []
    for job in jobs_of(plans).values():
        freed = relieved([one.path for plan in job for one in plan.inputs])
        chosen += [plan for plan in job if any(one.path in freed for one in plan.inputs)]
    return chosen


def plan_partition(lane: Lane, segments: Segments, state: State, force: bool = False, asked: str = "") -> Plan | None:
    """The plan of ``lane`` for one topic partition; None if it waits. The plan's reason includes ``asked``."""
    work = lane.look(state, force)
    return plan_of(lane, work, segments, state, asked) if isinstance(work, Work) else None


def plan_of(lane: Lane, work: Work, segments: Segments, state: State, asked: str = "") -> Plan:
    """The plan for ``work`` of ``lane`` in ``state``."""
    assert segments.snapshot_id is not None  # it holds the segments of the work
    policy, traits = state.policy, lane.traits
    by_position = traits.writes == "deletes"
    suspects = state.requested.suspects.keys() if state.requested else frozenset[str]()
    plan = Plan(
        table=segments.identifier,
        snapshot_id=segments.snapshot_id,
        lane=lane,
        topic=state.topic_partition.topic,
        partition=state.topic_partition.partition,
        now_ms=state.now_ms,
        reason=f"{work.reason}; asked for: {asked}" if asked else work.reason,
        inputs=work.inputs,
        removed_tombstones=work.beside,
        inputs_per_segment=work.inputs_per_segment,
        segment_bytes=policy.segment_target,
        clean_below=state.lowest_beside({segment.path for segment in work.inputs}),
        log_end_offset=state.log_end_offset,
        kept_from=None if state.kept_from == state.log_end_offset else state.kept_from,
        sequence_number=segments.snapshot_number if by_position else segments.sequence_number,
        rules=rules_of(lane, policy, segments.mapping),
        # A late run, or a machine whose clock is slow, plans at an earlier clock than a plan that is published. That is
        # safe, as it removes fewer records. Only delete horizons would be too early, so they count from the later
        # clock, and a tombstone stays for at least delete.retention.ms after all plans that were published before (C8).
        clock_behind_ms=max(0, (segments.newest_clock_ms or state.now_ms) - state.now_ms),
        transactional=traits.decides and any(one.transactional or one.control for one in work.inputs),
        markers=state.transactions.deciding(work.inputs) if traits.cleans else (),
        requests=work.requests,
        unread=any(segment.path in suspects for segment in work.inputs),
        position_deletes_max=policy.position_deletes_max if by_position else 0,
    )
    if traits.cleans and plan.older:
        stay = may_stay(work.inputs, plan.clean_below, state.now_ms)
        plan = plan.model_copy(update={"may_stay": tuple(sorted(stay))})
    return plan.sealed()


def _first(lines: Sequence[str], rest: str) -> Iterator[str]:
    yield from lines[:SHOWN]
    if len(lines) > SHOWN:
        yield f"{rest}: {len(lines) - SHOWN} more"
