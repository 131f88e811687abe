"""Planning in a task: due plans become stages, whose names the later tasks and their commands get."""

import logging
from typing import TYPE_CHECKING, TypedDict

from airflow.sdk import get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from firnlake.airflow.dag.params import ALL, LANES, RETAIN, clock_of, scope_of
from firnlake.errors import RefusedError
from firnlake_expectations.wording import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firnlake.iceberg.catalog import Lake
    from firnlake.job.plan import Plan
    from firnlake.lanes import Lane
    from firnlake.plan.read_states import Scope


log = logging.getLogger(__name__)

PLANS_SHOWN = 50


class MappedJob(TypedDict):
    """One batch of plans: its name, the titles and input bytes of the plans, and the arguments of the two commands that
    work on their stages."""

    name: str
    plans: list[str]
    input_bytes: int
    compact: list[str]
    validate: list[str]


def lanes_to_skip(table: str) -> list[str]:
    """The lanes that this run leaves out, plus the lanes before the first lane with plans: no lane before that changes
    the table, so none of them can become due."""
    wanted = _lanes()
    # If the run is for a single lane, the lane's own task says that nothing is due.
    idle = _idle(table, wanted) if len(wanted) > 1 else ()
    return [lane for lane in (RETAIN, *LANES) if lane not in wanted or lane in idle]


def skip_if_left_out(lane: str) -> None:
    """Skip the task when this run leaves the lane out."""
    if reason := _left_out(lane):
        raise AirflowSkipException(reason)


def plans_due(lake: "Lake", table: str, lane: str) -> "list[Plan]":
    """Plan the due work of the lane; skips the task if nothing is due, or in a dry run."""
    from firnlake.lanes import Lane
    from firnlake.plan.make import plan_table

    plans = plan_table(lake, table, Lane(lane), *_terms(), _lanes())
    for plan in plans:
        log.info("%s", plan.title)
    if not plans:
        raise AirflowSkipException(f"nothing is due in lane {lane}")
    if get_current_context()["params"]["dry_run"]:
        raise AirflowSkipException(f"dry run: {count(len(plans), 'plan')} not run")
    return plans


def _left_out(lane: str) -> str | None:
    """The reason why this run leaves the lane out; None if the run includes it."""
    asked = get_current_context()["params"]
    if asked["lane"] != ALL:
        return None if asked["lane"] == lane else f"this run is for lane {asked['lane']} only"

    from firnlake.lanes import Lane

    return scope_of(asked).obstacle(Lane(lane))


def _lanes() -> "list[Lane]":
    """The lanes that this run includes."""
    from firnlake.lanes import Lane

    return [Lane(lane) for lane in (RETAIN, *LANES) if _left_out(lane) is None]


def _idle(table: str, lanes: "Sequence[Lane]") -> "Sequence[Lane]":
    """Those of ``lanes`` that come before the first lane with plans. Empty if planning fails, so that a lane's own task
    reports the error."""
    from firnlake.iceberg.catalog import Lake
    from firnlake.plan.make import plan_lanes

    try:
        for lane, work in plan_lanes(Lake.load(), table, *_terms(), lanes):
            if work.plans:
                return lanes[: lanes.index(lane)]
            work.warn()
    except RefusedError:
        return ()
    return lanes


def _terms() -> "tuple[int, bool, Scope]":
    """The clock of this run's decisions (epoch milliseconds), whether it ignores thresholds, and its scope."""
    from firnlake import clock

    context = get_current_context()
    asked = context["params"]
    now = clock_of(context["dag_run"], clock.from_ms(clock.now_ms()))
    return clock.to_ms(now), asked["force"], scope_of(asked)


def jobs_of(lake: "Lake", plans: "Sequence[Plan]", plans_per_job: int) -> list[MappedJob]:
    """Jobs of up to ``plans_per_job`` plans each, whose stages are now open. Jobs of lane `convert` are larger,
    because the lane removes a delete file only if one job has all topic partitions that the file applies to."""
    from firnlake.job.job import MOST_PLANS

    if plans and plans[0].lane.traits.writes == "deletes":
        plans_per_job = max(plans_per_job, MOST_PLANS)
    return [_job(lake, plans[start : start + plans_per_job]) for start in range(0, len(plans), plans_per_job)]


def _job(lake: "Lake", plans: "Sequence[Plan]") -> MappedJob:
    from firnlake.job.stage import open_stages

    stages = open_stages(lake, plans)
    others = f" and {len(plans) - 1} more" if len(plans) > 1 else ""
    shown = [plan.title for plan in plans[:PLANS_SHOWN]]
    more = [f"… and {len(plans) - PLANS_SHOWN} more"] if len(plans) > PLANS_SHOWN else []
    return MappedJob(
        name=f"{plans[0].topic_partition}{others}",
        plans=shown + more,
        input_bytes=sum(plan.read_bytes for plan in plans),
        compact=["compact", *stages],
        validate=["validate", *stages],
    )
