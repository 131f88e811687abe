"""The task that publishes, with one commit per stage, and the last tasks of a run: report, verdict and sweep."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import TriggerRule, Variable, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from firnlake.airflow.assets import announce
from firnlake.airflow.configuration import TableSettings
from firnlake.airflow.site.links import address_of, links_of
from firnlake.errors import FirnError, GoneError, OutcomeUnknownError, UnavailableError
from firnlake_expectations.table_report import report_of
from firnlake_expectations.wording import count

if TYPE_CHECKING:
    from airflow.sdk import Context

    from firnlake.airflow.dag.planning import MappedJob
    from firnlake.iceberg.catalog import Lake
    from firnlake.job.plan import Plan
    from firnlake.publish.publish import Publication, PublishResult


def build(lake: "Lake") -> str:
    """Build the pages of all stored validation results; returns the path of their front page."""
    from firnlake.validate.validate import build_reports

    return str(build_reports(lake))


log = logging.getLogger(__name__)

PUBLISH, REJECT = "Publish", "Reject"
SHOWN_STAGES = "shown"
"""Key under which the task keeps the names of the stages whose figures it has shown to a person."""
SHOWN = 20
"""Maximum number of waiting topic partitions that a failed run names."""


class LaneOutcome(TypedDict):
    """The outcome of one lane: titles of published plans, and the reasons by unpublished topic partition."""

    lane: str
    published: list[str]
    failed: dict[str, str]


class PublishOperator(HITLOperator):
    """Operator that publishes every stage that passed. It reports the other stages, which do not delay publication.

    A run with approval shows a person the figures and waits for the answer without a worker slot. If no answer comes in
    time, nothing is published.
    """

    template_fields: Collection[str] = ("jobs", *HITLOperator.template_fields)

    def __init__(self, *, lane: str, jobs: Any, settings: TableSettings, **kwargs: Any) -> None:
        super().__init__(
            subject=f"Publish the results of lane {lane} in {settings.name}?",
            options=[PUBLISH, REJECT],
            response_timeout=timedelta(minutes=settings.approval_minutes),
            assigned_users=[{"id": user, "name": user} for user in settings.approvers] or None,
            **kwargs,
        )
        self.operator_extra_links = links_of(settings.name)
        self.table = settings.name
        self.lane = lane
        self.jobs = jobs

    def execute(self, context: "Context") -> LaneOutcome:
        """Publish, or defer the task until a person answers."""
        if context["params"]["ask"]:
            from firnlake.airflow.dag.approval import figures_of
            from firnlake.clock import now_ms
            from firnlake.iceberg.catalog import Lake
            from firnlake.inspect.gather import write_snapshot

            lake = Lake.load()
            write_snapshot(lake, self.table, now_ms())
            build(lake)
            report = address_of(report_of(self.table))
            self.body = f"{figures_of(lake, self._stages())}\n\n[Data-quality report]({report})"
            # Whoever clears the task that plans while a person thinks changes what `jobs` says.
            context["ti"].xcom_push(SHOWN_STAGES, self._stages())
            waits: LaneOutcome = super().execute(context)
            return waits
        return self._publish(self._stages())

    def execute_complete(self, context: "Context", event: dict[str, Any]) -> LaneOutcome:
        """Resume after an answer or a timeout."""
        if event.get("error_type") == "timeout":
            raise AirflowFailException(f"no answer within {self.response_timeout}: nothing was published")
        answer = super().execute_complete(context, event)
        shown: list[str] = context["ti"].xcom_pull(task_ids=self.task_id, key=SHOWN_STAGES)
        if answer["chosen_options"] == [PUBLISH]:
            return self._publish(shown)
        self._discard(shown)
        who = answer["responded_by_user"] or {}
        raise AirflowSkipException(f"{who.get('name', 'somebody')} rejected the results: nothing was published")

    def _discard(self, stages: Iterable[str]) -> None:
        from firnlake.iceberg.catalog import Lake
        from firnlake.job.garbage import discard

        lake = Lake.load()
        for stage in stages:
            discard(lake, stage)

    def _publish(self, stages: Iterable[str]) -> LaneOutcome:
        from firnlake.iceberg.catalog import Lake
        from firnlake.publish.publish import publish_stages

        lake = Lake.load()
        left = ((stage, plans_left(lake, stage)) for stage in stages)
        return each(
            *(self.table, self.lane),
            ((plans, partial(publish_stages, lake, {stage: plans})) for stage, plans in left),
        )

    def _stages(self) -> list[str]:
        jobs: list[MappedJob] = self.jobs
        return [stage for job in jobs for stage in job["compact"][1:]]


def plans_left(lake: "Lake", stage: str) -> "Sequence[Plan]":
    """The plans of ``stage``; none if it is gone, because an earlier try has published it, other commits have taken its
    inputs, or a person has discarded it."""
    from firnlake.job.stage import Stage

    try:
        return Stage.load(lake, stage).plans
    except GoneError as error:
        log.info("%s", error)
        return ()


def each(table: str, lane: str, work: "Iterable[tuple[Collection[Plan], Callable[[], PublishResult]]]") -> LaneOutcome:
    """Run the commits of ``work`` in turn, each for its plans. The outcome names the plans that could not be published.

    Raises UnavailableError if a service did not answer and the task has tries left. Published plans stay published.
    """
    publications: list[Publication] = []
    outcome = LaneOutcome(lane=lane, published=[], failed={})
    unanswered: list[str] = []
    for plans, commit in work:
        done, reasons = _carried_out(plans, commit)
        publications += done
        titles = {plan.id: plan.title for plan in plans}
        for one in done:
            title = titles.get(one.plan_id, f"plan {one.plan_id}")
            log.info("%s: published as snapshot %s", title, one.snapshot_id)
            outcome["published"].append(title)
        published = {one.plan_id for one in done}
        for plan in plans:
            if plan.id in published:
                continue
            reason = reasons.get(plan.id, "its job was already published without it")
            log.error("%s was not published: %s", plan.title, reason)
            outcome["failed"][str(plan.topic_partition)] = str(reason)
            if isinstance(reason, UnavailableError | OutcomeUnknownError):
                unanswered.append(f"{plan.title}: {reason}")
    announce(table, lane, publications)
    task = get_current_context()["ti"]
    if unanswered and task.try_number <= task.max_tries:
        raise UnavailableError("; ".join(unanswered))
    return outcome


def _carried_out(
    plans: "Collection[Plan]", commit: "Callable[[], PublishResult]"
) -> "tuple[Sequence[Publication], Mapping[str, FirnError | str]]":
    try:
        done = commit()
    except Exception as error:  # no error may hold up the other topic partitions
        log.exception("%s not published", count(len(plans), "plan"))
        reason = error if isinstance(error, FirnError) else str(error)
        return (), dict.fromkeys((plan.id for plan in plans), reason)
    return done.publications, done.failures


@task.sensor(poke_interval=15, mode="reschedule", timeout=24 * 3600)
def turn(table: str) -> bool:
    """Wait without a worker slot until no other run works on the table, because two runs would plan the same work.

    Airflow's ``max_active_runs`` does not count backfills, and a cleared run may start again. So a variable of Airflow
    with the DAG's name has the id of the run whose turn it is; a run that ended without giving its turn back loses it.
    Two runs that take it at the very same moment may both work; then one of two equal plans is in conflict (C22).
    """
    context = get_current_context()
    run, instance = context["dag_run"], context["ti"]
    holder = Variable.get(run.dag_id, default="")
    if holder not in ("", run.run_id) and instance.get_dr_count(
        run.dag_id, run_ids=[holder], states=["queued", "running"]
    ):
        log.info("waiting until run %s has finished its work on %s", holder, table)
        return False
    Variable.set(run.dag_id, run.run_id, description=f"The run that works on table {table}")
    return bool(Variable.get(run.dag_id, default="") == run.run_id)


@task(trigger_rule=TriggerRule.ALL_DONE)
def report(table: str, outcomes: list[LaneOutcome | None]) -> str:
    """Build the data-quality pages and the table's page, and send its metrics."""
    from firnlake import clock
    from firnlake.airflow.metrics import send
    from firnlake.iceberg.catalog import Lake

    lake = Lake.load()
    validated = any(outcomes)
    # The pages show what is seen of the table now.
    status = send(lake, table, clock.now_ms())
    index = build(lake) if validated else ""
    if waiting := status.waiting():
        log.warning("%s", waiting)
    if not validated:
        raise AirflowSkipException("nothing was validated")
    return index


@task(trigger_rule=TriggerRule.ALL_DONE)
def verdict(table: str, outcomes: list[LaneOutcome | None]) -> None:
    """Fail the run if a topic partition or a task failed, and name each; all others are already published.

    Also fail it once, and then once a day, for topic partitions that wait for a person.
    """
    context = get_current_context()
    run = context["dag_run"]
    states = context["ti"].get_task_states(dag_id=run.dag_id, run_ids=[run.run_id])[run.run_id]
    done = [outcome for outcome in outcomes if outcome]
    problems = [
        f"{topic_partition} ({outcome['lane']}): {reason}"
        for outcome in done
        for topic_partition, reason in outcome["failed"].items()
    ]
    problems += [f"task {name} failed: see its log" for name, state in states.items() if state == "failed"]
    problems += _waiting(table, {name for outcome in done for name in outcome["failed"]})
    if problems:
        raise AirflowFailException("\n".join(problems))
    for outcome in done:
        log.info("%s: %s published", outcome["lane"], count(len(outcome["published"]), "plan"))


def _waiting(table: str, failed: Collection[str]) -> list[str]:
    """A line for each topic partition that waits for a person, who was not told of it within a day; one more line for
    files of no topic partition.

    Those that ``failed`` in this run are told anyway.
    """
    from firnlake import clock
    from firnlake.iceberg.catalog import Lake
    from firnlake.inspect.gather import status_of
    from firnlake.inspect.status import news

    lake, now_ms = Lake.load(), clock.now_ms()
    status = status_of(lake, table, now_ms)
    with lake.answering():
        fresh = news(lake.table(table), status, now_ms, failed)
    lines = [f"{name} waits for a person: {reason}" for name, reason in islice(fresh.items(), SHOWN)]
    more = len(fresh) - len(lines)
    return [*lines, f"{count(more, 'more topic partition')} wait: see `firn status {table}`"] if more else lines


@task
def sweep(table: str) -> None:
    """Delete stages that have lost their inputs, unless this is a dry run.

    The other stages of a failed run stay for three days, so that a failed task that is cleared after a repair continues
    with the same plans.
    """
    from firnlake.iceberg.catalog import Lake
    from firnlake.job.garbage import collect

    context = get_current_context()
    lake = Lake.load()
    if not context["params"]["dry_run"]:
        for stage, reason in collect(lake, table).items():
            log.info("deleted %s: %s", stage, reason)
    run = context["dag_run"]
    if Variable.get(run.dag_id, default="") == run.run_id:
        Variable.delete(run.dag_id)
