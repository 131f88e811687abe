"""What becomes of plans in a step: an error is its plan's failure, and holds up no other plan (C20)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias, TypeVar

from firnlake.errors import ConflictError, FirnError, RefusedError, contained
from firnlake.iceberg.catalog import Lake
from firnlake.job.failures import mark, report_refusals
from firnlake.job.inputs import CheckedInputs
from firnlake.job.plan import Plan
from firnlake.table.history import PublishedPlan, published_plans

R = TypeVar("R")

ByPlan: TypeAlias = tuple[dict[str, R], dict[str, FirnError]]
"""What came of some plans: what succeeded, and the errors of all other plans, both by plan id."""
Published: TypeAlias = Mapping[str, tuple[int, PublishedPlan]]
"""By id, plans that are published, with the id of the snapshot."""


def by_plan(lake: Lake, plans: Sequence[Plan], work: Callable[[], ByPlan[R]]) -> ByPlan[R]:
    """What ``work`` returns; whatever error it raises is the failure of all ``plans``."""
    try:
        with lake.answering():
            return work()
    except Exception as raised:  # noqa: BLE001  # whatever it is, it concerns these plans
        return {}, {plan.id: contained(raised, plan.subject) for plan in plans}


def sorted_out(
    lake: Lake,
    step: str,
    plans: Sequence[Plan],
    failed: Mapping[str, FirnError],
    lost: tuple[type[FirnError], ...] = (RefusedError,),
    *,
    reported: bool = False,
) -> tuple[Published, dict[str, FirnError]]:
    """Those of the ``failed`` plans (of one table) that are published, whoever did it, and the errors of the others.

    A plan whose inputs another commit has taken or changed is in conflict (C22), whatever its error. A plan that ends
    with one of the errors ``lost``, which another try would meet again, is marked as failed, and ``reported`` for the
    data-quality pages. If the catalog or the store does not answer now, plans keep their errors.
    """
    concerned = [plan for plan in plans if plan.id in failed]
    published, conflicts = _overtaken(lake, concerned)
    errors = {plan.id: conflicts.get(plan.id, failed[plan.id]) for plan in concerned if plan.id not in published}
    refused = [(plan, str(errors[plan.id])) for plan in concerned if isinstance(errors.get(plan.id), lost)]
    for plan, reason in refused:
        # If the mark can't be written, the next run makes the same plan, which fails again.
        with suppress(FirnError):
            mark(lake, plan, step, reason)
    if reported and refused:
        with suppress(FirnError):
            report_refusals(lake, step, refused)
    return published, errors


def _overtaken(lake: Lake, plans: Sequence[Plan]) -> tuple[Published, Mapping[str, ConflictError]]:
    with suppress(FirnError), lake.answering():
        if plans:
            target = lake.table(plans[0].table)
            return published_plans(target, [plan.id for plan in plans]), CheckedInputs.find(target, plans).conflicts
    return {}, {}
