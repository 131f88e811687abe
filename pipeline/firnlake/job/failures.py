"""Failed plans (C20): while a plan's inputs are live, a document in its job's folder says why the plan was refused.

If the same work is planned again, the plan waits because of this document: without a change, another try would fail as
well. If only more segments have landed, another try would most likely fail as well, so there is one a day. Nothing else
makes a plan wait. The document goes with the next try, so ``report_refusal`` keeps for the data-quality pages what no
verdict tells them. This module loads no stage, because planning comes before any stage.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from pydantic import TypeAdapter, ValidationError

from firnlake import clock
from firnlake.clock import show_ms
from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import FrozenModel
from firnlake.iceberg.manifests import READERS
from firnlake.job.documents import JobDocuments
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan, stage_name

if TYPE_CHECKING:
    from firnlake.table.topic_partition import TopicPartition

PLANS: Final = "plans"
FAILURE: Final = "failure"
ABANDONED: Final = "abandoned"
"""Kinds of documents in a job's folder."""
SHOWS_RECORDS: Final = "allowed: one record per offset"
"""This text is in each reason that describes two different records at one offset; such a reason may contain a key."""
AGAIN_MS: Final = 86_400_000
"""Milliseconds after which a plan is tried again that has all segments of a failed one, and more."""


class Failure(FrozenModel):
    """Why a plan failed, in which step, and at which time by the machine's clock (epoch milliseconds)."""

    step: str
    reason: str
    clock_ms: int

    @classmethod
    def parse(cls, text: str, stage: str) -> Self:
        """Parse ``text``, the failure record of ``stage``; raises RefusedError when the record can't be read."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            problem = f"the failure record of stage {stage} is not readable: {error.errors()[0]['msg']}"
            raise RefusedError(f"{problem}; allowed: the document as Firn wrote it") from error

    def __str__(self) -> str:
        return f"failed in {self.step} at {show_ms(self.clock_ms)}; {self.reason}"


@dataclass(frozen=True)
class FailedPlan:
    """A failed plan, and the stage that records the failure."""

    stage: str
    plan: Plan
    failure: Failure

    def covers(self, plan: Plan) -> bool:
        """True when ``plan`` would repeat the failed work: the lane, the segments, their row-level deletes and the
        requests are the same. The clocks of the plans may differ."""
        return self._of_same_kind(plan) and _read_by(self.plan) == _read_by(plan)

    def holds_back(self, plan: Plan, clock_ms: int) -> bool:
        """True when ``plan`` takes more segments than the failed plan, all of which it takes too, and the failure is
        less than a day from ``clock_ms``, the time by the machine's clock. Such a plan would meet the same records."""
        young = abs(clock_ms - self.failure.clock_ms) < AGAIN_MS
        return young and self._of_same_kind(plan) and _read_by(self.plan) <= _read_by(plan)

    def _of_same_kind(self, plan: Plan) -> bool:
        return (
            self.plan.lane is plan.lane
            and self.plan.topic_partition == plan.topic_partition
            and self.plan.requests == plan.requests
        )

    def __str__(self) -> str:
        """Message that says which plan waits, since when, why, and what ends the wait."""
        return self.of_lanes([self.plan.lane])

    def of_lanes(self, lanes: Sequence[Lane]) -> str:
        """As the message about this plan, for the plans of all ``lanes`` that failed for the same reason."""
        where = self.plan.topic_partition
        one = len(lanes) == 1
        wait, plans, them = ("waits", "its plan", "it") if one else ("wait", "their plans", "them")
        changes = "its segments or requests change" if self.plan.requests else "its segments change"
        return (
            f"{where} {', '.join(lanes)} {wait}: {plans} {self.failure}; Firn retries {them} when {changes}, from "
            f"{show_ms(self.failure.clock_ms + AGAIN_MS)} on also when other segments land, and after "
            f"`firn retry {self.plan.table} {where}`"
        )


def _read_by(plan: Plan) -> set[tuple[str, int, int]]:
    """What the plan reads. Row-level deletes count, because they may hide what the plan was refused for."""
    return {(one.path, one.records, one.deletes) for one in (*plan.inputs, *plan.removed_tombstones)}


def told_once(failed: Iterable[FailedPlan]) -> Iterator[str]:
    """Yield a message for each reason; the ``failed`` plans of a topic partition that have the same reason share it."""
    alike: dict[tuple[TopicPartition, str], list[FailedPlan]] = defaultdict(list)
    for marker in failed:
        alike[marker.plan.topic_partition, marker.failure.reason].append(marker)
    for newest, *others in alike.values():
        yield newest.of_lanes(list(dict.fromkeys(one.plan.lane for one in (newest, *others))))


def failed_plans(lake: Lake, identifier: str) -> list[FailedPlan]:
    """The failed plans of table ``identifier``, newest first; reads one listing and two documents per plan.

    A failure record that can't be read is ignored, and its plan is tried again.
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

    Call this only for failures that a second try would repeat. Raises FirnError when the failure can't be recorded.
    """
    with lake.answering():
        documents = JobDocuments.of(lake.table(plan.table), plan.id)
        if documents.text(PLANS) is None:
            documents.write(PLANS, plans_text([plan]))
        documents.write(FAILURE, Failure(step=step, reason=reason, clock_ms=clock.now_ms()).model_dump_json())


def report_refusal(lake: Lake, plan: Plan, step: str, reason: str) -> None:
    """Store for the data-quality pages that ``step`` refused ``plan``, of whose result there is no verdict.

    Raises UnavailableError when Firn's home can't be written to.
    """
    from firnlake_expectations.refusals import Refusal

    refusal = Refusal(
        table=plan.table,
        topic=plan.topic,
        partition=plan.partition,
        lane=plan.lane,
        plan_id=plan.id,
        now_ms=plan.now_ms,
        records=plan.records,
        step=step,
        reason=reason,
        refused_ms=clock.now_ms(),
    )
    try:
        refusal.write(lake.reports_folder)
    except OSError as error:
        raise UnavailableError(
            f"table {plan.table}: the refusal of plan {plan.id} can't be written to {lake.reports_folder}: {error}; "
            "required: a writable folder (FIRN_HOME)"
        ) from error


_PLANS: Final = TypeAdapter(tuple[Plan, ...])


def plans_text(plans: Iterable[Plan]) -> str:
    """The document of a job's plans."""
    return _PLANS.dump_json(tuple(plans)).decode()


def plans_in(text: str, source: str) -> tuple[Plan, ...]:
    """Read the plans of a job from their document; raises RefusedError, naming ``source``, if they can't be read."""
    try:
        return _PLANS.validate_json(text)
    except ValidationError as error:
        raise RefusedError(f"the plans of stage {source} are not readable: {error.errors()[0]['msg']}") from error


def waiting(known: Iterable[FailedPlan], plans: Iterable[Plan]) -> Iterator[tuple[Plan, FailedPlan]]:
    """Yield each of ``plans`` that a ``known`` failure covers or holds back, with the newest such failure."""
    by_place: dict[tuple[str, str], list[FailedPlan]] = {}
    now_ms = clock.now_ms()
    for marker in known:
        by_place.setdefault((str(marker.plan.topic_partition), marker.plan.lane), []).append(marker)
    for plan in plans:
        for marker in by_place.get((str(plan.topic_partition), plan.lane), ()):
            if marker.covers(plan) or marker.holds_back(plan, now_ms):
                yield plan, marker
                break


def _failed_plan(identifier: str, documents: JobDocuments) -> FailedPlan | None:
    name = stage_name(identifier, documents.job_id)
    told, failure = documents.text(PLANS), documents.text(FAILURE)
    try:
        plans = plans_in(told, name) if told else ()
        return FailedPlan(name, plans[0], Failure.parse(failure, name)) if failure and len(plans) == 1 else None
    except RefusedError:
        return None
