"""A publisher that was taken for dead can't commit files that are deleted by then, whenever its request comes (C25)."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from pipeline import clock
from pipeline.errors import ConflictError, OutcomeUnknownError, UnavailableError
from pipeline.lake import Lake
from pipeline.plan import plan_table
from pipeline.publish import publish, publish_job
from pipeline.quarantine import quarantine
from pipeline.quarantine import records as quarantined
from pipeline.sense import Lane
from pipeline.stage import QUARANTINED, Stage, discard, stages_of
from pipeline.stage.claim import LEASE_MS
from pipeline.stage.fence import FENCE
from tests.support import lakes
from tests.support.lakes import NOW, TABLE, Fates, Part, append_two, compacted_job, judged, only_plan, ready, row
from tests.support.late import late

QUARANTINE = f"{TABLE}{quarantine.SUFFIX}"


@pytest.fixture
def stage(lake: Lake, table: str) -> Stage:
    """One that moves a record without a key to the quarantine."""
    append_two(lake, row(0, key=None, headers=[]), row(1, headers=[]))
    kept = [row(0, key=None, headers=[], level=QUARANTINED), row(1, headers=[])]
    return ready(lake, only_plan(lake), kept, Fates(quarantined=1))


def earlier(lake: Lake) -> None:
    """Another record without a key is in quarantine already."""
    append_two(lake, row(10, key=None, headers=[], partition=1), row(11, headers=[], partition=1))
    (plan,) = (one for one in plan_table(lake, TABLE, Lane.FULL, NOW) if one.partition == 1)
    kept = [row(10, key=None, headers=[], partition=1, level=QUARANTINED), row(11, headers=[], partition=1)]
    publish(lake, ready(lake, plan, kept, Fates(quarantined=1)).identifier)


def discard_later(lake: Lake, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock for which the publisher is dead."""
    later = clock.now_ms() + LEASE_MS + 1
    monkeypatch.setattr(clock, "now_ms", lambda: later)
    discard(lake, stage.identifier)


def fences(lake: Lake) -> list[str]:
    snapshots = lake.table(TABLE).metadata.snapshots
    return [one.summary[FENCE] or "" for one in snapshots if one.summary and FENCE in one.summary.additional_properties]


@pytest.mark.parametrize("table_of_request", ["records", "records__quarantine"])
def test_c25_a_request_that_comes_late_is_refused(
    lake: Lake, stage: Stage, monkeypatch: pytest.MonkeyPatch, table_of_request: str
) -> None:
    earlier(lake)
    slow, catalog = late(lake, table_of_request, "no")
    with pytest.raises((OutcomeUnknownError, UnavailableError)):
        publish(slow, stage.identifier)
    discard_later(lake, stage, monkeypatch)
    assert catalog.under_way
    with pytest.raises(CommitFailedException):
        catalog.under_way()
    assert lakes.offsets(lake) == [0, 1, 11]
    assert fences(lake) == [stage.job_id]
    assert [one.offset for one in quarantined(lake, TABLE, 10)] == [10]


@pytest.mark.parametrize("where", ["records", "records__quarantine"])
def test_c25_a_publisher_that_stood_still_steps_back(
    lake: Lake, stage: Stage, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Also where nothing had ever been in quarantine: its first snapshot is the fence."""
    slow, catalog = late(lake, where, "yes")
    with ThreadPoolExecutor(1) as other:
        publishing = other.submit(publish, slow, stage.identifier)
        assert catalog.came.wait(60)
        discard_later(lake, stage, monkeypatch)
        catalog.go.set()
        with pytest.raises(ConflictError, match="discarded while it was being published"):
            publishing.result()
    assert lakes.offsets(lake) == [0, 1]
    assert stages_of(lake, TABLE) == []
    assert quarantined(lake, TABLE, 10) == []
    # What went there before the stage was discarded was taken back; after that nothing went there at all.
    assert len(lakes.held(lake.table(QUARANTINE))) == (1 if where == "records" else 0)


def test_c5_a_publisher_that_woke_up_before_it_handed_over_hands_nothing_over(
    lake: Lake, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked at its stage, and finds a quarantine that was fenced before it loaded it."""
    earlier(lake)
    found = quarantine.find

    def discarded_first(lake: Lake, identifier: str) -> Table | None:
        monkeypatch.setattr(quarantine, "find", found)
        discard_later(lake, stage, monkeypatch)
        return found(lake, identifier)

    monkeypatch.setattr(quarantine, "find", discarded_first)
    with pytest.raises(ConflictError, match="discarded while it was being published"):
        publish(lake, stage.identifier)
    assert {one.plan for one in quarantined(lake, TABLE, 10)}.isdisjoint(plan.id for plan in stage.plans)
    jobs = {lakes.on_disk(path).parent.name for path in lakes.held(lake.table(QUARANTINE))}
    assert stage.job_id not in jobs, "not even for a while"
    assert lakes.offsets(lake) == [0, 1, 11]


def test_c5_what_one_publisher_left_out_no_other_one_moves(
    lake: Lake, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commits the job without a plan, and deletes its files; another one was about to hand them over."""
    for number in range(2):
        append_two(lake, row(0, None if number == 0 else b"k", partition=number), row(1, partition=number))
    first, second = sorted(plan_table(lake, table, Lane.FULL, NOW, force=True), key=lambda plan: plan.partition)
    keyless = Part(first, [row(0, key=None, level=QUARANTINED), row(1)], Fates(quarantined=1))
    stage = judged(lake, compacted_job(lake, [keyless, Part(second, [row(1, partition=1)], Fates(superseded=1))]))
    slow, catalog = late(lake, "records__quarantine", "yes")
    with ThreadPoolExecutor(1) as other:
        publishing = other.submit(publish_job, slow, stage.identifier)
        assert catalog.came.wait(60)
        lake.table(TABLE).delete("partition = 0 and offset = 1")
        assert list(publish_job(lake, stage.identifier).failures) == [first.id]
        catalog.go.set()
        done = publishing.result()
    assert [(one.plan_id, one.repeated) for one in done.publications] == [(second.id, True)]
    assert list(done.failures) == [first.id]
    snapshots = lake.table(QUARANTINE).metadata.snapshots
    assert [one.summary[FENCE] for one in snapshots if one.summary] == [stage.job_id]
    assert lakes.offsets(lake) == [0, 1]


def test_a_stage_that_nobody_published_needs_no_fence(lake: Lake, stage: Stage) -> None:
    discard(lake, stage.identifier)
    assert fences(lake) == []
