"""Lane `convert` loses a race, waits, or takes more than memory holds: nothing is lost (C17, C22, C25, C27)."""

from pathlib import Path

import pytest

from firnlake.airflow.dag.planning import jobs_of
from firnlake.compact import keys
from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from firnlake.job.collect import sweep
from firnlake.job.lane import Lane
from firnlake.lanes import convert
from tests.support.faults import Nth, watched
from tests.support.lakes import publish
from tests.support.scenario import Scenario
from tests.support.upserts import Row, Upserts, equality_deletes_left, upserts


@pytest.fixture
def table(lake: Lake, engine: Engine) -> Upserts:
    """Somebody upserts into it."""
    return upserts(lake, engine)


def test_c22_a_commit_that_wins_the_race_has_its_deletes_applied(table: Upserts) -> None:
    """Decided anew on the snapshot that is committed on: what landed during the try keeps what it needs."""
    table.append(Row(0, 1), Row(1, 2))
    table.delete(["id"], (1,))
    (stage,) = table.topic.validated(table.topic.plans("convert", force=True))

    def others() -> None:
        table.append(Row(2, 1), Row(3, 3))
        table.delete(["id"], (2,), (3,))

    raced = Nth(1, others, "before swap")
    publication = publish(watched(table.topic.lake, raced), stage)
    assert raced.acted
    assert publication.attempts == 2
    assert table.seqs() == [2]
    assert equality_deletes_left(table) == 1, "the later one"
    table.topic.clean("convert", force=True)
    assert table.seqs() == [2]
    assert equality_deletes_left(table) == 0


def test_c25_a_stage_that_waits_for_its_publication_is_not_swept(table: Upserts) -> None:
    """Its inputs stay live, before and after: only the history tells whether it was published."""
    table.append(Row(0, 1), Row(1, 2))
    table.delete(["id"], (1,))
    (stage,) = table.topic.validated(table.topic.plans("convert", force=True))
    assert sweep(table.topic.lake, table.topic.table).discarded == {}
    publish(table.topic.lake, stage)
    assert table.seqs() == [1]
    assert equality_deletes_left(table) == 0


def test_c17_a_wide_plan(table: Upserts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "WHOLE_BYTES", 1)
    table.append(Row(0, 1), Row(1, 2), Row(2, None))
    table.append(Row(3, 1), Row(4, 3))
    table.delete(["id"], (1,), (None,))
    table.topic.clean("convert", force=True)
    assert table.seqs() == [1, 4]
    assert equality_deletes_left(table) == 0


def test_c17_c27_a_wide_cleaning(table: Upserts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "KEY_BYTES", 100)
    table.append(Row(0, 1), Row(1, 2), Row(2, 1))
    table.append(Row(3, 2), Row(4, 3), Row(5, 4))
    table.delete_at(2, 4)
    (counts,) = table.topic.clean("full", force=True)
    assert table.seqs() == [0, 3, 5]
    assert (counts.records_in, counts.superseded, counts.deleted) == (4, 1, 2)


@pytest.mark.parametrize("parts", [1, 2])
def test_c27_the_dag_keeps_a_delete_of_all_topic_partitions_in_one_job(
    scenario: Scenario, tmp_path: Path, parts: int
) -> None:
    scenario.answer("upserted")
    scenario.answer("append a=1 b=1" + " 1/a=1 1/c=1" * (parts - 1))
    scenario.answer("delete_equal */key a")
    work = scenario.table.plan("convert", force=True)[Lane.CONVERT]
    assert (len(work.plans), len(jobs_of(work.plans, tmp_path, 1))) == (parts, 1)
