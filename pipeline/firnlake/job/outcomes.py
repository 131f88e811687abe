"""What becomes of plans in a step: an error is its plan's failure, and holds up no other plan (C20).

A document for each topic partition and lane says why the last plan of both was refused. As long as all segments of the
failed plan are live, a plan that takes them waits for a day, whatever else has landed: another try would most likely
meet the same records. Then it is tried again.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from pydantic import ValidationError
from pyiceberg.table import Table

from firnlake import clock
from firnlake.clock import show_ms
from firnlake.errors import FailedError, FirnError, RefusedError, contained
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import FrozenModel, files_in, metadata_folder, name_of, store, write_whole
from firnlake.iceberg.manifests import READERS
from firnlake.job.inputs import CheckedInputs
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage
from firnlake.table.history import Counts, published_plans
from firnlake.table.segment import TopicPartition
from firnlake_expectations.case import Verdict

R = TypeVar("R")

ByPlan: TypeAlias = tuple[dict[str, R], dict[str, FirnError]]
"""What came of some plans: what succeeded, and the errors of all other plans, both by plan id."""
Stages: TypeAlias = Iterable[str] | Mapping[str, Sequence[Plan]]
"""Names of stages; or their plans by name, so that these have an outcome even if their stage is gone."""
Errors: TypeAlias = tuple[type[FirnError], ...]


@dataclass(frozen=True)
class PlanOutcome:
    """What a step has made of a plan of ``stage``, or the ``error`` that kept the step from it.

    Without ``plan_id``, the error concerns a whole stage whose plans nobody knows. ``title`` is for people. Compaction
    gives ``counts``, validation a ``verdict``, and publication a ``snapshot_id``, with ``counts`` unless it is
    ``repeated``: then an earlier commit had published the plan, and nothing has changed now.
    """

    stage: str
    plan_id: str
    title: str
    error: FirnError | None = None
    counts: Counts | None = None
    verdict: Verdict | None = None
    snapshot_id: int | None = None
    repeated: bool = False


def carried_out(
    lake: Lake,
    step: str,
    stages: Stages,
    work: Callable[[str], Sequence[PlanOutcome]],
    lost: Errors = (FailedError,),
    raised: Errors = (FailedError,),
) -> list[PlanOutcome]:
    """The outcomes of ``work``, which gets the name of each of ``stages`` in turn.

    Whatever error it raises is the failure of all plans of the stage. A plan that is published has not failed, whoever
    did it; a plan whose inputs another commit has taken or changed is in conflict (C22), whatever its error. A plan
    that ends with one of the errors ``lost``, or of those ``raised``, which another try would meet again, is marked as
    failed. If the catalog or the store does not answer now, plans keep their errors.
    """
    known = stages if isinstance(stages, Mapping) else staged(lake, stages)
    outcomes: list[PlanOutcome] = []
    for stage, plans in known.items():
        marked = lost
        try:
            with lake.answering():
                done = work(stage)
        except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one stage
            marked = raised
            done = [PlanOutcome(stage, one.id, one.title, contained(error, one.subject)) for one in plans]
            done = done or [PlanOutcome(stage, "", stage, contained(error, f"stage {stage}"))]
        outcomes += _sorted_out(lake, step, plans, done, marked)
    return outcomes


def staged(lake: Lake, names: Iterable[str]) -> dict[str, Sequence[Plan]]:
    """The plans of the stages ``names``; none of a stage that can't be read, whose error the next step tells."""
    plans: dict[str, Sequence[Plan]] = {}
    for name in names:
        plans[name] = ()
        with suppress(FirnError):
            plans[name] = Stage.load(lake, name).plans
    return plans


def _sorted_out(
    lake: Lake, step: str, plans: Sequence[Plan], outcomes: Sequence[PlanOutcome], lost: Errors
) -> list[PlanOutcome]:
    errors = {one.plan_id: one.error for one in outcomes if one.error}
    concerned = [plan for plan in plans if plan.id in errors]
    published: dict[str, int] = {}
    with suppress(FirnError), lake.answering():
        if concerned:
            target = lake.table(concerned[0].table)
            published = published_plans(target, [plan.id for plan in concerned])
            errors |= CheckedInputs.find(target, concerned).conflicts
    for plan in concerned:
        if plan.id not in published and isinstance(errors[plan.id], lost):
            # If the mark can't be written, the next run makes the same plan, which fails again.
            with suppress(FirnError):
                mark(lake, plan, step, str(errors[plan.id]))
    return [
        replace(one, error=None, verdict=None, snapshot_id=published[one.plan_id], repeated=True)
        if one.plan_id in published
        else replace(one, error=errors.get(one.plan_id))
        for one in outcomes
    ]


AGAIN_MS: Final = 86_400_000
"""Milliseconds for which a plan waits after a failure."""


class FailedPlan(FrozenModel):
    """A failed plan, in which step and why it failed, and at which time by the machine's clock (epoch milliseconds)."""

    plan: Plan
    step: str
    reason: str
    clock_ms: int

    def holds_back(self, plan: Plan, clock_ms: int) -> bool:
        """True when ``plan`` takes all that the failed plan has read, with the same row-level deletes and for the same
        requests, and the failure is less than a day from ``clock_ms``, the time by the machine's clock."""
        return (
            abs(clock_ms - self.clock_ms) < AGAIN_MS
            and (self.plan.lane, self.plan.topic_partition) == (plan.lane, plan.topic_partition)
            and self.plan.requests == plan.requests
            and _read_by(self.plan) <= _read_by(plan)
        )

    @property
    def failure(self) -> str:
        """In which step the plan failed, when and why."""
        return f"failed in {self.step} at {show_ms(self.clock_ms)}; {self.reason}"

    def __str__(self) -> str:
        """Message that says which plan waits, since when, why, and what ends the wait."""
        return next(told_once([self]))


def _read_by(plan: Plan) -> set[tuple[str, int, int]]:
    """What the plan reads. Row-level deletes count, because they may hide what the plan was refused for."""
    return {(one.path, one.records, one.deletes) for one in (*plan.inputs, *plan.removed_tombstones)}


def told_once(failed: Iterable[FailedPlan]) -> Iterator[str]:
    """Yield a message for each reason; the ``failed`` plans of a topic partition that have the same reason share it."""
    alike: dict[tuple[TopicPartition, str], list[FailedPlan]] = defaultdict(list)
    for marker in failed:
        alike[marker.plan.topic_partition, marker.reason].append(marker)
    for (where, _), own in alike.items():
        newest, lanes = own[0], dict.fromkeys(one.plan.lane for one in own)
        wait, plans, them = ("waits", "its plan", "it") if len(lanes) == 1 else ("wait", "their plans", "them")
        changes = "its segments or requests change" if newest.plan.requests else "its segments change"
        yield (
            f"{where} {', '.join(lanes)} {wait}: {plans} {newest.failure}; Firn retries {them} when {changes}, at "
            f"{show_ms(newest.clock_ms + AGAIN_MS)}, and after `firn retry {newest.plan.table} {where}`"
        )


def failed_plans(lake: Lake, identifier: str) -> list[FailedPlan]:
    """The failed plans of table ``identifier``, newest first; reads one listing and a document per plan.

    A document that can't be read is ignored, and its plan is tried again.
    """
    with lake.answering():
        table = lake.table(identifier)
        names = [name_of(file.path) for file in files_in(*store(table, _folder(table)))]
        locations = [f"{_folder(table)}/{name}" for name in names if name.endswith(".json")]
        with ThreadPoolExecutor(READERS) as readers:
            found = [one for one in readers.map(lambda location: _read(table, location), locations) if one]
    return sorted(found, key=lambda one: -one.clock_ms)


def refusal(table: Table, plan: Plan) -> RefusedError | None:
    """The error with which exactly ``plan`` of ``table`` was refused; None if it was not."""
    failed = _read(table, _location(table, plan))
    return RefusedError(f"{plan.subject} {failed.failure}") if failed and failed.plan.id == plan.id else None


def waiting(known: Sequence[FailedPlan], plans: Iterable[Plan]) -> Iterator[tuple[Plan, FailedPlan]]:
    """Yield each of ``plans`` that a ``known`` failure holds back, with this failure."""
    by_kind = {(one.plan.topic_partition, one.plan.lane): one for one in known}
    now_ms = clock.now_ms()
    for plan in plans:
        marker = by_kind.get((plan.topic_partition, plan.lane))
        if marker and marker.holds_back(plan, now_ms):
            yield plan, marker


def mark(lake: Lake, plan: Plan, step: str, reason: str) -> None:
    """Record that ``plan`` failed in ``step``, so that it is not tried again at once.

    Call this only for failures that a second try would repeat. Raises FirnError when the failure can't be recorded.
    """
    with lake.answering():
        table = lake.table(plan.table)
        failed = FailedPlan(plan=plan, step=step, reason=reason, clock_ms=clock.now_ms())
        write_whole(table, _location(table, plan), failed.model_dump_json().encode())


def forget(table: Table, plans: Iterable[Plan]) -> None:
    """Delete the failures of the lanes and topic partitions of ``plans``, whose next tries have begun."""
    there = {name_of(file.path) for file in files_in(*store(table, _folder(table)))}
    for plan in plans:
        location = _location(table, plan)
        if name_of(location) in there:
            with suppress(FileNotFoundError):
                table.io.delete(location)


def retry(lake: Lake, identifier: str, only: TopicPartition | None = None) -> list[FailedPlan]:
    """Forget the failures of table ``identifier``, so that the next run retries the plans; returns them.

    ``only`` restricts this to one topic partition. Raises RefusedError for an unknown table.
    """
    failed = [one for one in failed_plans(lake, identifier) if only is None or one.plan.topic_partition == only]
    with lake.answering():
        forget(lake.table(identifier), [one.plan for one in failed])
    return failed


def _folder(table: Table) -> str:
    return f"{metadata_folder(table)}/failures"


def _location(table: Table, plan: Plan) -> str:
    """The document's name is a digest, because a topic's name may have any length and any characters."""
    name = hashlib.sha256(f"{plan.topic_partition} {plan.lane}".encode()).hexdigest()
    return f"{_folder(table)}/{name[:32]}.json"


def _read(table: Table, location: str) -> FailedPlan | None:
    try:
        with table.io.new_input(location).open() as stream:
            return FailedPlan.model_validate_json(stream.read())
    except (FileNotFoundError, ValidationError):
        return None
