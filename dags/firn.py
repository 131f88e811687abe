"""One DAG per table of firn.toml: what is due is planned, compacted, validated, published, reported.
What is past retention is dropped before that, without Spark.

Every task calls one function of the package, or submits the same `firn` command that a person would type.
This file is parsed over and over: neither Spark nor Great Expectations nor the package is imported outside
a task.
"""

import logging
import os
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import (
    DAG,
    Connection,
    Param,
    TaskGroup,
    TriggerRule,
    chain,
    get_current_context,
    task,
    task_group,
)
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowSkipException

if TYPE_CHECKING:
    from pipeline.lake import Lake
    from pipeline.plan import Job as PackedPlans
    from pipeline.plan import Plan
    from pipeline.publish import Published

CHECKOUT = Path(__file__).resolve().parents[1]
TABLES = Path(os.environ.get("FIRN_TABLES") or Path(__file__).with_name("firn.toml"))
JARS = Path(os.environ.get("FIRN_JARS") or CHECKOUT / ".cache" / "jars")
RETAIN = "retain"
LANES = ("merge", "clean", "tier", "full")
CONNECTION = "spark_default"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableSettings:
    """What firn.toml says of a table; see there for the meaning of each."""

    name: str
    schedule: str = "*/15 * * * *"
    plans_per_job: int = 256
    paused: bool = True
    spark: dict[str, str] = field(default_factory=dict)


class Job(TypedDict):
    """The arguments of the two Spark applications that work on the same batch of plans: their files, their stages."""

    compact: list[str]
    validate: list[str]


class Outcome(TypedDict):
    """What publish did in one lane: titles of published plans, and why a topic partition was not."""

    lane: str
    published: list[str]
    failed: dict[str, str]


def firn_on_spark(command: str, arguments: Any, settings: TableSettings) -> SparkSubmitOperator:
    """Submit `firn <arguments>` through Airflow's Spark connection, with this very Python as the driver's."""
    return SparkSubmitOperator(
        task_id=command,
        conn_id=CONNECTION,
        name=f"firn {command} {settings.name}",
        application=str(CHECKOUT / "pipeline" / "__main__.py"),
        application_args=arguments,
        # Jars, not packages: mapped tasks would race in Ivy's cache.
        jars=",".join(str(jar) for jar in sorted(JARS.glob("*.jar"))),
        conf=settings.spark,
        env_vars={"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        map_index_template="{{ task.application_args | length - 1 }} "
        + ("plans" if command == "compact" else "stages"),
    )


def skip_unless_wanted(lane: str) -> None:
    """Skip the task when this run is for another lane."""
    wanted = get_current_context()["params"]["lane"]
    if wanted not in ("all", lane):
        raise AirflowSkipException(f"this run is for the lane {wanted} only")


def plans_due(table: str, lane: str) -> list[Path]:
    """Plan what is due in the lane, and write the plans down; skips the task when nothing is, or nothing shall be."""
    context = get_current_context()

    from pipeline.lake import Lake
    from pipeline.plan import plan_table

    lake = Lake.load()
    # Manual and asset-triggered runs have no logical date: the clock is when the run was due.
    plans = plan_table(lake, table, lane, context["dag_run"].run_after, force=context["params"]["force"])
    for found in plans:
        log.info("%s", found.title)
    if not plans:
        raise AirflowSkipException(f"nothing is due in the lane {lane}")
    if context["params"]["dry_run"]:
        raise AirflowSkipException(f"dry run: {len(plans)} plans are left undone")
    return [found.write(lake.plans_folder) for found in plans]


def each(lane: str, work: "Iterable[tuple[Collection[Plan], Callable[[Lake], Published]]]") -> Outcome:
    """Carry out one commit after the other, each for some plans; what can't be published is named."""
    from pipeline.lake import Lake

    lake = Lake.load()
    outcome = Outcome(lane=lane, published=[], failed={})
    for plans, commit in work:
        published: dict[str, int] = {}
        try:
            done = commit(lake)
            published = {one.plan_id: one.snapshot_id for one in done.publications}
            reasons = {plan_id: str(error) for plan_id, error in done.failures.items()}
        except Exception as error:  # whatever it is, the other topic partitions must not wait for it
            log.exception("%s plans were not published", len(plans))
            reasons = {found.id: str(error) for found in plans}
        for found in plans:
            if found.id in published:
                log.info("%s: published as snapshot %s", found.title, published[found.id])
                outcome["published"].append(found.title)
            else:
                reason = reasons.get(found.id, "its stage was published before, without it")
                log.error("%s was not published: %s", found.title, reason)
                outcome["failed"][f"{found.topic}-{found.partition}"] = reason
    return outcome


@task(task_id="plan")
def plan_retain(table: str) -> list[str]:
    """Plan which segments are past retention; skipped when none is."""
    skip_unless_wanted(RETAIN)
    return [str(path) for path in plans_due(table, RETAIN)]


@task
def drop(plans: list[str]) -> Outcome:
    """Drop the segments of every plan: metadata only, so there is nothing to compact or to validate."""
    from pipeline.plan import Plan
    from pipeline.publish import retain_plans

    due = [Plan.read(Path(path)) for path in plans]
    return each(RETAIN, [(due, partial(retain_plans, plans=due))])


@task
def plan(table: str, lane: str, plans_per_job: int) -> list[Job]:
    """Plan what is due in the lane, a Spark job for every so many plans; skipped when nothing is."""
    skip_unless_wanted(lane)
    try:
        Connection.get(CONNECTION)
    except AirflowNotFoundException:
        # Left alone, the Spark operator would silently submit to yarn.
        raise AirflowFailException(
            f"the connection {CONNECTION} does not exist; allowed: any Spark connection, for example "
            f'AIRFLOW_CONN_{CONNECTION.upper()}=\'{{"conn_type": "spark", "host": "local[2]"}}\''
        ) from None

    paths = plans_due(table, lane)
    return [
        Job(compact=["compact", *map(str, batch)], validate=["validate", *(job.stage for job in packed(batch))])
        for batch in (paths[start : start + plans_per_job] for start in range(0, len(paths), plans_per_job))
    ]


@task(trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS)
def publish(lane: str, jobs: list[Job]) -> Outcome:
    """Publish every stage that passed; one that did not is named, and holds up no other."""
    from pipeline.publish import publish_stages

    due = [own for job in jobs for own in packed(plan_files([job]))]
    return each(
        lane, ((own.plans, partial(publish_stages, plans={own.stage: [found.id for found in own]})) for own in due)
    )


@task(trigger_rule=TriggerRule.ALL_DONE)
def report(outcomes: list[Outcome | None]) -> str:
    """Build the data-quality pages: one task does, because builders would overwrite each other's index."""
    if not any(outcomes):
        raise AirflowSkipException("nothing was validated")

    from pipeline.lake import Lake
    from pipeline.validate import build_reports

    return str(build_reports(Lake.load()))


@task(trigger_rule=TriggerRule.ALL_DONE)
def verdict(outcomes: list[Outcome | None]) -> None:
    """Fail the run when a topic partition or a task failed, and name it; the others are published already."""
    context = get_current_context()
    run = context["dag_run"]
    states = context["ti"].get_task_states(dag_id=run.dag_id, run_ids=[run.run_id])[run.run_id]
    done = [outcome for outcome in outcomes if outcome]
    problems = [
        f"{topic_partition} ({outcome['lane']}): {reason}"
        for outcome in done
        for topic_partition, reason in outcome["failed"].items()
    ]
    problems += [f"task {name} failed, see its log" for name, state in states.items() if state == "failed"]
    if problems:
        raise AirflowFailException("\n".join(problems))
    for outcome in done:
        log.info("%s: %s published", outcome["lane"], len(outcome["published"]))


@task
def sweep(table: str, dropped: list[str] | None, jobs_of_lanes: list[list[Job] | None]) -> None:
    """Discard what this run has left behind: stages that were not published, plans that are done with."""
    from pipeline.lake import Lake
    from pipeline.plan import Plan
    from pipeline.stage import sweep as sweep_stages

    lake = Lake.load()
    paths = [path for jobs in jobs_of_lanes if jobs for path in plan_files(jobs)]
    swept = sweep_stages(lake, table, plan_ids=[Plan.read(path).id for path in paths])
    log.info("%s", swept)
    for path in [*paths, *map(Path, dropped or [])]:
        path.unlink()


def plan_files(jobs: Iterable[Job]) -> list[Path]:
    """The plan files of all jobs: what follows the command's name."""
    return [Path(path) for job in jobs for path in job["compact"][1:]]


def packed(paths: Iterable[Path]) -> "list[PackedPlans]":
    """The plans of one Spark application by the stage that they share, as `firn compact` packs them."""
    from pipeline.plan import Plan, jobs_of

    return jobs_of(Plan.read(path) for path in paths)


def build(settings: TableSettings) -> DAG:
    """The DAG of one table: a task group per lane, one after the other, then report, verdict and sweep.

    The report is about what was validated; the verdict is about every lane.
    """
    with DAG(
        dag_id="firn__" + settings.name.replace(".", "__"),
        description=f"Retain, merge, clean and compact {settings.name}",
        doc_md=__doc__,
        tags=["firn", settings.name.split(".", maxsplit=1)[0]],
        schedule=settings.schedule,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=settings.paused,
        # No retries: the next run plans afresh, and what has been published is not planned again.
        default_args={"retries": 0},
        params={
            "lane": Param("all", type="string", enum=["all", RETAIN, *LANES], description="which lane to run"),
            "dry_run": Param(False, type="boolean", description="log the plans, change nothing"),
            "force": Param(False, type="boolean", description="plan what may be done even if no threshold is met"),
        },
    ) as dag:
        # Any: at this point they are references to results, which the tasks receive as what they are annotated with.
        jobs_of_lanes: list[Any] = []
        with TaskGroup(group_id=RETAIN):
            dropped: Any = plan_retain(settings.name)
            outcomes: list[Any] = [drop(dropped)]
        for lane in LANES:
            jobs, outcome = build_lane(settings, lane)
            chain(outcomes[-1], jobs)  # a lane plans on what the one before it has published
            jobs_of_lanes.append(jobs)
            outcomes.append(outcome)
        reported = report(outcomes[1:])
        judged = verdict(outcomes)
        # A teardown: it runs whatever happened, and the run is not judged by it.
        chain(outcomes, reported, judged, sweep(settings.name, dropped, jobs_of_lanes).as_teardown())
    return dag


def build_lane(settings: TableSettings, lane: str) -> tuple[Any, Any]:
    """The task group of one lane; returns references to its jobs and its outcome."""
    with TaskGroup(group_id=lane):

        @task_group(group_id="jobs")
        def job(compact: list[str], validate: list[str]) -> None:
            compacted = firn_on_spark("compact", compact, settings)
            validated = firn_on_spark("validate", validate, settings)
            # Plans that failed to compact must not keep the others from their verdict.
            validated.trigger_rule = TriggerRule.ALL_DONE
            chain(compacted, validated)

        # Whatever became of the lane before: what is due here is due.
        jobs: Any = plan.override(trigger_rule=TriggerRule.ALL_DONE)(settings.name, lane, settings.plans_per_job)
        outcome = publish(lane, jobs)
        chain(job.expand_kwargs(jobs), outcome)
    return jobs, outcome


def read_tables(path: Path) -> list[TableSettings]:
    """The tables in a firn.toml; a setting that does not exist is refused."""
    with path.open("rb") as file:
        tables = tomllib.load(file).get("tables", {})
    return [TableSettings(name, **settings) for name, settings in tables.items()]


for one in read_tables(TABLES):
    build(one)
