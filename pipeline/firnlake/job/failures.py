"""Failed plans (C20): a document in the folder of its job says why a plan was refused, as long as its inputs are live.

A planner of the same work finds it and waits, because another try without a change gives the same answer. There is no
other record of failures. This module reads it without opening a stage, because planning comes before stages.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Self

from pydantic import ValidationError

from firnlake import clock
from firnlake.clock import show_ms
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import FrozenModel
from firnlake.iceberg.manifests import READERS
from firnlake.job.documents import JobDocuments
from firnlake.job.plan import Plan, stage_name

PLANS: Final = "plans"
FAILURE: Final = "failure"
ABANDONED: Final = "abandoned"
"""Kinds of documents in a job's folder."""
SHOWS_RECORDS: Final = "allowed: one record per offset"
"""Part of a reason that describes records: two different ones at one offset. Such a document may tell a key."""


class Failure(FrozenModel):
    """A failed plan's step, reason, and time by the machine's clock (epoch milliseconds)."""

    step: str
    reason: str
    clock_ms: int

    @classmethod
    def parse(cls, text: str, stage: str) -> Self:
        """Parse the failure that ``stage`` holds as ``text``; RefusedError when it can't be read."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise RefusedError(f"stage {stage}: its failure is not readable: {error.errors()[0]['msg']}") from error

    def __str__(self) -> str:
        return f"failed in {self.step} at {show_ms(self.clock_ms)}: {self.reason}"


@dataclass(frozen=True)
class FailedPlan:
    """A failed plan, and the stage that records the failure."""

    stage: str
    plan: Plan
    failure: Failure

    def covers(self, plan: Plan) -> bool:
        """True when ``plan`` would repeat the failed work, whatever the clock: the same lane on the same segments, and
        for lane ``erase`` the same requests below the same offset."""
        return (
            self.plan.lane is plan.lane
            and self.plan.topic_partition == plan.topic_partition
            and _read_by(self.plan) == _read_by(plan)
            and _searched_for(self.plan) == _searched_for(plan)
        )

    def __str__(self) -> str:
        """Message: the plan that waits, since when, why, and what ends the wait."""
        where = self.plan.topic_partition
        changes = "its segments change" if self.plan.search is None else "its segments or requests change"
        return (
            f"{where} {self.plan.lane} waits: it {self.failure}; retried when {changes}, or by `firn retry "
            f"{self.plan.table} {where}`"
        )


def _read_by(plan: Plan) -> set[tuple[str, int]]:
    return {(one.path, one.records) for one in (*plan.inputs, *plan.removed_tombstones)}


def _searched_for(plan: Plan) -> tuple[int, int | None] | None:
    """The newest request that a plan of lane ``erase`` serves, and the offset that it stops at; None of other lanes.

    A new request may name other records, and another end leaves other records alone, so neither repeats a failure.
    """
    return (plan.search.through, plan.search.before) if plan.search else None


def failed_plans(lake: Lake, identifier: str) -> list[FailedPlan]:
    """The failed plans of table ``identifier``, newest first; takes one listing and two documents per plan.

    An unreadable failure is ignored, and its plan is tried again.
    """
    with lake.reachable():
        jobs = JobDocuments.of_all(lake.table(identifier)).values()
        with ThreadPoolExecutor(READERS) as readers:
            failed = readers.map(
                lambda job: _failed_plan(identifier, job), [one for one in jobs if FAILURE in one.kinds]
            )
            markers = [marker for marker in failed if marker]
    return sorted(markers, key=lambda marker: -marker.failure.clock_ms)


def mark(lake: Lake, plan: Plan, step: str, reason: str) -> None:
    """Record that ``plan`` failed in ``step``, so that it is not tried again on the same segments.

    Only for failures that a second try would repeat. Raises FirnError when the record can't be written.
    """
    with lake.answering():
        documents = JobDocuments.of(lake.table(plan.table), plan.id)
        if not documents.texts(PLANS):
            documents.write(PLANS, plans_text([plan]))
        documents.write(FAILURE, Failure(step=step, reason=reason, clock_ms=clock.now_ms()).model_dump_json())


class _Opening(FrozenModel):
    """The plans of a job, opened once: a job that is opened again after it was deleted has another nonce."""

    nonce: str
    plans: tuple[Plan, ...]


def plans_text(plans: Iterable[Plan]) -> str:
    """Serialize the plans of a job as a document of its own for each opening, told apart by its digest."""
    return _Opening(nonce=uuid.uuid4().hex, plans=tuple(plans)).model_dump_json()


def plans_in(texts: Mapping[str, str], source: str) -> tuple[Plan, ...] | None:
    """Read the plans of a job from its documents of them; None when they were never written or are gone.

    Raises RefusedError, naming ``source``, when they can't be read.
    """
    for text in texts.values():
        try:
            # The digest in the document's name proves that the text is unchanged: ids need no second check.
            return _Opening.model_validate_json(text).plans
        except ValidationError as error:
            raise RefusedError(f"the plans of stage {source} are not readable: {error.errors()[0]['msg']}") from error
    return None


def waiting(known: Iterable[FailedPlan], plans: Iterable[Plan]) -> Iterator[tuple[Plan, FailedPlan]]:
    """Yield the ``plans`` covered by a known failure, each with its newest one."""
    by_place: dict[tuple[str, str], list[FailedPlan]] = {}
    for marker in known:
        by_place.setdefault((str(marker.plan.topic_partition), marker.plan.lane), []).append(marker)
    for plan in plans:
        for marker in by_place.get((str(plan.topic_partition), plan.lane), ()):
            if marker.covers(plan):
                yield plan, marker
                break


def _failed_plan(identifier: str, documents: JobDocuments) -> FailedPlan | None:
    name = stage_name(identifier, documents.job_id)
    try:
        plans, failures = plans_in(documents.texts(PLANS), name), documents.texts(FAILURE)
        newest = [Failure.parse(text, name) for text in failures.values()]
    except RefusedError:
        return None
    if not plans or len(plans) != 1 or not newest:
        return None
    return FailedPlan(name, plans[0], max(newest, key=lambda failure: failure.clock_ms))
