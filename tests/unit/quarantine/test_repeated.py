"""C5: what two jobs have quarantined lies there once in the end, whatever the history knows, and is never lost."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.lake import Lake
from pipeline.plan import Plan
from pipeline.publish import publish
from pipeline.quarantine import quarantine
from pipeline.quarantine import records as quarantined
from pipeline.stage import QUARANTINED, Stage, discard, stages_of
from pipeline.stage.discard import discard_lost
from tests.support import lakes
from tests.support.foreign import delete_rows
from tests.support.lakes import NOW, TABLE, Fates, append, append_two, hand_over, only_plan, ready, row
from tests.support.late import late

QUARANTINE = f"{TABLE}{quarantine.SUFFIX}"
LOST = b"lost?"


@pytest.fixture
def first(lake: Lake, table: str) -> Stage:
    """Its publisher hands two records without a key over, and dies."""
    append_two(lake, row(0, key=None, value=LOST), row(1, key=None, value=LOST))
    append(lake, [row(2)])
    found = staged(lake, only_plan(lake), 0, 1)
    hand_over(lake, found)
    return found


def staged(lake: Lake, plan: Plan, *keyless: int, value: bytes | None = LOST) -> Stage:
    kept = [row(offset, key=None, value=value, level=QUARANTINED) for offset in keyless]
    return ready(lake, plan, [*kept, row(2)], Fates(quarantined=len(keyless)))


def publish_instead(lake: Lake, value: bytes | None = LOST) -> Plan:
    """By another plan of the same records; then the history forgets everything."""
    instead = staged(lake, only_plan(lake, now_ms=NOW + 1), 0, 1, value=value)
    publish(lake, instead.identifier)
    forget(lake)
    return instead.plan


def forget(lake: Lake) -> None:
    append(lake, [row(3)])
    current = lakes.snapshot(lake)
    old = [one.snapshot_id for one in lake.table(TABLE).metadata.snapshots if one.snapshot_id != current]
    lake.table(TABLE).maintenance.expire_snapshots().by_ids(old).commit()


def moved(lake: Lake) -> list[tuple[int, str]]:
    return [(one.offset, one.plan) for one in quarantined(lake, TABLE, 10)]


def lose_metadata(stage: Stage) -> None:
    """Of the stage nothing is left but its entry in the catalog, and its data."""
    for path in lakes.files_under(lakes.on_disk(stage.table.location())):
        path.unlink()


def test_what_another_job_has_published_since_goes(lake: Lake, first: Stage) -> None:
    instead = publish_instead(lake)
    assert len(moved(lake)) == 4
    discard(lake, first.identifier)
    assert moved(lake) == [(0, instead.id), (1, instead.id)]


def test_so_it_does_when_nothing_says_which_plan_it_was(lake: Lake, first: Stage) -> None:
    instead = publish_instead(lake)
    lose_metadata(first)
    discard_lost(lake, first.identifier)
    assert moved(lake) == [(0, instead.id), (1, instead.id)]
    assert stages_of(lake, TABLE) == []


def test_another_record_on_the_same_offset_is_no_copy(lake: Lake, first: Stage) -> None:
    instead = publish_instead(lake, value=None)
    discard(lake, first.identifier)
    own = first.plan.id
    assert sorted(moved(lake)) == sorted([(0, own), (0, instead.id), (1, own), (1, instead.id)])


def test_a_file_of_which_one_record_has_no_copy_stays(lake: Lake, first: Stage) -> None:
    lake.table(TABLE).delete("offset = 0")
    instead = staged(lake, only_plan(lake, now_ms=NOW + 1), 1)
    publish(lake, instead.identifier)
    forget(lake)
    discard(lake, first.identifier)
    own = first.plan.id
    assert sorted(moved(lake)) == sorted([(0, own), (1, own), (1, instead.plan.id)])


def test_a_copy_that_a_user_deleted_is_none(lake: Lake, first: Stage) -> None:
    """With a row-level delete; what that file still holds is not looked at."""
    publish_instead(lake)
    copy = next(path for path in lakes.paths(lake.table(QUARANTINE)) if first.job_id not in path)
    delete_rows(lake, copy, [0], QUARANTINE)
    discard(lake, first.identifier)
    assert len([plan for _, plan in moved(lake) if plan == first.plan.id]) == 2


def test_of_two_that_nobody_knows_of_one_stays(lake: Lake, first: Stage) -> None:
    """While the other one has a stage, its files may be taken back as well."""
    second = staged(lake, only_plan(lake, now_ms=NOW + 1), 0, 1)
    hand_over(lake, second)
    lake.table(TABLE).delete("offset < 3")
    forget(lake)
    discard(lake, first.identifier)
    assert len(moved(lake)) == 4
    discard(lake, second.identifier)
    assert moved(lake) == [(0, first.plan.id), (1, first.plan.id)]


def test_a_copy_that_goes_after_it_was_looked_at_is_none(lake: Lake, first: Stage) -> None:
    publish_instead(lake)
    slow, catalog = late(lake, "records__quarantine", "yes")
    with ThreadPoolExecutor(1) as other:
        discarding = other.submit(discard, slow, first.identifier)
        assert catalog.came.wait(60)
        lake.table(QUARANTINE).delete(f"quarantine_plan != '{first.plan.id}'")
        catalog.go.set()
        discarding.result()
    assert moved(lake) == [(0, first.plan.id), (1, first.plan.id)]
