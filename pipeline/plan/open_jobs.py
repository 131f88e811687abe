"""Open jobs: compacted or being compacted, and not published yet.

New row-level deletes on the inputs of a job are a conflict: it would have to be done again. Lane `mask` comes often, so
it waits for the others where one of them is at work.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.job_documents import JobDocuments
from pipeline.lake.manifests import READERS
from pipeline.lake.topic_partition import TopicPartition
from pipeline.plan.failure import ABANDONED, FAILURE, PLANS, plans_in
from pipeline.plan.plan import Plan, stage_name
from pipeline.sense import Lane


@dataclass(frozen=True)
class OpenJob:
    """A plan of a job that is open, and the stage of that job."""

    stage: str
    plan: Plan

    def __str__(self) -> str:
        """Message: what lane `mask` waits for, and what ends the wait."""
        return (
            f"{self.plan.topic_partition} {Lane.MASK} waits for lane {self.plan.lane}, whose stage {self.stage} is "
            "open: until it is published or discarded (firn stages)"
        )


def open_jobs(lake: Lake, identifier: str) -> Mapping[TopicPartition, OpenJob]:
    """The open jobs of table ``identifier`` that lane `mask` waits for, one per topic partition; takes one listing, and
    a document per job. Unreadable ones count as none."""
    with lake.reachable():
        every = JobDocuments.of_all(lake.table(identifier)).values()
        possible = [one for one in every if PLANS in one.kinds and one.kinds.isdisjoint((FAILURE, ABANDONED))]
        with ThreadPoolExecutor(READERS) as readers:
            stages = list(readers.map(lambda job: (stage_name(identifier, job.job_id), _plans(job)), possible))
    return {
        plan.topic_partition: OpenJob(stage, plan)
        for stage, plans in stages
        for plan in plans
        if plan.lane not in (Lane.MASK, Lane.RETAIN)
    }


def _plans(documents: JobDocuments) -> Iterable[Plan]:
    try:
        return plans_in(documents.texts(PLANS), documents.job_id) or ()
    except RefusedError:
        return ()
