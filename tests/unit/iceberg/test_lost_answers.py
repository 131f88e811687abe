"""The catalog applied a commit but did not say so: what the table needs is not cleared away (C25)."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from firnlake.errors import OutcomeUnknownError, RefusedError
from firnlake.iceberg.branches import QUARANTINED, SIDE_BRANCHES, ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.ingest import quarantine
from firnlake.ingest.land import land
from firnlake.job.collect import discard, sweep
from firnlake.job.stage import Stage, stages_of
from firnlake.table import records
from infra.foreign.files import files_under
from tests.support import lakes
from tests.support.faults import Forgetful, through
from tests.support.lakes import TABLE, Fates, append, only_plan, ready, row
from tests.support.publishing import publish
from tests.support.stages import data_of
from tests.support.templates import Templates

WAYS = ["", "sql", "busy"]
"""Python's words, SQLAlchemy's, and a catalog that says it is busy."""


@pytest.fixture
def stage(lake: Lake, table: str, templates: Templates) -> Stage:
    assert table

    def make(lake: Lake) -> str:
        for rows in ([row(0, b"a"), row(1, b"b")], [row(2, b"a")], [row(3, b"z")]):
            append(lake, rows)
        kept = [row(1, b"b"), row(2, b"a"), row(3, b"z")]
        return ready(lake, only_plan(lake), kept, Fates(superseded=1)).identifier

    return Stage.load(lake, templates.step(lake, "answered", make))


def keyless(lake: Lake) -> Stage:
    """One that moves a record without a key to the quarantine."""
    append(lake, [row(0, None, headers=[]), row(1, b"a", headers=[])])
    kept = [row(0, None, headers=[], level=QUARANTINED), row(1, b"a", headers=[])]
    return ready(lake, only_plan(lake), kept, Fates(quarantined=1))


def commits(lake: Lake) -> int:
    return len(list(ancestors(lake.table(TABLE))))


@pytest.mark.parametrize("says", WAYS)
def test_c25_a_lost_answer_is_found_out(lake: Lake, stage: Stage, says: str) -> None:
    before = commits(lake)
    published = publish(through(lake, Forgetful("no", says=says)), stage.identifier)
    assert not published.repeated
    assert published.snapshot_id == lakes.snapshot(lake)
    assert lakes.offsets(lake) == [1, 2, 3]
    assert commits(lake) == before + 1


def test_c25_a_catalog_that_goes_down_leaves_everything(lake: Lake, stage: Stage) -> None:
    with pytest.raises(OutcomeUnknownError):
        publish(through(lake, Forgetful("yes")), stage.identifier)
    assert lakes.offsets(lake) == [1, 2, 3]
    assert publish(lake, stage.identifier).repeated
    assert lakes.offsets(lake) == [1, 2, 3]


def test_c25_who_discards_then_deletes_nothing_that_is_published(lake: Lake, stage: Stage) -> None:
    with pytest.raises(OutcomeUnknownError):
        publish(through(lake, Forgetful("yes")), stage.identifier)
    assert discard(lake, stage.identifier) == 0
    assert lakes.offsets(lake) == [1, 2, 3]
    assert stages_of(lake, TABLE) == []


@pytest.mark.parametrize("says", WAYS)
def test_c25_a_landing_without_an_answer_lands_once(lake: Lake, table: str, tmp_path: Path, says: str) -> None:
    path = tmp_path / "landed.parquet"
    pq.write_table(lakes.kafka([row(0), row(1)]), path)
    landed = land(through(lake, Forgetful("no", says=says)), table, [path])
    assert (landed.snapshot_id, landed.repeated) == (lakes.snapshot(lake), False)
    assert lakes.offsets(lake) == [0, 1]


def test_c25_nor_does_one_that_is_repeated_after_the_catalog_was_down(lake: Lake, table: str, tmp_path: Path) -> None:
    path = tmp_path / "landed.parquet"
    pq.write_table(lakes.kafka([row(0), row(1)]), path)
    with pytest.raises(OutcomeUnknownError, match="no file was deleted"):
        land(through(lake, Forgetful("yes")), table, [path])
    again = land(lake, table, [path])
    assert (again.snapshot_id, again.repeated, again.records) == (lakes.snapshot(lake), True, 2)
    assert lakes.offsets(lake) == [0, 1]


@pytest.mark.parametrize("says", WAYS)
@pytest.mark.usefixtures("table")
def test_c5_c25_what_is_quarantined_is_there_once(lake: Lake, says: str) -> None:
    stage = keyless(lake)
    assert not publish(through(lake, Forgetful("no", says=says)), stage.identifier).repeated
    assert lakes.offsets(lake) == [1]
    assert [one.offset for one in quarantine.records(lake, TABLE, 10)] == [0]


@pytest.mark.usefixtures("table")
def test_c5_c25_nor_is_it_moved_again_when_the_catalog_is_back(lake: Lake) -> None:
    stage = keyless(lake)
    with pytest.raises(OutcomeUnknownError):
        publish(through(lake, Forgetful("yes")), stage.identifier)
    assert publish(lake, stage.identifier).repeated
    assert [one.offset for one in quarantine.records(lake, TABLE, 10)] == [0]


@pytest.mark.parametrize("says", WAYS)
def test_c25_a_discard_whose_newer_snapshot_had_no_answer_is_carried_on(lake: Lake, stage: Stage, says: str) -> None:
    before = commits(lake)
    sweep(through(lake, Forgetful("no", says=says)), TABLE, [stage.job_id])
    assert stages_of(lake, TABLE) == []
    assert files_under(data_of(stage)) == set()
    assert lakes.offsets(lake) == [0, 1, 2, 3]
    assert commits(lake) == before + 1


def test_c25_a_discard_deletes_nothing_before_it_is_known(lake: Lake, stage: Stage) -> None:
    swept = sweep(through(lake, Forgetful("yes")), TABLE, [stage.job_id])
    assert "the connection broke" in swept.kept[stage.identifier]
    assert files_under(data_of(stage))


@pytest.mark.parametrize("says", WAYS)
def test_c25_a_table_that_was_created_without_an_answer_is_whole(lake: Lake, says: str) -> None:
    table = records.create(through(lake, Forgetful("no", says=says)), TABLE, {})
    assert set(SIDE_BRANCHES) <= set(table.metadata.refs)
    assert len(table.metadata.snapshots) == 1 + len(SIDE_BRANCHES)
    with pytest.raises(RefusedError, match="already exists"):
        records.create(lake, TABLE, {})
    publish(lake, keyless(lake).identifier)
    assert [one.offset for one in quarantine.records(lake, TABLE, 10)] == [0]
