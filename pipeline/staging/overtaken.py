"""Plans that another process has overtaken: their stage may be gone, but the table tells what became of them (C22)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from pipeline.errors import ConflictError, FirnError
from pipeline.history.published_plans import published_plans
from pipeline.lake import Lake
from pipeline.plan import Plan
from pipeline.staging.inputs import planned_inputs


def overtaken(lake: Lake, plans: Sequence[Plan]) -> Mapping[str, ConflictError]:
    """Those of ``plans``, all of one table, that were published or whose inputs are no longer as planned, by plan id.

    None when the table does not answer: then their own errors stand.
    """
    with suppress(FirnError), lake.answering():
        target = lake.table(plans[0].table) if plans else None
        if target:
            published = published_plans(target, [plan.id for plan in plans])
            return {
                **planned_inputs(target, plans).conflicts,
                **{
                    plan_id: ConflictError(f"plan {plan_id} was published as snapshot {snapshot_id} meanwhile")
                    for plan_id, (snapshot_id, _) in published.items()
                },
            }
    return {}
