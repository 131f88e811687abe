"""The DAG of one table: a task group for each lane, in sequence, and then the tasks report, verdict and sweep."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import (  # type: ignore[attr-defined]
    DAG,
    AssetOrTimeSchedule,
    AssetWatcher,
    AsyncCallback,
    CronTriggerTimetable,
    DeadlineAlert,
    DeadlineReference,
    ExceptionRetryPolicy,
    RetryAction,
    RetryRule,
    TaskGroup,
    TriggerRule,
    chain,
    task_group,
)
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.module_loading import import_string  # type: ignore[attr-defined]
from airflow.timetables.trigger import CronTriggerTimetable as SchedulersTimetable

from firnlake.airflow import tasks
from firnlake.airflow.configuration import Settings, TableSettings
from firnlake.airflow.params import LANES, RETAIN, params
from firnlake.airflow.plugin import TableLink
from firnlake.airflow.trigger import ThresholdTrigger
from firnlake.errors import ConflictError, OutcomeUnknownError, RefusedError, UnavailableError
from firnlake_expectations.wording import count

log = logging.getLogger(__name__)

_DOC = """
### {table}

Kafka-grade log compaction, lane by lane: {lanes}. Each lane plans the work that is due by the table's properties and
runs it, with or without Spark. Great Expectations validates every result. Then one atomic commit publishes the result,
while writers keep appending. If nothing is due, Spark does not start.

- A run starts when a threshold is crossed, on schedule (`{schedule}`, UTC), or manually (▶ opens a form).
- The clock of a run is its logical date, or the time at which the run was due; in a backfill, each run has its own.
- A topic partition that fails does not delay the others. The task `verdict` then fails the run and says what failed.
  It also tells, once and then once a day, which topic partitions wait for a person.
- `firn status {table}`, or the page *Firn* in the menu, shows what is due and what is blocked.
"""

# Timeouts and lost commit races are worth a retry; a refusal would only be repeated.
RETRIES = ExceptionRetryPolicy(
    [
        RetryRule([UnavailableError, OutcomeUnknownError, ConflictError], RetryAction.RETRY),
        RetryRule(RefusedError, RetryAction.FAIL),
    ]
)


def default_args(settings: Settings) -> dict[str, Any]:
    """Default arguments of the tasks: their owner and their retries."""
    return {
        "owner": settings.owner,
        "retries": settings.retries,
        "retry_delay": timedelta(seconds=settings.retry_seconds),
        "retry_policy": RETRIES,
    }


def outline(settings: TableSettings) -> DAG:
    """The DAG of one table, still without tasks. Raises an error for every wrong setting, so a task raises none."""
    notifiers(settings)
    return DAG(
        dag_id=settings.dag_id,
        description=f"Retain, merge, clean and compact {settings.name}",
        doc_md=_DOC.format(table=settings.name, lanes=" → ".join(LANES), schedule=settings.schedule),
        tags=list(dict.fromkeys(["firn", settings.namespace, *settings.tags])),
        schedule=schedule_of(settings),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        auto_register=False,  # a DAG file registers only the DAGs that were built without an error
        is_paused_upon_creation=settings.paused,
        default_args=default_args(settings),
        deadline=deadlines(settings) or None,
    )


def schedule_of(settings: TableSettings) -> AssetOrTimeSchedule:
    """The schedule of a table's DAG: runs start when a lane becomes due, and at the times of a cron expression.

    The cron expression covers postponed or missed work. Raises ValueError for a wrong cron expression.
    """
    try:
        # The timetable of airflow.sdk is checked only when Airflow serializes the whole DAG file.
        SchedulersTimetable(settings.schedule, timezone="UTC").validate()
    except AirflowException as error:
        raise ValueError(f"schedule is {settings.schedule!r}: {error}; allowed: a cron expression") from error
    asset = tasks.asset_of(settings.name, f"{settings.name} is due", "due")
    if settings.watched:
        asset.watchers = [AssetWatcher(f"thresholds of {settings.name}", ThresholdTrigger(settings.name))]
    return AssetOrTimeSchedule(timetable=CronTriggerTimetable(settings.schedule, timezone="UTC"), assets=[asset])


def notifiers(settings: TableSettings) -> list[Callable[..., Any]]:
    """The notifiers of a table, ready to be called. Raises ValueError for a notifier that can't be created."""
    made = []
    for one in settings.notify:
        try:
            made.append(import_string(one.path)(**(one.model_extra or {})))
        except (ImportError, TypeError) as error:
            raise ValueError(
                f"notifier {one.path} can't be created: {error}; allowed: an installed Airflow notifier, with its own "
                "arguments"
            ) from error
    return made


def deadlines(settings: TableSettings) -> list[Any]:
    """The deadlines of the table's runs, counted from queueing: one per notifier, or just one, which logs overdue runs.

    Empty if ``deadline_minutes`` is not set.
    """
    if settings.deadline_minutes is None:
        return []
    late = {"table": settings.name, "minutes": settings.deadline_minutes}
    told = [late | {"notifier": one.path, "arguments": one.model_extra} for one in settings.notify]
    interval = timedelta(minutes=settings.deadline_minutes)
    return [
        DeadlineAlert(DeadlineReference.DAGRUN_QUEUED_AT, interval, AsyncCallback(overdue, arguments))
        for arguments in told or [late]
    ]


async def overdue(
    table: str,
    minutes: int,
    notifier: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
) -> None:
    """Report an overdue run in the triggerer's log, and by the notifier if there is one.

    The notifier gets the report as ``exception``, like a failed verdict. For deadlines, Airflow itself renders no
    templates, and awaits notifiers, though many can't be awaited. So this function renders the templates and calls it.
    """
    said = f"{table}: a run has not finished after {count(minutes, 'minute')} (deadline_minutes)"
    log.warning("%s", said)
    if notifier is not None:
        await asyncio.to_thread(import_string(notifier)(**(arguments or {})), dict(context or {}) | {"exception": said})


def build(settings: TableSettings) -> DAG:
    """The DAG of one table. A lane runs whatever the outcome of the lane before it, on the snapshot that that lane
    published."""
    with outline(settings) as dag:
        # Any, because these are references to results of tasks; the tasks receive the annotated types.
        before: Any = tasks.due(settings.name)
        chain(tasks.turn(settings.name), before)
        outcomes: list[Any] = []
        for lane in LANES:
            jobs, published = lane_tasks(settings, lane)
            chain(before, jobs)
            before = published.output
            outcomes.append(before)
        reported: Any = tasks.report(settings.name, outcomes)
        reported.operator.operator_extra_links = (TableLink(settings.name),)
        judged = tasks.verdict.override(on_failure_callback=notifiers(settings))(outcomes, reported)
        # A teardown always runs, and does not affect the state of the run.
        chain(reported, judged, tasks.sweep(settings.name).as_teardown())
    # Set last, because a task that is made in a DAG with params gets copies of them, which Airflow checks and stores.
    dag.params.update(params())
    return dag


def lane_tasks(settings: TableSettings, lane: str) -> tuple[Any, tasks.PublishOperator]:
    """Build the task group of a lane; returns a reference to its jobs, and its last task."""
    # Lane `retain` reads no records, and must not wait for Spark.
    engine = "local" if lane == RETAIN else settings.engine
    spark: dict[str, Any] = {"connection": settings.connection, "spark": settings.spark}
    limits: dict[str, Any] = {
        "pool": settings.pool,
        "pool_slots": settings.pool_slots,
        "execution_timeout": timedelta(minutes=settings.timeout_minutes),
    }
    with TaskGroup(group_id=lane, tooltip=LANES[lane]):

        @task_group(group_id="jobs")
        def mapped(job: Any) -> None:
            written: Any = tasks.compact.override(**limits)(job=job, engine=engine, **spark)
            # Validation needs Spark only for input that one machine can't judge fast enough.
            judging = "local" if engine == "local" else "auto"
            judged: Any = tasks.validate.override(**limits)(job=job, engine=judging, **spark)
            for made in (written, judged):
                made.operator.operator_extra_links = (TableLink(settings.name),)
            chain(written, judged)

        # It runs whatever has become of the tasks before it, so it looks itself whether it is the run's turn.
        jobs: Any = tasks.plan.override(trigger_rule=TriggerRule.ALL_DONE, inlets=[tasks.compacted(settings.name)])(
            settings.name, lane, settings.connection if engine != "local" else None, settings.plans_per_job
        )
        published = tasks.PublishOperator(
            lane=lane,
            jobs=jobs,
            settings=settings,
            outlets=[tasks.outlet_of(settings.name)],
            trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
        )
        chain(mapped.expand(job=jobs), published)
    return jobs, published
