"""Mark plans that were refused, and take the marks away (C20)."""

from contextlib import suppress

from pipeline import clock
from pipeline.errors import FirnError
from pipeline.lake import Lake
from pipeline.plan import FailedPlan, Failure, failed_plans
from pipeline.plan.failure import FAILURE_PROPERTY
from pipeline.segments import TopicPartition
from pipeline.stage.discard import discard
from pipeline.stage.stage import Stage


def mark(lake: Lake, identifier: str, room: str, reason: str) -> None:
    """Say on the stage ``identifier`` that its plan failed in ``room``: it is not tried again on the same segments.

    Only for what a second try would meet again. Without a stage, or when it can't be written to, nothing is marked and
    the next run tries again; a stage that another process found good is left alone.
    """
    failure = Failure(room=room, reason=reason, clock_ms=clock.now_ms())
    with suppress(FirnError):
        verdict = Stage.load(lake, identifier).verdict
        if verdict is None or not verdict["passed"]:
            lake.set_properties(identifier, {FAILURE_PROPERTY: failure.model_dump_json()})


def retry(lake: Lake, identifier: str, only: TopicPartition | None = None) -> list[FailedPlan]:
    """Take the failure markers of table ``identifier`` away, so that the next run tries again; those that were there.

    ``only`` restricts it to one topic partition. Raises RefusedError for an unknown table.
    """
    lake.table(identifier)
    found = [marker for marker in failed_plans(lake, identifier) if only is None or marker.plan.topic_partition == only]
    for marker in found:
        discard(lake, marker.stage)
    return found
