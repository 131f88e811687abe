"""The tasks of a table's DAG, in the order of a run. Each calls the functions that the command `firn` calls as well.

Every task has a process of its own, whose memory is freed at its end; a task that is killed takes Spark's JVM with it.
Nothing heavy is imported before a task runs, because parsing a DAG file imports this module.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Asset, AssetAlias, TriggerRule, Variable, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from firnlake.airflow.configuration import TableSettings
from firnlake.airflow.connections import use_spark
from firnlake.airflow.params import ALL, LANES, scope_of
from firnlake.airflow.plugin import TableLink, address_of
from firnlake.errors import FirnError, GoneError, OutcomeUnknownError, RefusedError, UnavailableError
from firnlake_expectations.data_quality import report_of
from firnlake_expectations.wording import count

if TYPE_CHECKING:
    from airflow.sdk import Context

    from firnlake.airflow.figures import MappedJob
    from firnlake.engine.engine import Engines
    from firnlake.lanes import Lane
    from firnlake.plan.read_states import Scope

log = logging.getLogger(__name__)

SHOWN = 20
"""Maximum number of waiting topic partitions that a failed run names."""
PUBLISH, REJECT = "Publish", "Reject"
SHOWN_STAGES = "shown"
"""Key under which the task keeps the names of the stages whose figures it has shown to a person."""


def asset_of(table: str, name: str, kind: str) -> Asset:
    """The asset ``name`` of ``table``, with a URI for its ``kind``."""
    # Airflow drops the part of a URI after # and sorts the part after ?, so two tables could share a URI.
    return Asset(name, f"firn://{kind}/{quote(table, safe='')}")


def compacted(table: str) -> Asset:
    """The asset for the compacted table, on which other DAGs may be scheduled. Events have the commits' figures."""
    return asset_of(table, table, "tables")


def outlet_of(table: str) -> AssetAlias:
    """The outlet of publishing tasks: an alias that a task resolves to the compacted table when it has published."""
    return AssetAlias(f"publications of Firn in {table}")


@task.sensor(poke_interval=15, mode="reschedule", timeout=24 * 3600)
def turn(table: str) -> bool:
    """Wait without a worker slot until no other run works on the table, because two runs would plan the same work.

    Airflow's `max_active_runs` does not count backfills, and a cleared run may start again. So a variable of Airflow
    with the DAG's name has the id of the run whose turn it is; a run that ended without giving its turn back loses it.
    Two runs that take it at the very same moment may both work; then one of two equal plans is in conflict (C22).
    """
    return _has_turn(table)


def _has_turn(table: str) -> bool:
    """True if it is this run's turn to work on ``table``, which it takes if nobody has it."""
    context = get_current_context()
    run, instance = context["dag_run"], context["ti"]
    holder = Variable.get(run.dag_id, default="")
    if holder == run.run_id:
        return True
    if holder and instance.get_dr_count(run.dag_id, run_ids=[holder], states=["queued", "running"]):
        log.info("waiting until run %s has finished its work on %s", holder, table)
        return False
    Variable.set(run.dag_id, run.run_id, description=f"The run that works on table {table}")
    return bool(Variable.get(run.dag_id, default="") == run.run_id)


@task
def due(table: str) -> None:
    """Skip the lanes that this run leaves out, and those before the first lane that has work: no lane before that
    changes the table, so none of them can become due. A task for each such lane would take seconds."""
    wanted = _lanes()
    # If the run is for a single lane, the lane's own task says that nothing is due.
    idle = _idle(table, wanted) if len(wanted) > 1 else ()
    skipped = [f"{lane}.plan" for lane in LANES if lane not in wanted or lane in idle]
    raise DownstreamTasksSkipped(tasks=skipped)  # type: ignore[no-untyped-call]  # Airflow has no types there


def _idle(table: str, lanes: "Sequence[Lane]") -> "Sequence[Lane]":
    """Those of ``lanes`` that come before the first lane with plans. Empty if planning fails, so that a lane's own task
    reports the error."""
    from firnlake.iceberg.catalog import Lake
    from firnlake.plan.make import plan_lanes

    try:
        for work in plan_lanes(Lake.load(), table, *_terms(), lanes):
            if work.plans:
                return lanes[: lanes.index(work.lane)]
            work.warn()
    except RefusedError:
        return ()
    return lanes


def _lanes() -> "list[Lane]":
    """The lanes that this run includes."""
    from firnlake.lanes import Lane

    asked = get_current_context()["params"]
    if asked["lane"] != ALL:
        return [Lane(asked["lane"])]
    return [lane for lane in map(Lane, LANES) if scope_of(asked).obstacle(lane) is None]


def _terms() -> "tuple[int, bool, Scope]":
    """The clock of this run's decisions (epoch milliseconds), whether it ignores thresholds, and its scope.

    The clock is the run's logical date or, without one, the time at which the run was due, so each run of a backfill
    decides at its own date. It is never ahead of this machine's, even if the date comes from a browser whose clock is:
    a later time would remove tombstones and segments too early.
    """
    from firnlake import clock

    context = get_current_context()
    run, asked = context["dag_run"], context["params"]
    at_ms = clock.to_ms(run.logical_date or run.run_after)
    return min(at_ms, clock.now_ms()), asked["force"], scope_of(asked)


@task
def plan(table: str, lane: str, connection: str | None, plans_per_job: int) -> "list[MappedJob]":
    """Find the due work of the lane from metadata, and write the plans, in jobs of up to `plans_per_job` plans; the
    task is skipped if it is not this run's turn, if the run leaves the lane out, if nothing is due, or in a dry run.
    Starts no JVM.

    `connection` is the Spark connection of the jobs; None if they need no Spark.
    """
    from firnlake.airflow.figures import mapped_jobs
    from firnlake.iceberg.catalog import Lake
    from firnlake.plan.make import plan_table

    if not _has_turn(table):
        raise AirflowSkipException(f"nothing is planned: it is not the turn of this run to work on {table}")
    if connection:
        use_spark(connection, {})
    lake, lanes = Lake.load(), {str(one): one for one in _lanes()}
    if lane not in lanes:
        raise AirflowSkipException(f"this run leaves lane {lane} out")
    plans = plan_table(lake, table, lanes[lane], *_terms(), lanes.values())
    for one in plans:
        log.info("%s", one.title)
    if not plans:
        raise AirflowSkipException(f"nothing is due in lane {lane}")
    if get_current_context()["params"]["dry_run"]:
        raise AirflowSkipException(f"dry run: {count(len(plans), 'plan')} not run")
    return list(mapped_jobs(lake, plans, plans_per_job))


@task(map_index_template="{{ task.op_kwargs['job']['name'] }}")
def compact(job: "MappedJob", engine: str, connection: str, spark: dict[str, str]) -> None:
    """Write the results of the job's plans into its stages, where readers of the table do not see them."""
    from firnlake.compact.compact import compact as compact_plans
    from firnlake.iceberg.catalog import Lake
    from firnlake.job.stage import Stage

    lake = Lake.load()
    plans = [one for name in job["stages"] for one in Stage.load(lake, name).plans]
    with _engines(job, engine, connection, spark) as started:
        outcomes = compact_plans(lake, plans, started.of(job["input_bytes"]))
    for one in outcomes:
        if one.counts:
            log.info("%s: %s in, %s out", one.title, one.counts.records_in, one.counts.records_out)
    _raise_any(one.error for one in outcomes if one.error)


@task(map_index_template="{{ task.op_kwargs['job']['name'] }}", trigger_rule=TriggerRule.ALL_DONE)
def validate(job: "MappedJob", engine: str, connection: str, spark: dict[str, str]) -> None:
    """Let Great Expectations validate every result of the job. Plans that were not compacted do not keep the others
    from being validated; only large jobs need a JVM."""
    from firnlake.iceberg.catalog import Lake
    from firnlake.validate.validate import validate as judge_stages

    with _engines(job, engine, connection, spark) as started:
        judged = judge_stages(Lake.load(), job["stages"], started.of(job["input_bytes"]))
    for one in judged:
        log.info("%s: %s", one.title, one.error or "passed")
    _raise_any(one.error for one in judged if one.error)


@contextmanager
def _engines(job: "MappedJob", engine: str, connection: str, spark: Mapping[str, str]) -> "Iterator[Engines]":
    """The engines of a task on the Spark of ``connection``; ``spark`` are settings of a driver that the task starts."""
    from firnlake.engine.engine import Engines

    if engine != "local":
        use_spark(connection, spark)
    with Engines(engine, f"firn {job['name']}", tell=log.info) as started:
        yield started


def _raise_any(errors: Iterable[FirnError]) -> None:
    """Log ``errors``, and raise one of them: if another try may help, one that says so."""
    failures = list(errors)
    for error in failures:
        log.error("%s", error)
    if failures:
        raise min(failures, key=lambda error: isinstance(error, RefusedError))


class PublishOperator(HITLOperator):
    """Publish every result that passed, with one commit per job; the other results do not delay publication.

    A run with approval shows a person the figures and waits for the answer without a worker slot. If no answer comes in
    time, nothing is published.
    """

    template_fields: Collection[str] = ("jobs", *HITLOperator.template_fields)

    def __init__(self, *, lane: str, jobs: Any, settings: TableSettings, **kwargs: Any) -> None:
        super().__init__(
            task_id="publish",
            subject=f"Publish the results of lane {lane} in {settings.name}?",
            options=[PUBLISH, REJECT],
            response_timeout=timedelta(minutes=settings.approval_minutes),
            assigned_users=[{"id": user, "name": user} for user in settings.approvers] or None,
            doc_md=PublishOperator.__doc__,
            **kwargs,
        )
        self.operator_extra_links = (TableLink(settings.name),)
        self.table = settings.name
        self.lane = lane
        self.jobs = jobs

    def execute(self, context: "Context") -> dict[str, str]:
        """Publish, or defer the task until a person answers."""
        stages = [stage for job in self.jobs for stage in job["stages"]]
        if not context["params"]["ask"]:
            return self._publish(stages)

        from firnlake.airflow.figures import figures_of, update
        from firnlake.iceberg.catalog import Lake

        lake = Lake.load()
        update(lake, self.table, judged=True)
        self.body = f"{figures_of(lake, stages)}\n\n[Data-quality report]({address_of(report_of(self.table))})"
        # Whoever clears the task that plans while a person thinks changes what `jobs` says.
        context["ti"].xcom_push(SHOWN_STAGES, stages)
        waits: dict[str, str] = super().execute(context)
        return waits

    def execute_complete(self, context: "Context", event: dict[str, Any]) -> dict[str, str]:
        """Resume after an answer or a timeout."""
        if event.get("error_type") == "timeout":
            raise AirflowFailException(f"no answer within {self.response_timeout}: nothing was published")
        answer = super().execute_complete(context, event)
        shown: list[str] = context["ti"].xcom_pull(task_ids=self.task_id, key=SHOWN_STAGES)
        if answer["chosen_options"] == [PUBLISH]:
            return self._publish(shown)

        from firnlake.iceberg.catalog import Lake
        from firnlake.job.garbage import discard

        lake = Lake.load()
        for stage in shown:
            discard(lake, stage)
        who = answer["responded_by_user"] or {}
        raise AirflowSkipException(f"{who.get('name', 'somebody')} rejected the results: nothing was published")

    def _publish(self, stages: Iterable[str]) -> dict[str, str]:
        """Publish ``stages``; returns what failed, by topic partition. An event has the figures of what was published.

        Raises an error if a service did not answer and the task has tries left. Published plans stay published.
        """
        from firnlake.iceberg.catalog import Lake
        from firnlake.job.outcomes import staged
        from firnlake.publish.publish import publish
        from firnlake.table.history import Counts

        lake, context = Lake.load(), get_current_context()
        known = staged(lake, stages)
        names = {plan.id: str(plan.topic_partition) for plans in known.values() for plan in plans}
        failed: dict[str, str] = {}
        unanswered: list[FirnError] = []
        outcomes = publish(lake, known)
        for one in outcomes:
            if one.error is None:
                log.info("%s: published as snapshot %s", one.title, one.snapshot_id)
            elif isinstance(one.error, GoneError) and not one.plan_id:
                # Other commits have taken its inputs, or a person has discarded it.
                log.info("%s", one.error)
            else:
                log.error("%s was not published: %s", one.title, one.error)
                name = names.get(one.plan_id, one.title)
                failed[name] = f"{name} ({self.lane}): {one.error}"
                unanswered += [one.error] if isinstance(one.error, UnavailableError | OutcomeUnknownError) else []
        published = [one for one in outcomes if one.snapshot_id is not None and one.counts]
        if published:
            figures = Counts.total([one.counts for one in published if one.counts]).model_dump()
            said: dict[str, Any] = {name: number for name, number in figures.items() if number}
            # As text, because 64-bit numbers lose digits in a browser.
            said |= {"lane": self.lane, "snapshot_id": str(published[-1].snapshot_id)}
            said["topic_partitions"] = len(published)
            context["outlet_events"][outlet_of(self.table)].add(compacted(self.table), extra=said)
        if unanswered and context["ti"].try_number <= context["ti"].max_tries:
            raise unanswered[0]
        return failed


@task(trigger_rule=TriggerRule.ALL_DONE)
def report(table: str, outcomes: list[dict[str, str] | None]) -> list[str]:
    """Build the data-quality pages and the table's page, and send its metrics.

    Returns a line for each topic partition that waits for a person who was not told of it within a day, and for files
    of no topic partition; what failed in this run is told anyway.
    """
    from firnlake import clock
    from firnlake.airflow.figures import update
    from firnlake.iceberg.catalog import Lake
    from firnlake.inspect.status import news

    lake = Lake.load()
    status = update(lake, table, judged=any(outcome is not None for outcome in outcomes))
    if waiting := status.waiting():
        log.warning("%s", waiting)
    failed = {name for outcome in outcomes for name in outcome or ()}
    with lake.answering():
        fresh = news(lake.table(table), status, clock.now_ms(), failed)
    lines = [f"{name} waits for a person: {reason}" for name, reason in islice(fresh.items(), SHOWN)]
    more = len(fresh) - len(lines)
    return [*lines, f"{count(more, 'more topic partition')} wait: see `firn status {table}`"] if more else lines


@task(trigger_rule=TriggerRule.ALL_DONE, retries=0)
def verdict(outcomes: list[dict[str, str] | None], waiting: list[str] | None) -> None:
    """Fail the run if a topic partition or a task failed, and name each; all others are already published.

    Also fail it once, and then once a day, for topic partitions that wait for a person.
    """
    context = get_current_context()
    run = context["dag_run"]
    states = context["ti"].get_task_states(dag_id=run.dag_id, run_ids=[run.run_id])[run.run_id]
    problems = [problem for outcome in outcomes for problem in (outcome or {}).values()]
    problems += [f"task {name} failed: see its log" for name, state in states.items() if state == "failed"]
    problems += waiting or ()
    if problems:
        raise AirflowFailException("\n".join(problems))


@task
def sweep(table: str) -> None:
    """Delete stages that have lost their inputs, unless this is a dry run, and let the next run begin.

    The other stages of a failed run stay for three days, so that a failed task that is cleared after a repair continues
    with the same plans.
    """
    from firnlake.iceberg.catalog import Lake
    from firnlake.job.garbage import collect

    context = get_current_context()
    if not context["params"]["dry_run"]:
        for stage, reason in collect(Lake.load(), table).items():
            log.info("deleted %s: %s", stage, reason)
    run = context["dag_run"]
    if Variable.get(run.dag_id, default="") == run.run_id:
        Variable.delete(run.dag_id)
