"""C5: a record without a key is moved before the commit that removes it, with the reason, and never lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import ConflictError
from pipeline.lake import Lake
from pipeline.lake.folders import DATA_FOLDER
from pipeline.plan import plan_table
from pipeline.publish import Publication, publish
from pipeline.quarantine import quarantine
from pipeline.sense import Lane
from pipeline.stage import QUARANTINED, Stage, discard, split
from tests.support import lakes
from tests.support.lakes import NOW, TABLE, Fates, Part, append, append_two, hand_over, only_plan, ready, row
from tests.unit.staging.test_stage import crash_after_commit

QUARANTINE = f"{TABLE}{quarantine.SUFFIX}"

pytestmark = pytest.mark.usefixtures("table")


def null_key_stage(lake: Lake) -> Stage:
    """A stage that moves the record without a key, offset 0, to the quarantine table."""
    append_two(lake, row(0, key=None, value=b"lost?"), row(1))
    kept = [row(0, key=None, value=b"lost?", level=QUARANTINED), row(1)]
    return ready(lake, only_plan(lake), kept, Fates(quarantined=1))


def quarantined(lake: Lake) -> list[lakes.Row]:
    if QUARANTINE not in lake.tables("lake"):
        return []
    return list(lake.table(QUARANTINE).scan().to_arrow().to_pylist())


def test_c5_it_is_moved_with_reason_and_plan(lake: Lake) -> None:
    stage = null_key_stage(lake)
    publish(lake, stage.identifier)
    assert lakes.offsets(lake) == [1]
    (moved,) = quarantined(lake)
    assert (moved["quarantine_reason"], moved["quarantine_plan"]) == ("null key", stage.plan.id)
    assert (moved["topic"], moved["partition"], moved["offset"]) == ("orders", 0, 0)
    assert (moved["key"], moved["value"]) == (None, b"lost?")
    assert moved["timestamp"] == row(0)["timestamp"]


def test_c5_its_columns_are_the_tables_and_two_more(lake: Lake) -> None:
    publish(lake, null_key_stage(lake).identifier)
    schema = lake.table(QUARANTINE).schema()
    assert schema.column_names[-2:] == ["quarantine_reason", "quarantine_plan"]
    assert schema.fields[:-2] == lake.table(TABLE).schema().fields
    found = lake.table(QUARANTINE).scan(row_filter="quarantine_reason = 'null key' and topic = 'orders'")
    assert found.to_arrow().num_rows == 1
    assert lake.table(QUARANTINE).scan(row_filter="quarantine_plan = 'other'").to_arrow().num_rows == 0


def test_c5_nothing_is_quarantined_without_a_publish(lake: Lake) -> None:
    stage = null_key_stage(lake)
    assert quarantined(lake) == []
    discard(lake, stage.identifier)
    assert quarantined(lake) == []
    assert lakes.offsets(lake) == [0, 1]


def test_c5_quarantines_of_several_plans_add_up(lake: Lake) -> None:
    publish(lake, null_key_stage(lake).identifier)
    append(lake, [row(2, key=None)])
    kept = [row(1), row(2, key=None, level=QUARANTINED)]
    publish(lake, ready(lake, only_plan(lake), kept, Fates(quarantined=1)).identifier)
    assert sorted(moved["offset"] for moved in quarantined(lake)) == [0, 2]


def test_c5_c25_after_a_crash_it_is_moved_once(lake: Lake, tmp_path: Path) -> None:
    stage = null_key_stage(lake)
    hand_over(lake, stage)
    assert len(quarantined(lake)) == 1
    crash_after_commit(lake, stage, tmp_path / "copy")
    publish(lake, stage.identifier)
    assert [moved["offset"] for moved in quarantined(lake)] == [0]


def test_c5_it_lies_below_the_quarantine_and_nothing_of_it_below_the_table(lake: Lake) -> None:
    """Tools that remove orphans look below a table's location for what the table does not refer to."""
    stage = null_key_stage(lake)
    publish(lake, stage.identifier)
    (home,) = {lakes.on_disk(path).parent for path in lakes.paths(lake.table(QUARANTINE))}
    assert home.parents[2] == lakes.on_disk(lake.table(QUARANTINE).location())
    own = lakes.on_disk(lake.table(TABLE).location()) / "data" / DATA_FOLDER
    kept = {lakes.on_disk(path) for path in lakes.paths(lake.table(TABLE))}
    assert {path for path in lakes.files_under(own) if path.suffix == ".parquet"} <= kept


def test_c5_after_a_lost_race_it_is_taken_back(lake: Lake) -> None:
    stage = null_key_stage(lake)
    hand_over(lake, stage)
    lake.table(TABLE).delete("offset = 1")
    with pytest.raises(ConflictError):
        publish(lake, stage.identifier)
    assert quarantined(lake) == []
    assert lakes.offsets(lake) == [0]


def test_c5_a_discard_takes_it_back(lake: Lake) -> None:
    stage = null_key_stage(lake)
    hand_over(lake, stage)
    discard(lake, stage.identifier)
    assert quarantined(lake) == []
    assert lakes.offsets(lake) == [0, 1]


@pytest.mark.parametrize("act", [publish, discard])
def test_c5_a_plan_whose_publish_the_history_forgot_is_not_taken_back(
    lake: Lake, tmp_path: Path, act: Callable[[Lake, str], object]
) -> None:
    stage = null_key_stage(lake)
    crash_after_commit(lake, stage, tmp_path / "copy")
    (snapshot,) = lakes.publishes(lake, stage.plan)
    append(lake, [row(2)])
    lake.table(TABLE).maintenance.expire_snapshots().by_id(snapshot).commit()
    try:
        act(lake, stage.identifier)
    except ConflictError as error:
        assert "no longer live" in str(error)  # noqa: PT017
    assert [moved["value"] for moved in quarantined(lake)] == [b"lost?"]
    assert lakes.offsets(lake) == [1, 2]


def test_c5_another_plan_that_was_published_instead_leaves_it_there_once(lake: Lake) -> None:
    """The first one's inputs are gone as if it had been published; the history knows that it was not."""
    stage = null_key_stage(lake)
    hand_over(lake, stage)
    kept = [row(0, key=None, value=b"lost?", level=QUARANTINED), row(1)]
    instead = ready(lake, only_plan(lake, now_ms=NOW + 1), kept, Fates(quarantined=1))
    publish(lake, instead.identifier)
    discard(lake, stage.identifier)
    (moved,) = quarantined(lake)
    assert (moved["offset"], moved["quarantine_plan"]) == (0, instead.plan.id)


def test_c5_what_the_parts_of_a_job_have_moved_stays_when_its_own_stage_goes(lake: Lake) -> None:
    """Where the answer to its counts was lost it is split: the plans are published from stages of their own."""
    append_two(lake, row(0, key=None, value=b"lost?"), row(1))
    append_two(lake, row(0, partition=1), row(1, partition=1))
    first, second = sorted(plan_table(lake, TABLE, Lane.FULL, NOW, force=True), key=lambda plan: plan.partition)
    kept = [row(0, key=None, value=b"lost?", level=QUARANTINED), row(1)]
    parts = [Part(first, kept, Fates(quarantined=1)), Part(second, [row(1, partition=1)], Fates(superseded=1))]
    whole = lakes.compacted_job(lake, parts)
    split(lake, whole)
    publish(lake, ready(lake, first, kept, Fates(quarantined=1)).identifier)
    discard(lake, whole.identifier)
    assert [moved["offset"] for moved in quarantined(lake)] == [0]


def test_c5_c25_publishing_at_the_same_time_moves_it_once(lake: Lake) -> None:
    stage = null_key_stage(lake)
    found = lakes.together(*[lambda: publish(Lake.embedded(lake.home), stage.identifier)] * 3)
    assert all(isinstance(one, Publication) for one in found), found
    assert [moved["offset"] for moved in quarantined(lake)] == [0]
    assert lakes.offsets(lake) == [1]
