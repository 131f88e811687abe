"""Stages to be collected, and history to expire."""

from pathlib import Path

import pytest

from firnlake.iceberg.branches import QUARANTINED
from firnlake.iceberg.catalog import Lake
from firnlake.job.stage import Stage
from tests.support import lakes
from tests.support.expiring import replaced
from tests.support.lakes import TABLE, Fates, append_two, compacted, judged, row
from tests.support.templates import Templates


@pytest.fixture
def compacted_stage(lake: Lake, table: str, templates: Templates) -> Stage:
    """One that moves a record without a key to the quarantine; nobody has judged it yet."""
    assert table

    def make(lake: Lake) -> str:
        append_two(lake, row(0, key=None, headers=[]), row(1, headers=[]))
        kept = [row(0, key=None, headers=[], level=QUARANTINED), row(1, headers=[])]
        return compacted(lake, lakes.only_plan(lake), kept, Fates(quarantined=1)).identifier

    return Stage.load(lake, templates.step(lake, "compacted", make))


@pytest.fixture
def stage(lake: Lake, compacted_stage: Stage) -> Stage:
    """The same, ready to be published."""
    return judged(lake, compacted_stage)


@pytest.fixture
def old(lake: Lake, table: str, templates: Templates) -> set[Path]:
    """Data files that only past snapshots reach."""
    assert table == TABLE
    return set(templates.step(lake, "replaced", replaced))
