"""The DAG of one table: a task group for each lane, in sequence, and then the tasks report, verdict and sweep."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from airflow.sdk import (
    DAG,
    ExceptionRetryPolicy,
    RetryAction,
    RetryRule,
    TaskGroup,
    TriggerRule,
    chain,
    task,
    task_group,
)
from airflow.sdk.exceptions import DownstreamTasksSkipped

from firnlake.airflow.assets import compacted, outlet_of, schedule_of
from firnlake.airflow.configuration import Settings, TableSettings
from firnlake.airflow.dag import lane_docs
from firnlake.airflow.dag.params import LANES, RETAIN, params
from firnlake.airflow.dag.planning import MappedJob, jobs_of, lanes_to_skip, plans_due, skip_if_left_out
from firnlake.airflow.dag.publishing import LaneOutcome, PublishOperator, each, plans_left, report, sweep, turn, verdict
from firnlake.airflow.dag.spark import FirnOperator, spark_environment, task_of
from firnlake.airflow.notices import deadlines, notifiers
from firnlake.airflow.site.links import links_of
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
    """The DAG of one table.

    The report covers the lanes that were validated; the verdict covers every lane.
    """
    with outline(settings) as dag:
        first = turn.override(doc_md=lane_docs.TASKS["turn"])(settings.name)
        second = due.override(doc_md=lane_docs.TASKS["due"])(settings.name)
        dropped, outcome = retain_lane(settings)
        chain(first, second, dropped)
        # Any, because these are references to results of tasks; the tasks receive the annotated types.
        outcomes: list[Any] = [outcome]
        for lane in LANES:
            jobs, outcome = compacting_lane(settings, lane)
            chain(outcomes[-1], jobs)  # a lane plans on the snapshot that the previous lane published
            outcomes.append(outcome)
        reported: Any = report.override(doc_md=lane_docs.TASKS["report"])(settings.name, outcomes[1:])
        reported.operator.operator_extra_links = links_of(settings.name)
        judged = verdict.override(
            doc_md=lane_docs.TASKS["verdict"], on_failure_callback=notifiers(settings), retries=0
        )(settings.name, outcomes)
        swept = sweep.override(doc_md=lane_docs.TASKS["sweep"])(settings.name)
        # A teardown always runs, and does not affect the state of the run.
        chain(outcomes, reported, judged, swept.as_teardown())
    # Set last, because a task that is made in a DAG with params gets copies of them, which Airflow checks and stores.
    dag.params.update(params())
    return dag


def retain_lane(settings: TableSettings) -> tuple[Any, Any]:
    """Build the task group of lane `retain`; returns references to its stages and its outcome."""
    with TaskGroup(group_id=RETAIN, tooltip=lane_docs.LANES[RETAIN]):
        dropped: Any = plan_retain.override(doc_md=lane_docs.of_lane(RETAIN, "plan"))(settings.name)
        outcome: Any = drop.override(outlets=[outlet_of(settings.name)], doc_md=lane_docs.of_lane(RETAIN, "drop"))(
            settings.name, dropped
        )
    return dropped, outcome


def compacting_lane(settings: TableSettings, lane: str) -> tuple[Any, Any]:
    """Build the task group of a lane other than `retain`; returns references to its jobs and its outcome."""
    with TaskGroup(group_id=lane, tooltip=lane_docs.LANES[lane]):

        @task_group(group_id="jobs")
        def job(name: str, plans: list[str], input_bytes: int, compact: list[str], validate: list[str]) -> None:
            work = FirnOperator(
                **task_of("compact", settings, settings.engine),
                arguments=compact,
                topic_partitions=name,
                plans=plans,
                input_bytes=input_bytes,
                doc_md=lane_docs.of_lane(lane, "compact"),
            )
            judge = FirnOperator(
                # Validation needs Spark only for input that one machine can't judge fast enough.
                **task_of("validate", settings, "local" if settings.engine == "local" else "auto"),
                arguments=validate,
                topic_partitions=name,
                plans=plans,
                input_bytes=input_bytes,
                # Plans that were not compacted must not keep the others from being validated.
                trigger_rule=TriggerRule.ALL_DONE,
                doc_md=lane_docs.of_lane(lane, "validate"),
            )
            chain(work, judge)

        # A lane runs whatever the outcome of the previous lane.
        jobs: Any = plan.override(
            trigger_rule=TriggerRule.ALL_DONE, inlets=[compacted(settings.name)], doc_md=lane_docs.of_lane(lane, "plan")
        )(settings.name, lane, settings.connection if settings.engine != "local" else None, settings.plans_per_job)
        published = PublishOperator(
            task_id="publish",
            lane=lane,
            jobs=jobs,
            settings=settings,
            outlets=[outlet_of(settings.name)],
            trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
            doc_md=lane_docs.of_lane(lane, "publish"),
        )
        chain(job.expand_kwargs(jobs), published)
    return jobs, published.output


@task
def due(table: str) -> None:
    """Skip the lanes in which this run finds nothing to do, because a task for each such lane would take seconds."""
    skipped = [f"{lane}.plan" for lane in lanes_to_skip(table)]
    raise DownstreamTasksSkipped(tasks=skipped)  # type: ignore[no-untyped-call]  # Airflow has no types there


@task(task_id="plan")
def plan_retain(table: str) -> list[str]:
    """Plan the drop of segments that are past their retention; the task is skipped if there are none."""
    from firnlake.iceberg.catalog import Lake
    from firnlake.job.stage import open_stages

    skip_if_left_out(RETAIN)
    lake = Lake.load()
    return open_stages(lake, plans_due(lake, table, RETAIN))


@task
def drop(table: str, stages: list[str]) -> LaneOutcome:
    """Drop the segments of every plan. This changes metadata only, so there is nothing to compact or validate."""
    from firnlake.iceberg.catalog import Lake
    from firnlake.publish.publish import retain_plans
    from firnlake.validate.validate import refused_drops

    lake = Lake.load()
    due = [plan for stage in stages for plan in plans_left(lake, stage)]
    return each(table, RETAIN, [(due, partial(retain_plans, lake, due, refused_drops))])


@task
def plan(table: str, lane: str, connection: str | None, plans_per_job: int) -> list[MappedJob]:
    """Plan the due work of the lane, in jobs of up to ``plans_per_job`` plans; the task is skipped if nothing is due.

    ``connection`` is the Spark connection of the jobs; None if they need no Spark.
    """
    from firnlake.iceberg.catalog import Lake

    skip_if_left_out(lane)
    if connection:
        spark_environment(connection, {})
    lake = Lake.load()
    return jobs_of(lake, plans_due(lake, table, lane), plans_per_job)
