"""What becomes of plans in a step: an error is its plan's failure, and holds up no other plan (C20)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from firnlake.errors import ConflictError, FailedError, FirnError, contained
from firnlake.iceberg.catalog import Lake
from firnlake.job.failures import mark
from firnlake.job.inputs import CheckedInputs
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage
from firnlake.table.history import Counts, published_plans
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

    @property
    def passed(self) -> bool:
        """True if the plan has a passing verdict."""
        return self.verdict is not None and self.verdict.passed


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
    published, conflicts = _overtaken(lake, concerned)
    errors |= conflicts
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


def _overtaken(lake: Lake, plans: Sequence[Plan]) -> tuple[Mapping[str, int], Mapping[str, ConflictError]]:
    """By plan id, the snapshots that published some of ``plans`` (of one table), and the conflicts of others."""
    with suppress(FirnError), lake.answering():
        if plans:
            target = lake.table(plans[0].table)
            return published_plans(target, [plan.id for plan in plans]), CheckedInputs.find(target, plans).conflicts
    return {}, {}
