"""Mark plans that were refused, and take the marks away (C20)."""

from contextlib import suppress

from pipeline import clock
from pipeline.errors import FirnError
from pipeline.lake import Lake
from pipeline.lake.topic_partition import TopicPartition
from pipeline.plan import FailedPlan, Failure, Job, Plan, failed_plans
from pipeline.plan.failure import FAILURE_PROPERTY
from pipeline.stage.discard import discard
from pipeline.stage.open import folder_of, register_stage
from pipeline.stage.stage import Stage, plan_properties


def mark(lake: Lake, identifier: str, plan: Plan, room: str, reason: str) -> None:
    """Say that ``plan`` failed in ``room``, on the stage ``identifier``: it is not tried again on the same segments.

    When others share that stage, it is said on one of the plan's own, which has no files. Only for what a second try
    would meet again. Without a stage, or when it can't be written to, nothing is marked and the next run tries again;
    a plan that another process found good is left alone.
    """
    failure = Failure(room=room, reason=reason, clock_ms=clock.now_ms())
    with suppress(FirnError):
        if Stage.load(lake, identifier).passed(plan.id):
            return
        if identifier == plan.stage:
            lake.set_properties(identifier, {FAILURE_PROPERTY: failure.model_dump_json()})
        else:
            _register_marker(lake, plan, failure.model_copy(update={"shelved": True}))


def retry(lake: Lake, identifier: str, only: TopicPartition | None = None) -> list[FailedPlan]:
    """Take the failure markers of table ``identifier`` away, so that the next run tries again; those that were there.

    ``only`` restricts it to one topic partition. Raises RefusedError for an unknown table.
    """
    lake.table(identifier)
    found = [marker for marker in failed_plans(lake, identifier) if only is None or marker.plan.topic_partition == only]
    for marker in found:
        discard(lake, marker.stage)
    return found


def _register_marker(lake: Lake, plan: Plan, failure: Failure) -> None:
    """Register a stage that never was more than a marker. One that is there already is of a try of its own."""
    target = lake.table(plan.table)
    said = plan_properties(Job((plan,)), target, folder_of(target, plan.id))
    register_stage(lake, target, plan.stage, said | {FAILURE_PROPERTY: failure.model_dump_json()})
