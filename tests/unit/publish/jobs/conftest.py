"""A job of three plans, compacted and judged."""

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage
from firnlake.plan.make import plan_table
from tests.support.jobs import PARTITIONS, part
from tests.support.lakes import NOW, append, compacted_job, judged, row
from tests.support.templates import Templates


@pytest.fixture
def plans(lake: Lake, table: str, templates: Templates) -> list[Plan]:
    """Full plans of three topic partitions, in each of which offset 1 supersedes offset 0 of the key ``k``."""

    def make(lake: Lake) -> tuple[Plan, ...]:
        for offset in range(2):
            append(lake, [row(offset, partition=number, value=b"%d" % offset) for number in range(PARTITIONS)])
        return tuple(plan_table(lake, table, Lane.FULL, NOW, force=True))

    return sorted(templates.step(lake, "plans", make), key=lambda plan: plan.partition)


@pytest.fixture
def stage(lake: Lake, plans: list[Plan], templates: Templates) -> Stage:
    """Their stage, ready to be published."""

    def make(lake: Lake) -> str:
        return judged(lake, compacted_job(lake, [part(plan) for plan in plans])).identifier

    return Stage.load(lake, templates.step(lake, "ready", make))
