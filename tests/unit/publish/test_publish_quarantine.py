"""C5: a record without a key is moved by the commit that removes it from main, and never lost or there twice."""

from collections.abc import Callable
from pathlib import Path

import pytest

from firnlake.errors import ConflictError
from firnlake.iceberg.branches import QUARANTINE, QUARANTINED, REMOVED, REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.quarantine import batches
from firnlake.job.collect import discard
from firnlake.job.lane import Lane
from firnlake.job.stage import Stage
from firnlake.plan.make import plan_table
from firnlake.publish.attempts import Publication
from tests.support import lakes
from tests.support.faults import Killed, Nth, die, watched
from tests.support.lakes import NOW, TABLE, Fates, Part, append, append_two, only_plan, ready, row
from tests.support.publishing import publish
from tests.support.stages import crash_after_commit

pytestmark = pytest.mark.usefixtures("table")


def null_key_stage(lake: Lake) -> Stage:
    """A stage that moves the record without a key, offset 0, to the quarantine."""
    append_two(lake, row(0, key=None, value=b"lost?"), row(1))
    kept = [row(0, key=None, value=b"lost?", level=QUARANTINED), row(1)]
    return ready(lake, only_plan(lake), kept, Fates(quarantined=1))


def tombstone_stage(lake: Lake) -> Stage:
    """A stage that removes the tombstone at offset 0."""
    append_two(lake, row(0, b"a", None), row(1))
    kept = [row(0, b"a", None, level=REMOVED), row(1)]
    return ready(lake, only_plan(lake), kept, Fates(tombstones_removed=1))


def on(lake: Lake, branch: str) -> list[lakes.Row]:
    return list(on_branch(lake.table(TABLE), branch).scan().to_arrow().to_pylist())


def quarantined(lake: Lake) -> list[lakes.Row]:
    return on(lake, QUARANTINE)


def test_c5_it_is_moved_as_it_was(lake: Lake) -> None:
    stage = null_key_stage(lake)
    publish(lake, stage.identifier)
    assert lakes.offsets(lake) == [1]
    (moved,) = quarantined(lake)
    assert (moved["topic"], moved["partition"], moved["offset"]) == ("orders", 0, 0)
    assert (moved["key"], moved["value"]) == (None, b"lost?")
    assert moved["timestamp"] == row(0)["timestamp"]
    assert moved["level"] == QUARANTINED
    (batch,) = batches(lake, TABLE)
    assert (batch.reason, batch.job, batch.records) == ("null key", stage.job_id, 1)


@pytest.mark.parametrize(("made", "branch"), [(null_key_stage, QUARANTINE), (tombstone_stage, REMOVED_TOMBSTONES)])
def test_c5_c9_it_goes_with_the_commit_that_takes_it_from_main(
    lake: Lake, made: Callable[[Lake], Stage], branch: str
) -> None:
    """No reader sees it on both branches or on neither, whenever the publisher dies."""
    stage = made(lake)
    states: list[tuple[list[int], list[int]]] = []

    def look(_: str) -> None:
        states.append((lakes.offsets(lake), [one["offset"] for one in on(lake, branch)]))

    publish(watched(lake, look), stage.identifier)
    look("afterwards")
    assert {(tuple(main), tuple(side)) for main, side in states} == {((0, 1), ()), ((1,), (0,))}


@pytest.mark.parametrize("nth", range(1, 12))
def test_c5_c25_wherever_the_publisher_dies_it_is_moved_once(lake: Lake, nth: int) -> None:
    stage = null_key_stage(lake)
    dies = Nth(nth, die)
    try:
        publish(watched(lake, dies), stage.identifier)
    except Killed:
        assert (lakes.offsets(lake), len(quarantined(lake))) in (([0, 1], 0), ([1], 1))
    publish(lake, stage.identifier)
    assert lakes.offsets(lake) == [1]
    assert [moved["offset"] for moved in quarantined(lake)] == [0]


def test_c5_a_branch_is_read_by_its_name(lake: Lake) -> None:
    publish(lake, null_key_stage(lake).identifier)
    found = lake.table(TABLE).scan(row_filter="topic = 'orders'").use_ref(QUARANTINE)
    assert found.to_arrow()["offset"].to_pylist() == [0]
    assert lake.table(TABLE).scan().use_ref(REMOVED_TOMBSTONES).to_arrow().num_rows == 0


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


def test_c5_c25_after_a_crash_it_is_there_once(lake: Lake, tmp_path: Path) -> None:
    stage = null_key_stage(lake)
    crash_after_commit(lake, stage, tmp_path / "copy")
    assert publish(lake, stage.identifier).repeated
    assert [moved["offset"] for moved in quarantined(lake)] == [0]


def test_c5_after_a_lost_race_nothing_is_moved(lake: Lake) -> None:
    stage = null_key_stage(lake)
    lake.table(TABLE).delete("offset = 1")
    with pytest.raises(ConflictError):
        publish(lake, stage.identifier)
    assert quarantined(lake) == []
    assert lakes.offsets(lake) == [0]


@pytest.mark.parametrize("act", [publish, discard])
def test_c5_what_is_quarantined_stays_whatever_the_history_forgot(
    lake: Lake, tmp_path: Path, act: Callable[[Lake, str], object]
) -> None:
    stage = null_key_stage(lake)
    crash_after_commit(lake, stage, tmp_path / "copy")
    (snapshot,) = lakes.publishes(lake, stage.plans[0])
    append(lake, [row(2)])
    lake.table(TABLE).maintenance.expire_snapshots().by_id(snapshot).commit()
    try:
        act(lake, stage.identifier)
    except ConflictError as error:
        assert "no longer live" in str(error)  # noqa: PT017
    discard(lake, stage.identifier)
    assert [moved["value"] for moved in quarantined(lake)] == [b"lost?"]
    assert lakes.offsets(lake) == [1, 2]


def test_c5_another_plan_that_is_published_instead_leaves_it_there_once(lake: Lake) -> None:
    stage = null_key_stage(lake)
    kept = [row(0, key=None, value=b"lost?", level=QUARANTINED), row(1)]
    instead = ready(lake, only_plan(lake, now_ms=NOW + 1), kept, Fates(quarantined=1))
    publish(lake, instead.identifier)
    with pytest.raises(ConflictError, match="no longer live"):
        publish(lake, stage.identifier)
    discard(lake, stage.identifier)
    assert [moved["offset"] for moved in quarantined(lake)] == [0]
    assert [batch.job for batch in batches(lake, TABLE)] == [instead.job_id]


def test_c5_what_the_parts_of_a_job_have_moved_stays_when_its_own_stage_goes(lake: Lake) -> None:
    """A job that failed as a whole is split: the plans are published from stages of their own."""
    append_two(lake, row(0, key=None, value=b"lost?"), row(1))
    append_two(lake, row(0, partition=1), row(1, partition=1))
    first, second = sorted(plan_table(lake, TABLE, Lane.FULL, NOW, force=True), key=lambda plan: plan.partition)
    kept = [row(0, key=None, value=b"lost?", level=QUARANTINED), row(1)]
    parts = [Part(first, kept, Fates(quarantined=1)), Part(second, [row(1, partition=1)], Fates(superseded=1))]
    whole = lakes.compacted_job(lake, parts)
    whole.record_split()
    publish(lake, ready(lake, first, kept, Fates(quarantined=1)).identifier)
    discard(lake, whole.identifier)
    assert [moved["offset"] for moved in quarantined(lake)] == [0]


def test_c5_c25_publishing_at_the_same_time_moves_it_once(lake: Lake) -> None:
    stage = null_key_stage(lake)
    found = lakes.together(*[lambda: publish(Lake.embedded(lake.home), stage.identifier)] * 3)
    assert all(isinstance(one, Publication) for one in found), found
    assert [moved["offset"] for moved in quarantined(lake)] == [0]
    assert lakes.offsets(lake) == [1]


def test_c5_a_branch_that_is_gone_is_made_again(lake: Lake) -> None:
    """Somebody has dropped it, or the process that created the table died before it had made it."""
    stage = null_key_stage(lake)
    lake.table(TABLE).manage_snapshots().remove_branch(QUARANTINE).commit()
    publish(lake, stage.identifier)
    assert [moved["offset"] for moved in quarantined(lake)] == [0]
    assert lakes.offsets(lake) == [1]
