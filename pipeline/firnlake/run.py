"""Run all steps (sense, plan, compact, validate and publish) for a table in one process.

Lane `retain` needs neither `compact` nor `validate`. The DAG of a table runs the same steps, each as a task.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from firnlake.engine.engine import Engine
from firnlake.errors import ConflictError, FirnError, OutcomeUnknownError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.garbage import collect
from firnlake.job.plan import Plan
from firnlake.lanes import Lane
from firnlake.plan.make import LanePlans, Postponed, check_clock, plan_work
from firnlake.plan.read_states import EVERYTHING, Scope
from firnlake.publish.publish import Publication, PublishResult, publish_stages, retain_plans

log = logging.getLogger(__name__)

MAX_ROUNDS = 100
"""Maximum number of rounds with ``until_idle``. Each round reduces the due work, so only a defect exceeds the maximum.

A round that postpones plans because the budgets of a run are full does not count.
"""


@dataclass
class LaneRun:
    """Outcome of one lane in a round. ``failures`` maps plan titles to errors; ``seconds`` maps steps to wall time."""

    lane: Lane
    plans: Sequence[Plan]
    publications: list[Publication] = field(default_factory=list)
    failures: dict[str, FirnError | str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    postponed: Sequence[Postponed] = ()
    """Due plans that exceed the budgets of this round and wait for the next round or run."""

    def add(self, published: PublishResult) -> None:
        """Add ``published``, the outcome of the lane's plans, with the plans' titles in place of their ids."""
        titles = {plan.id: plan.title for plan in self.plans}
        self.publications += published.publications
        for one in published.publications:
            # Another process may have published the plan first.
            self.failures.pop(titles.get(one.plan_id, ""), None)
        for plan_id, error in published.failures.items():
            self.failures.setdefault(titles[plan_id], error)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[step] = self.seconds.get(step, 0.0) + time.monotonic() - started


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
    rounds = 0
    if len(lanes) > 1:
        lanes = [lane for lane in lanes if not scope.obstacle(lane)]
    while rounds < (MAX_ROUNDS if until_idle else 1):
        worked = waiting = False
        for lane in lanes:
            done = LaneRun(lane, ())
            with done.timed("plan"):
                try:
                    work = plan_work(lake, identifier, lane, now_ms, force, scope, lanes)
                except RefusedError as error:
                    if not lane.traits.serves_requests or len(lanes) == 1:
                        raise
                    # Unreadable requests to erase keys must not keep the other lanes waiting.
                    done.failures[f"{identifier} {lane}"] = error
                    work = LanePlans(identifier, [], [], [], [])
                for line in work.later():
                    log.warning("%s: %s", identifier, line)
                done.plans = [plan for plan in work.plans if plan.topic_partition not in failed]
                done.postponed = work.postponed
            if done.plans:
                if lane.traits.writes == "nothing":
                    _drop(lake, done)
                else:
                    _work(lake, done, engines)
                titles = {plan.title: plan.topic_partition for plan in done.plans}
                failed |= {titles[title] for title in done.failures}
                worked = worked or bool(done.publications)
                waiting = waiting or any(not one.too_large for one in done.postponed)
            yield done
        if not worked or force or not until_idle:
            return
        rounds += not waiting


def _drop(lake: Lake, done: LaneRun) -> None:
    from firnlake.validate.validate import refused_drops

    with done.timed("validate and publish"):
        done.add(retain_plans(lake, done.plans, refused_drops))


def _work(lake: Lake, done: LaneRun, engines: Callable[[int], Engine]) -> None:
    # A run with nothing to do must not wait for these imports.
    from firnlake.compact.compact import compact
    from firnlake.validate.validate import validate

    with done.timed("engine"):
        import firnlake_expectations.checkpoint  # noqa: F401  # before compaction loads DuckDB, as said there

        engine = engines(sum(plan.read_bytes for plan in done.plans))
    with done.timed("compact"):
        outcomes = compact(lake, done.plans, engine)
    done.failures |= {outcome.plan.title: outcome.error for outcome in outcomes if outcome.error}
    with done.timed("validate"):
        # Plans of one job share a stage.
        staged: dict[str, list[Plan]] = defaultdict(list)
        for outcome in outcomes:
            if not outcome.error:
                staged[outcome.stage].append(outcome.plan)
        judged = validate(lake, staged, engine)
    for result in judged:
        if not result.passed:
            concerned = [plan for plan in staged[result.stage] if result.plan in (None, plan.id)]
            done.failures |= {plan.title: result.error or result.failure for plan in concerned}
    with done.timed("publish"):
        # A plan that is in conflict may have been published by another process.
        ready = {result.stage for result in judged if result.passed or isinstance(result.error, ConflictError)}
        done.add(publish_stages(lake, {name: plans for name, plans in staged.items() if name in ready}))
    with done.timed("collect"):
        # Nobody knows yet what became of a commit whose outcome is unknown.
        unknown = {title for title, error in done.failures.items() if isinstance(error, OutcomeUnknownError)}
        collect(lake, done.plans[0].table, [plan.id for plan in done.plans if plan.title not in unknown])
