"""A plan's stage with a passing verdict."""

import pytest

from pipeline.lake import Lake
from pipeline.plan import Plan
from pipeline.staging.stage import Stage
from tests.support.lakes import Fates, ready, row


@pytest.fixture
def stage(lake: Lake, plan: Plan) -> Stage:
    """The stage of ``plan``, ready to be published."""
    return ready(lake, plan, [row(1)], Fates(superseded=1))
