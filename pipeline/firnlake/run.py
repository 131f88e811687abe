"""Run all steps (sense, plan, compact, validate and publish) for a table in one process.

The DAG of a table runs the same steps, each as a task.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from firnlake.engine.engine import Engine
from firnlake.errors import OutcomeUnknownError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.garbage import collect
from firnlake.job.outcomes import PlanOutcome
from firnlake.job.plan import Plan
from firnlake.lanes import Lane
from firnlake.plan.make import LaneRun, check_clock, plan_lanes
from firnlake.plan.read_states import EVERYTHING, Scope
from firnlake.publish.publish import publish

log = logging.getLogger(__name__)


def run(
    lake: Lake,
    identifier: str,
    now_ms: int,
    engines: Callable[[int], Engine],
    lanes: Sequence[Lane] = tuple(Lane),
    force: bool = False,
    until_idle: bool = False,
    scope: Scope = EVERYTHING,
) -> Iterator[LaneRun]:
    """Run ``lanes`` over table ``identifier`` and yield the outcome of each lane when the lane ends.

    ``engines`` returns the engine for a number of input bytes and is called only when a lane has plans. With
    ``until_idle`` the lanes run again until nothing is due; a failed topic partition is not retried within the run. If
    there are several lanes, lanes that can't respect ``scope`` are left out. Plans that failed before (C20) are left
    out without a word, because the table's status tells them. When a lane ends, the run deletes what is left of its
    plans, and stages that have lost their inputs (C25). Raises RefusedError before anything else if ``now_ms`` is too
    far ahead of this machine's clock.
    """
    check_clock(identifier, now_ms)
    failed: set[tuple[str, int]] = set()
    if len(lanes) > 1:
        lanes = [lane for lane in lanes if not scope.obstacle(lane)]
    while True:
        worked = False
        for lane in lanes:
            started = time.monotonic()
            try:
                (done,) = plan_lanes(lake, identifier, now_ms, force, scope, [lane], lanes)
            except RefusedError as error:
                if not lane.traits.serves_requests or len(lanes) == 1:
                    raise
                # Unreadable requests to erase keys must not keep the other lanes waiting.
                done = LaneRun(identifier, lane)
                done.add([PlanOutcome("", "", f"{identifier} {lane}", error)])
            for line in done.later():
                log.warning("%s: %s", identifier, line)
            done.plans = [plan for plan in done.plans if plan.topic_partition not in failed]
            done.seconds["plan"] = time.monotonic() - started
            if done.plans:
                _work(lake, done, engines)
                failed |= {plan.topic_partition for plan in done.plans if done.outcomes[plan.id].error}
                worked = worked or bool(done.publications)
            yield done
        # What is published reduces the due work, except that of a forced run.
        if not worked or force or not until_idle:
            return


def _work(lake: Lake, done: LaneRun, engines: Callable[[int], Engine]) -> None:
    # A run with nothing to do must not wait for these imports.
    from firnlake.compact.compact import compact
    from firnlake.validate.validate import validate

    with done.timed("engine"):
        import firnlake_expectations.checkpoint  # noqa: F401  # before compaction loads DuckDB, as said there

        engine = engines(sum(plan.read_bytes for plan in done.plans))
    with done.timed("compact"):
        done.add(compact(lake, done.plans, engine))
    with done.timed("validate"):
        done.add(validate(lake, _unfinished(done), engine))
    with done.timed("publish"):
        done.add(publish(lake, _unfinished(done)))
    with done.timed("collect"):
        # Nobody knows yet what became of a commit whose outcome is unknown.
        unknown = {one.plan_id for one in done.outcomes.values() if isinstance(one.error, OutcomeUnknownError)}
        collect(lake, done.plans[0].table, [plan.id for plan in done.plans if plan.id not in unknown])


def _unfinished(done: LaneRun) -> dict[str, list[Plan]]:
    """The plans that have neither failed nor been published, by their stages, which plans of one job share."""
    staged: dict[str, list[Plan]] = defaultdict(list)
    for plan in done.plans:
        outcome = done.outcomes[plan.id]
        if not outcome.error and outcome.snapshot_id is None:
            staged[outcome.stage].append(plan)
    return staged
