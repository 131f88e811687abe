"""A plan's stage with a passing verdict."""

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage
from tests.support.lakes import Fates, ready, row
from tests.support.templates import Templates


@pytest.fixture
def stage(lake: Lake, plan: Plan, templates: Templates) -> Stage:
    """The stage of ``plan``, ready to be published."""
    name = templates.step(lake, "ready", lambda lake: ready(lake, plan, [row(1)], Fates(superseded=1)).identifier)
    return Stage.load(lake, name)
