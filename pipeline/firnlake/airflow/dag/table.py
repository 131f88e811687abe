"""The DAG of one table: a task group for each lane, in sequence, and then the tasks report, verdict and sweep."""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import (
    DAG,
    ExceptionRetryPolicy,
    RetryAction,
    RetryRule,
    TaskGroup,
    TriggerRule,
    chain,
    task_group,
)

from firnlake.airflow.assets import compacted, outlet_of, schedule_of
from firnlake.airflow.configuration import Settings, TableSettings
from firnlake.airflow.dag import lane_docs, tasks
from firnlake.airflow.dag.params import params
from firnlake.airflow.notices import deadlines, notifiers
from firnlake.airflow.site.links import TableLink
from firnlake.errors import ConflictError, OutcomeUnknownError, RefusedError, UnavailableError

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
        doc_md=lane_docs.DAG.format(table=settings.name, schedule=settings.schedule),
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


def build(settings: TableSettings) -> DAG:
    """The DAG of one table. A lane runs whatever the outcome of the lane before it, on the snapshot that that lane
    published."""
    with outline(settings) as dag:
        # Any, because these are references to results of tasks; the tasks receive the annotated types.
        before: Any = tasks.due(settings.name)
        chain(tasks.turn(settings.name), before)
        outcomes: list[Any] = []
        for lane in lane_docs.LANES:
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
    engine = "local" if lane == lane_docs.RETAIN else settings.engine
    spark: dict[str, Any] = {"connection": settings.connection, "spark": settings.spark}
    limits: dict[str, Any] = {
        "pool": settings.pool,
        "pool_slots": settings.pool_slots,
        "execution_timeout": timedelta(minutes=settings.timeout_minutes),
    }
    with TaskGroup(group_id=lane, tooltip=lane_docs.LANES[lane]):

        @task_group(group_id="jobs")
        def mapped(job: Any) -> None:
            written: Any = tasks.compact.override(**limits)(job=job, engine=engine, **spark)
            # Validation needs Spark only for input that one machine can't judge fast enough.
            judging = "local" if engine == "local" else "auto"
            judged: Any = tasks.validate.override(**limits)(job=job, engine=judging, **spark)
            for made in (written, judged):
                made.operator.operator_extra_links = (TableLink(settings.name),)
            chain(written, judged)

        jobs: Any = tasks.plan.override(trigger_rule=TriggerRule.ALL_DONE, inlets=[compacted(settings.name)])(
            settings.name, lane, settings.connection if engine != "local" else None, settings.plans_per_job
        )
        published = tasks.PublishOperator(
            lane=lane,
            jobs=jobs,
            settings=settings,
            outlets=[outlet_of(settings.name)],
            trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
        )
        chain(mapped.expand(job=jobs), published)
    return jobs, published
