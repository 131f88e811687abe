"""The catalog applied a commit but did not say so: what the table needs is not cleared away (C25)."""

import pytest

from firnlake.errors import OutcomeUnknownError, RefusedError
from firnlake.iceberg.branches import QUARANTINED, SIDE_BRANCHES, ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.ingest import quarantine
from firnlake.job.collect import discard
from firnlake.job.stage import Stage, stages_of
from firnlake.table import records
from tests.support import lakes
from tests.support.faults import Forgetful, through
from tests.support.lakes import TABLE, Fates, append, only_plan, publish, ready, row
from tests.support.templates import Templates

WAYS = ["", "sql", "busy"]
"""Python's words, SQLAlchemy's, and a catalog that says it is busy."""
SEEN = ([1, 3, 4], [2])
"""The offsets on main and in quarantine once the stage is published."""


@pytest.fixture
def stage(lake: Lake, table: str, templates: Templates) -> Stage:
    """One that removes a record, and moves one without a key to the quarantine."""
    assert table

    def make(lake: Lake) -> str:
        for rows in ([row(0, b"a"), row(1, b"b")], [row(2, None), row(3, b"a")], [row(4, b"z")]):
            append(lake, rows)
        kept = [row(1, b"b"), row(2, None, level=QUARANTINED), row(3, b"a"), row(4, b"z")]
        return ready(lake, only_plan(lake), kept, Fates(superseded=1, quarantined=1)).identifier

    return Stage.load(lake, templates.step(lake, "answered", make))


def seen(lake: Lake) -> tuple[list[int], list[int]]:
    return lakes.offsets(lake), [one.offset for one in quarantine.records(lake, TABLE, 10)]


def commits(lake: Lake) -> int:
    return len(list(ancestors(lake.table(TABLE))))


@pytest.mark.parametrize("says", WAYS)
def test_c5_c25_a_lost_answer_is_found_out(lake: Lake, stage: Stage, says: str) -> None:
    before = commits(lake)
    published = publish(through(lake, Forgetful("no", says=says)), stage.identifier)
    assert not published.repeated
    assert published.snapshot_id == lakes.snapshot(lake)
    assert (seen(lake), commits(lake)) == (SEEN, before + 1)


@pytest.mark.parametrize("then", ["published again", "discarded"])
def test_c5_c25_a_catalog_that_goes_down_leaves_everything(lake: Lake, stage: Stage, then: str) -> None:
    with pytest.raises(OutcomeUnknownError):
        publish(through(lake, Forgetful("yes")), stage.identifier)
    assert seen(lake) == SEEN
    if then == "discarded":
        assert discard(lake, stage.identifier) == 0
    else:
        assert publish(lake, stage.identifier).repeated
    assert (seen(lake), stages_of(lake, TABLE)) == (SEEN, [])


@pytest.mark.parametrize("says", WAYS)
def test_c25_a_table_that_was_created_without_an_answer_is_whole(lake: Lake, says: str) -> None:
    table = records.create(through(lake, Forgetful("no", says=says)), TABLE, {})
    assert set(SIDE_BRANCHES) <= set(table.metadata.refs)
    assert len(table.metadata.snapshots) == 1 + len(SIDE_BRANCHES)
    with pytest.raises(RefusedError, match="already exists"):
        records.create(lake, TABLE, {})
