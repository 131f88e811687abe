"""Carry out the plans of several jobs, one commit after the other; a failed job does not hold up the others (C20)."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from firnlake.errors import FailedError, FirnError, RefusedError, contained
from firnlake.iceberg.catalog import Lake
from firnlake.job.failures import mark
from firnlake.job.inputs import overtaken
from firnlake.job.job import Job
from firnlake.job.plan import Plan, stage_parts
from firnlake.job.stage import parts_of
from firnlake.publish.attempts import Publication, PublishResult
from firnlake.publish.publish import publish_job
from firnlake.publish.retain import Judge, retain_job
from firnlake.table.published_plans import published_plans

RETAINED_PLANS: Final = 1000
"""Maximum number of plans of lane ``retain`` in a commit. Each try of the commit scans the table once for all plans."""


def publish_stages(lake: Lake, plans: Mapping[str, Collection[str]], known: Iterable[Plan] = ()) -> PublishResult:
    """Publish every stage that is a key of ``plans``; the result names unpublished plans with the reason.

    The values of ``plans`` are the ids of each stage's plans, or other names for them. If a stage can't be published at
    all, all these ids or names are failures. Each plan of a split stage is published from a separate stage. If another
    process has meanwhile overtaken a plan in ``known``, the failure is a ConflictError, even if that process has
    deleted the stage.
    """
    work = ((partial(_publish_parts, lake, identifier, own), own) for identifier, own in plans.items())
    done = _with_earlier(lake, plans, _together(lake, work))
    refused = [plan for plan in known if isinstance(done.failures.get(plan.id), RefusedError)]
    return _marked(lake, refused, PublishResult(done.publications, {**done.failures, **overtaken(lake, refused)}))


def retain_plans(lake: Lake, plans: Sequence[Plan], judge: Judge) -> PublishResult:
    """Carry out ``plans`` of lane ``retain`` that ``judge`` does not refuse; plans of one table share commits. Failed
    plans are in the result."""
    work = ((partial(retain_job, lake, job, judge), [plan.id for plan in job]) for job in _jobs(plans))
    return _marked(lake, plans, _together(lake, work))


def _marked(lake: Lake, plans: Iterable[Plan], done: PublishResult) -> PublishResult:
    """``done``, after those of ``plans`` were marked that an error ended which nobody foresaw."""
    for plan in plans:
        if isinstance(error := done.failures.get(plan.id), FailedError):
            with suppress(FirnError):
                mark(lake, plan, "publish", str(error))
    return done


def _publish_parts(lake: Lake, identifier: str, plans: Collection[str]) -> PublishResult:
    parts = {part: plans if part == identifier else [stage_parts(part)[1]] for part in parts_of(lake, identifier)}
    return _together(lake, ((partial(publish_job, lake, part), own) for part, own in parts.items()))


def _with_earlier(lake: Lake, plans: Mapping[str, Collection[str]], done: PublishResult) -> PublishResult:
    """``done``, but plans that an earlier try has published from another stage count as published, not as failed."""
    now = {one.plan_id for one in done.publications}
    left: dict[str, list[str]] = defaultdict(list)
    for identifier, own in plans.items():
        left[stage_parts(identifier)[0]] += [plan_id for plan_id in own if plan_id not in now and plan_id != identifier]
    earlier = []
    # If the lookup fails, the result still has the publications of this process, which are certain.
    with suppress(FirnError), lake.answering():
        earlier = [
            Publication(table, plan_id, snapshot_id, 0, repeated=True, counts=None)
            for table, wanted in left.items()
            if wanted
            for plan_id, (snapshot_id, _) in published_plans(lake.table(table), wanted).items()
        ]
    known = {one.plan_id for one in earlier}
    failures = {name: error for name, error in done.failures.items() if name not in known}
    return PublishResult((*done.publications, *earlier), failures)


def _together(lake: Lake, work: Iterable[tuple[Callable[[], PublishResult], Collection[str]]]) -> PublishResult:
    publications: list[Publication] = []
    failures: dict[str, FirnError] = {}
    for commit, names in work:
        try:
            with lake.answering():
                done = commit()
        except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one job
            failures |= dict.fromkeys(names, contained(error, f"publishing {', '.join(names)}"))
        else:
            publications += done.publications
            failures |= done.failures
    return PublishResult(tuple(publications), failures)


def _jobs(plans: Sequence[Plan]) -> list[Job]:
    """The jobs of ``plans``, table by table, in order; a second plan of a topic partition is in a later job."""
    groups: dict[tuple[str, str], list[dict[tuple[str, int], Plan]]] = {}
    for plan in plans:
        jobs = groups.setdefault((plan.table, plan.table_uuid), [{}])
        if plan.topic_partition in jobs[-1] or len(jobs[-1]) == RETAINED_PLANS:
            jobs.append({})
        jobs[-1][plan.topic_partition] = plan
    return [Job(tuple(own.values())) for jobs in groups.values() for own in jobs]
