"""Carry out the plans of several jobs, one commit after the other: one that fails holds up no other (C20)."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from pipeline.errors import FirnError
from pipeline.history.published_plans import published_plans
from pipeline.lake import Lake
from pipeline.plan import Job, Plan
from pipeline.plan.plan import STAGE_INFIX
from pipeline.publish.publish import publish_job
from pipeline.publish.race import Publication, Published
from pipeline.publish.retain import retain_job
from pipeline.stage import parts_of

RETAINED_PLANS: Final = 1000
"""How many plans of lane ``retain`` share a commit: each try looks through the table once for all of them."""


def publish_stages(lake: Lake, plans: Mapping[str, Collection[str]]) -> Published:
    """Publish every stage that is a key of ``plans``; what was not published is named, with the reason.

    A stage that can't be published as a whole is named by all its ``plans``, or whatever stands there for them. The
    plans of a split one are published from stages of their own.
    """
    done = _together(lake, ((partial(_publish_parts, lake, identifier, own), own) for identifier, own in plans.items()))
    return _with_earlier(lake, plans, done)


def retain_plans(lake: Lake, plans: Sequence[Plan]) -> Published:
    """Carry out ``plans`` of lane ``retain``, those of a table together; what was not is named, with the reason."""
    return _together(lake, ((partial(retain_job, lake, job), [plan.id for plan in job]) for job in _jobs(plans)))


def _publish_parts(lake: Lake, identifier: str, plans: Collection[str]) -> Published:
    parts = {
        part: plans if part == identifier else [part.rpartition(STAGE_INFIX)[2]] for part in parts_of(lake, identifier)
    }
    return _together(lake, ((partial(publish_job, lake, part), own) for part, own in parts.items()))


def _with_earlier(lake: Lake, plans: Mapping[str, Collection[str]], done: Published) -> Published:
    """``done``, in which a plan that an earlier try published, from another stage than this one, is no failure."""
    now = {one.plan_id for one in done.publications}
    left: dict[str, list[str]] = defaultdict(list)
    for identifier, own in plans.items():
        left[identifier.partition(STAGE_INFIX)[0]] += [
            plan_id for plan_id in own if plan_id not in now and plan_id != identifier
        ]
    earlier = []
    # Whoever can't look any more says what it knows: what it has published is published.
    with suppress(FirnError), lake.answering():
        earlier = [
            Publication(table, plan_id, snapshot_id, 0, repeated=True, counts=None)
            for table, wanted in left.items()
            if wanted
            for plan_id, (snapshot_id, _) in published_plans(lake.table(table), wanted).items()
        ]
    known = {one.plan_id for one in earlier}
    failures = {name: error for name, error in done.failures.items() if name not in known}
    return Published((*done.publications, *earlier), failures)


def _together(lake: Lake, work: Iterable[tuple[Callable[[], Published], Collection[str]]]) -> Published:
    publications: list[Publication] = []
    failures: dict[str, FirnError] = {}
    for commit, names in work:
        try:
            with lake.answering():
                done = commit()
        except FirnError as error:
            failures |= dict.fromkeys(names, error)
        else:
            publications += done.publications
            failures |= done.failures
    return Published(tuple(publications), failures)


def _jobs(plans: Sequence[Plan]) -> list[Job]:
    """``plans`` by table, in their order; a second plan of a topic partition waits for the next commit."""
    found: dict[tuple[str, str], list[dict[tuple[str, int], Plan]]] = {}
    for plan in plans:
        jobs = found.setdefault((plan.table, plan.table_uuid), [{}])
        if plan.topic_partition in jobs[-1] or len(jobs[-1]) == RETAINED_PLANS:
            jobs.append({})
        jobs[-1][plan.topic_partition] = plan
    return [Job(tuple(own.values())) for jobs in found.values() for own in jobs]
