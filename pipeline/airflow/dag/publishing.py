"""Publishing in a task: one commit after another, each for the plans of one stage."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import get_current_context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from pipeline.airflow.configuration import TableSettings
from pipeline.airflow.dag import reports
from pipeline.airflow.dag.planning import MappedJob, packed, plan_files
from pipeline.airflow.site.addresses import address_of
from pipeline.airflow.site.links import AS_OF, links_of
from pipeline.airflow.watch.assets import announce
from pipeline.errors import FirnError, OutcomeUnknownError, UnavailableError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pipeline.lake import Lake
    from pipeline.plan import Job, Plan
    from pipeline.publish import Publication, PublishResult

log = logging.getLogger(__name__)

PUBLISH, REJECT = "Publish", "Reject"


class LaneOutcome(TypedDict):
    """The outcome of publish in one lane: titles of published plans, and reasons for unpublished topic partitions."""

    lane: str
    published: list[str]
    failed: dict[str, str]


class PublishOperator(HITLOperator):
    """Operator that publishes every stage that passed; one that did not is named, and does not delay the others.

    A run with approval shows a person the figures and waits for the answer without a worker slot; without an answer in
    time, nothing is published.
    """

    template_fields: Collection[str] = ("jobs", "as_of", *HITLOperator.template_fields)

    def __init__(self, *, lane: str, jobs: Any, settings: TableSettings, **kwargs: Any) -> None:
        super().__init__(
            subject=f"Publish the results of lane {lane} in {settings.name}?",
            options=[PUBLISH, REJECT],
            response_timeout=timedelta(minutes=settings.approval_minutes),
            assigned_users=[{"id": user, "name": user} for user in settings.approvers] or None,
            **kwargs,
        )
        self.operator_extra_links = links_of(settings.name)
        self.as_of = AS_OF
        self.table = settings.name
        self.lane = lane
        self.jobs = jobs

    def execute(self, context: "Context") -> LaneOutcome:
        """Publish, or defer until a person approves."""
        if context["params"]["ask"]:
            from pipeline.airflow.dag.approval import figures_of
            from pipeline.clock import parse
            from pipeline.lake import Lake

            lake = Lake.load()
            reports.build(lake)
            pages = address_of(self.table, "/reports", as_of=parse(self.as_of))
            self.body = f"{figures_of(lake, self._due())}\n\n[Data-quality reports]({pages})"
            waits: LaneOutcome = super().execute(context)
            return waits
        return self._publish()

    def execute_complete(self, context: "Context", event: dict[str, Any]) -> LaneOutcome:
        """Resume after an answer or a timeout."""
        if event.get("error_type") == "timeout":
            raise AirflowFailException(f"no answer within {self.response_timeout}: nothing was published")
        answer = super().execute_complete(context, event)
        if answer["chosen_options"] == [PUBLISH]:
            return self._publish()
        who = answer["responded_by_user"] or {}
        raise AirflowSkipException(f"{who.get('name', 'somebody')} rejected it: nothing was published")

    def _publish(self) -> LaneOutcome:
        from pipeline.publish import publish_stages

        return each(
            *(self.table, self.lane),
            (
                (own.plans, partial(publish_stages, plans={own.stage: [plan.id for plan in own]}, known=own.plans))
                for own in self._due()
            ),
        )

    def _due(self) -> "list[Job]":
        jobs: list[MappedJob] = self.jobs
        return [own for job in jobs for own in packed(plan_files([job]))]


def each(
    table: str, lane: str, work: "Iterable[tuple[Collection[Plan], Callable[[Lake], PublishResult]]]"
) -> LaneOutcome:
    """Run one commit after another, each for some plans; plans that can't be published are named.

    Raises UnavailableError when a service did not answer and tries are left; published plans stay published.
    """
    from pipeline.lake import Lake

    lake = Lake.load()
    publications: list[Publication] = []
    outcome = LaneOutcome(lane=lane, published=[], failed={})
    unanswered: list[str] = []
    for plans, commit in work:
        done, reasons = _carried_out(lake, plans, commit)
        publications += done
        published = {one.plan_id: one.snapshot_id for one in done}
        for plan in plans:
            if plan.id in published:
                log.info("%s: published as snapshot %s", plan.title, published[plan.id])
                outcome["published"].append(plan.title)
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
    lake: "Lake", plans: "Collection[Plan]", commit: "Callable[[Lake], PublishResult]"
) -> "tuple[Sequence[Publication], Mapping[str, FirnError | str]]":
    try:
        done = commit(lake)
    except Exception as error:  # no error may hold up the other topic partitions
        log.exception("%s plans were not published", len(plans))
        reason = error if isinstance(error, FirnError) else str(error)
        return (), dict.fromkeys((plan.id for plan in plans), reason)
    return done.publications, done.failures
