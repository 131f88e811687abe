"""Makes plans from states. Functions that take a ``lake`` read the table and its stages; the others are pure."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from functools import cache, partial

from firnlake.clock import ahead, show_ms, show_seconds, to_ms
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.failures import FailedPlan, failed_plans, waiting
from firnlake.job.inputs import rules_of
from firnlake.job.job import jobs_of
from firnlake.job.plan import Input, Plan
from firnlake.lanes import Lane
from firnlake.lanes.answer import Work
from firnlake.lanes.full import may_stay
from firnlake.lanes.look import look
from firnlake.plan.lane_plans import LanePlans, Postponed, admit
from firnlake.plan.order import rank
from firnlake.plan.read_states import EVERYTHING, Scope, Sensed, read_once
from firnlake.table.segments import Segments
from firnlake.table.state import State

log = logging.getLogger(__name__)


def plan_table(
    lake: Lake,
    identifier: str,
    lane: Lane | str,
    now: datetime | int,
    force: bool = False,
    scope: Scope = EVERYTHING,
    lanes: Collection[Lane] = (),
) -> list[Plan]:
    """The plans of ``plan_work``, to be carried out; logs a warning for each plan that is left out.

    Raises RefusedError, too, if ``now`` is too far ahead of this machine's clock.
    """
    check_clock(identifier, now if isinstance(now, int) else to_ms(now))
    work = plan_work(lake, identifier, lane, now, force, scope, lanes)
    for line in work.behind:
        log.warning("%s: %s", identifier, line)
    work.warn()
    return work.plans


def check_clock(identifier: str, now_ms: int) -> None:
    """Raise RefusedError if plans made at ``now_ms``, epoch milliseconds, must not be carried out (``clock.ahead``)."""
    if problem := ahead(now_ms):
        raise RefusedError(f"table {identifier}: the time {problem} (firn plan, status and explain may look ahead)")


def plan_work(
    lake: Lake,
    identifier: str,
    lane: Lane | str,
    now: datetime | int,
    force: bool = False,
    scope: Scope = EVERYTHING,
    lanes: Collection[Lane] = (),
) -> LanePlans:
    """Plan the work that is due in ``lane`` of table ``identifier`` at ``now`` (aware, or epoch milliseconds).

    The plans are in the order of work (see ``firnlake.plan.order``), within the budgets of one run of a lane
    (``firn.run.max.bytes``). Three lanes have no budgets: `retain`, because it reads and writes only metadata;
    `erase`, because it must erase all requested keys at once; `convert`, because it reads only a few columns. A plan of
    `convert` is left out unless its job makes an equality delete file needless.

    ``lanes`` are all lanes of the run (``_works``).
    ``scope`` restricts the plans, and the plans' reasons name the scope. A plan that failed on the same segments before
    is left out unless ``force`` asks for another try (C20). Changes nothing. Raises RefusedError for an unknown table,
    a table without the record columns, a wrong property, or a scope that the lane or the table can't keep to.
    """
    lane, now_ms = Lane(lane), now if isinstance(now, int) else to_ms(now)
    scope.check(lane)
    # Retention drops segments whatever they hold, so it need not read transactions.
    reads = lane.traits.writes != "nothing"
    with lake.answering():
        sensed = read_once(lake, identifier, now_ms, look_at_transactions=reads, scope=scope)
        return _works(lake, lanes, sensed, force, str(scope))(lane)


def plan_lanes(
    lake: Lake, identifier: str, now_ms: int, force: bool = False, scope: Scope = EVERYTHING
) -> dict[Lane, LanePlans]:
    """The plans of ``plan_work`` for a run of all lanes that can keep to ``scope``, by lane; the table is read once."""
    lanes = [lane for lane in Lane if not scope.obstacle(lane)]
    return dict(_each_lane(lake, identifier, lanes, now_ms, force, scope))


def first_due(
    lake: Lake,
    identifier: str,
    lanes: Collection[Lane],
    now: datetime | int,
    force: bool = False,
    scope: Scope = EVERYTHING,
) -> Lane | None:
    """The first of ``lanes`` for which ``plan_work`` returns plans; None if there is no such lane.

    The table is read once for all lanes. Logs a warning for each plan of an earlier lane that is left out. Raises
    RefusedError when no lane can be planned.
    """
    now_ms = now if isinstance(now, int) else to_ms(now)
    for lane, work in _each_lane(lake, identifier, lanes, now_ms, force, scope):
        if work.plans:
            return lane
        work.warn()
    return None


def _each_lane(
    lake: Lake, identifier: str, lanes: Collection[Lane], now_ms: int, force: bool, scope: Scope
) -> Iterator[tuple[Lane, LanePlans]]:
    with lake.answering():
        sensed = read_once(lake, identifier, now_ms, scope=scope)
        work = _works(lake, lanes, sensed, force, str(scope))
        yield from ((lane, work(lane)) for lane in lanes)


def _behind(sensed: Sensed) -> tuple[str, ...]:
    now_ms = sensed.now_ms
    behind = behind_ms(sensed.segments, now_ms)
    line = (
        f"the clock {show_ms(now_ms)} is {show_seconds(behind)} behind the newest commit of Firn; new delete horizons "
        "count from that commit"
    )
    return (line,) if behind else ()


def _works(lake: Lake, lanes: Collection[Lane], sensed: Sensed, force: bool, asked: str) -> Callable[[Lane], LanePlans]:
    """A function from a lane to its work in a run of ``lanes``, which plans each lane once.

    A plan is left out if a plan of the highest lane of the run takes all its segments: the run would rewrite these
    segments twice, with the same result (C13).
    """
    top = max(lanes, key=lambda lane: -1 if lane.traits.level_out is None else lane.traits.level_out, default=None)

    @cache
    def work(lane: Lane) -> LanePlans:
        level = lane.traits.level_out
        below = top and level is not None and top.traits.level_out is not None and level < top.traits.level_out
        return _work(lake, lane, sensed, force, asked, partial(work, top) if below else None)

    return work


def _work(
    lake: Lake, lane: Lane, sensed: Sensed, force: bool, asked: str, top: Callable[[], LanePlans] | None
) -> LanePlans:
    identifier, states, behind = sensed.segments.identifier, sensed.states(every=force), _behind(sensed)
    due = due_plans(lane, sensed.segments, states, force, asked)
    if due and top:
        # The plans that the run really gets: without those that failed before, or that exceed its budgets.
        taken = {plan.topic_partition: plan for plan in top().plans}
        due = [plan for plan in due if not ((own := taken.get(plan.topic_partition)) and own.takes(plan))]
    failed: dict[str, FailedPlan] = {}
    if due and not force:
        repeated = waiting(failed_plans(lake, identifier), due)
        failed = {plan.id: marker for plan, marker in repeated}
    plans = [plan for plan in due if plan.id not in failed]
    postponed: list[Postponed] = []
    if lane.traits.level_out is not None and states:
        # The budgets of a run are set for the table, so every topic's policy has the same budgets.
        plans, postponed = admit(plans, states[0].policy.run_max_bytes)
    elif lane.traits.writes == "deletes":
        plans = _relieving(plans, sensed.segments.relieved)
    return LanePlans(identifier, plans, jobs_of(plans), postponed, list(failed.values()), states, behind)


def due_plans(
    lane: Lane, segments: Segments, states: Iterable[State], force: bool = False, asked: str = ""
) -> list[Plan]:
    """The due plans of ``lane`` for ``states``, in the order of work; ``asked`` describes the scope of the run."""
    works = [(work, state) for state in states if isinstance(work := look(lane, state, force), Work)]
    in_order = sorted(works, key=lambda one: rank(lane, *one))
    plans = (plan_of(lane, work, segments, state, asked) for work, state in in_order)
    return [plan for plan in plans if plan is not None and plan.changes]


def _relieving(plans: list[Plan], relieved: Callable[[Collection[str]], Collection[str]] | None) -> list[Plan]:
    """Those ``plans`` of lane `convert` whose job, as a whole, allows the removal of an equality delete file.

    The other plans would stay due for ever, because each of their delete files also applies to segments of another
    job, to segments without a plan, or to files that are no segments.
    """
    if relieved is None:
        return []
    chosen: list[Plan] = []
    for job in jobs_of(plans):
        freed = relieved([one.path for plan in job for one in plan.inputs])
        chosen += [plan for plan in job if any(one.path in freed for one in plan.inputs)]
    return chosen


def behind_ms(segments: Segments, now_ms: int) -> int:
    """Milliseconds by which the clock ``now_ms`` is behind the newest clock of a published plan; 0 if it is not behind.

    The clock is behind in a late run that was due before the last run, or on a machine whose clock is slow. Such a run
    is safe, because a plan with an earlier clock removes fewer records. Only delete horizons would be too early.
    Therefore these count from the later clock, so that a tombstone stays for at least delete.retention.ms after all
    plans that were published before (C8).
    """
    return max(0, (segments.newest_clock_ms or now_ms) - now_ms)


def plan_partition(lane: Lane, segments: Segments, state: State, force: bool = False, asked: str = "") -> Plan | None:
    """The plan of ``lane`` for one topic partition; None if it waits. The plan's reason includes ``asked``."""
    work = look(lane, state, force)
    return plan_of(lane, work, segments, state, asked) if isinstance(work, Work) else None


def plan_of(lane: Lane, work: Work, segments: Segments, state: State, asked: str = "") -> Plan | None:
    """The plan for ``work`` of ``lane`` in ``state``; None for a table without a snapshot."""
    if segments.snapshot_id is None:
        return None
    policy, traits = state.policy, lane.traits
    by_position = traits.writes == "deletes"
    suspects = state.requested.suspects if state.requested else frozenset[str]()
    plan = Plan(
        table=segments.identifier,
        table_uuid=segments.table_uuid,
        snapshot_id=segments.snapshot_id,
        lane=lane,
        topic=state.topic_partition.topic,
        partition=state.topic_partition.partition,
        now_ms=state.now_ms,
        reason=f"{work.reason}; asked for: {asked}" if asked else work.reason,
        inputs=tuple(map(Input.of, work.inputs)),
        removed_tombstones=tuple(map(Input.of, work.beside)),
        inputs_per_segment=work.inputs_per_segment,
        segment_bytes=policy.segment_target,
        clean_below=state.lowest_beside({segment.path for segment in work.inputs}),
        log_end_offset=state.log_end_offset,
        kept_from=None if state.kept_from == state.log_end_offset else state.kept_from,
        sequence_number=segments.snapshot_number if by_position else segments.sequence_number,
        rules=rules_of(lane, policy, segments.mapping),
        clock_behind_ms=behind_ms(segments, state.now_ms),
        waiting_segments=work.waiting_segments,
        transactional=traits.decides and any(one.transactional or one.control for one in work.inputs),
        markers=state.transactions.deciding(work.inputs) if traits.cleans else (),
        requests=work.requests,
        unread=any(segment.path in suspects for segment in work.inputs),
        position_deletes_max=policy.position_deletes_max if by_position else 0,
    )
    if traits.cleans and plan.tail_is_older:
        stay = may_stay(work.inputs, plan.clean_below, state.now_ms)
        inputs = tuple(Input.of(segment, may_stay=segment.path in stay) for segment in work.inputs)
        plan = plan.model_copy(update={"inputs": inputs})
    return plan.sealed()
