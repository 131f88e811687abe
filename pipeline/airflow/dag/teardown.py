"""The start and end of a run: the wait for other runs, then report, verdict and sweep."""

import logging
from pathlib import Path
from typing import Any

from airflow.sdk import TriggerRule, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from pipeline import lease
from pipeline.airflow.dag import reports
from pipeline.airflow.dag.planning import MappedJob, plan_files
from pipeline.airflow.dag.publishing import LaneOutcome

log = logging.getLogger(__name__)


@task.sensor(poke_interval=15, mode="reschedule", timeout=24 * 3600)
def turn(table: str) -> bool:
    """Wait, without a worker slot, until no other run works on the table: two runs must not plan the same segments."""
    context = get_current_context()

    from pipeline.lake import Lake

    run, instance = context["dag_run"], context["ti"]

    def works(run_id: str) -> bool:
        return instance.get_dr_count(run.dag_id, run_ids=[run_id], states=["queued", "running"]) > 0

    holder = lease.take(Lake.load().runs_folder, table, run.run_id, works)
    if holder:
        log.info("waiting: run %s is working on %s", holder, table)
    return holder is None


@task(trigger_rule=TriggerRule.ALL_DONE)
def report(table: str, outcomes: list[LaneOutcome | None], as_of: str) -> str:  # noqa: ARG001  # for its link
    """Build the data-quality pages and the table's page, and send its metrics."""
    from pipeline import clock
    from pipeline.airflow.signals.metrics import send
    from pipeline.lake import Lake

    lake = Lake.load()
    validated = any(outcomes)
    index = reports.build(lake) if validated else ""
    send(lake, table, clock.now_ms())
    if not validated:
        raise AirflowSkipException("nothing was validated")
    return index


@task(trigger_rule=TriggerRule.ALL_DONE)
def verdict(outcomes: list[LaneOutcome | None]) -> None:
    """Fail the run when a topic partition or a task failed, and name it; the others are already published."""
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
def sweep(
    table: str, dropped: list[str] | None, jobs_of_lanes: list[list[MappedJob] | None], outcomes: list[Any]
) -> None:
    """Discard the leftovers of this run: stages that were not published, and finished plans.

    A dry run discards nothing. The plans of a failed run stay for a day: after a repair, the failed task can be cleared
    and continues with the same plan.
    """
    from pipeline.care.sweep import sweep as sweep_stages
    from pipeline.lake import Lake

    lake, context = Lake.load(), get_current_context()
    if not context["params"]["dry_run"]:
        paths = [path for jobs in jobs_of_lanes if jobs for path in plan_files(jobs)]
        swept = sweep_stages(lake, table, plan_ids=[path.stem for path in paths])
        log.info("%s", swept)
        planned = len(paths) + len(dropped or [])
        if planned == sum(len(outcome["published"]) for outcome in outcomes if outcome):
            for path in [*paths, *map(Path, dropped or [])]:
                path.unlink(missing_ok=True)
    lease.give_back(lake.runs_folder, table, context["dag_run"].run_id)
