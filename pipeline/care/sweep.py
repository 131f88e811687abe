"""Sweep: discard stages that will never be published, and shelve those whose plans failed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pipeline.care.jobs import MARKER, JobRemoval, delete_jobs
from pipeline.care.stale import End, FoundStage, found_stages
from pipeline.errors import FirnError
from pipeline.lake import Lake
from pipeline.lake.job_documents import JobDocuments
from pipeline.lake.topic_partition import TopicPartition
from pipeline.plan import FailedPlan, failed_plans
from pipeline.plan.failure import ABANDONED, FAILURE
from pipeline.plan.plan import stage_parts


@dataclass(frozen=True)
class Swept:
    """Result of a sweep: stages discarded, shelved as failure markers, and kept, each with the obstacle.

    It omits older failure markers, and stages that may still be published.
    """

    discarded: dict[str, str] = field(default_factory=dict)
    shelved: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)


def sweep(lake: Lake, identifier: str, plan_ids: Iterable[str] = ()) -> Swept:
    """Discard the stages of table ``identifier`` that will never be published.

    These are the stages of ``plan_ids`` (the caller's own), those that can't be published because an input is gone,
    those older than ``firn.stage.max.age.ms``, and the oldest beyond ``firn.care.stages.bytes``. Age is by the
    machine's clock and only sets the time: deletion is safe under any clock. A failed stage whose inputs are all live
    is not discarded, however old, but shelved: it marks what must not be retried, until another failure of the same
    lane and topic partition takes its place (C20).
    """
    with lake.answering():
        return clear(lake, identifier, found_stages(lake, identifier, plan_ids))


def clear(lake: Lake, identifier: str, stages: Sequence[FoundStage]) -> Swept:
    """Discard or shelve the ``stages`` of table ``identifier``, as decided."""
    swept = Swept(kept={one.identifier: one.reason for one in stages if one.end is End.UNKNOWN})
    ending = [one for one in stages if one.end in (End.DISCARD, End.SHELVE)]
    going = [JobRemoval(one.documents, keep=MARKER if one.end is End.SHELVE else ()) for one in ending]
    try:
        with lake.answering():
            if going:
                delete_jobs(lake, identifier, going)
    except FirnError as error:
        swept.kept.update(dict.fromkeys((one.identifier for one in ending), str(error)))
        return swept
    swept.discarded.update({one.identifier: one.reason for one in ending if one.end is End.DISCARD})
    swept.shelved.update({one.identifier: one.reason for one in ending if one.end is End.SHELVE})
    return swept


def retry(lake: Lake, identifier: str, only: TopicPartition | None = None) -> list[FailedPlan]:
    """Remove the failure markers of table ``identifier``, so that the next run retries; returns the removed ones.

    ``only`` restricts it to one topic partition. Raises RefusedError for an unknown table.
    """
    failed = [one for one in failed_plans(lake, identifier) if only is None or one.plan.topic_partition == only]
    forget_failures(lake, identifier, [stage_parts(one.stage)[1] for one in failed])
    return failed


def forget_failures(lake: Lake, identifier: str, job_ids: Iterable[str]) -> None:
    """Delete the remains of marked plans among ``job_ids``, so that they may be retried."""
    wanted = frozenset(job_ids)
    marked = JobDocuments.of_all(lake.table(identifier)) if wanted else {}
    going = [JobRemoval(one) for job_id, one in marked.items() if job_id in wanted and one.kinds & {FAILURE, ABANDONED}]
    if going:
        delete_jobs(lake, identifier, going)
