"""Lane `hide` beside appends, other lanes, transactions and deletes of others: nothing is lost, nobody waits for ever
(C10, C20, C22, C28)."""

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firnlake import clock
from firnlake.compact.compact import compact
from firnlake.engine.engine import Engine
from firnlake.errors import ConflictError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.explain.key import explain_key
from firnlake.inspect.status.gather import status_of
from firnlake.job.lane import Lane
from firnlake.job.stage import stages_of
from firnlake.lanes.hiding import hide
from firnlake.lanes.hiding.memory import read_hide_memory
from firnlake.maintain.maintain import maintain_table
from firnlake.plan.make import plan_work
from firnlake.run import run
from firnlake.validate.validate import verify
from tests.lanes.test_transactions import Log
from tests.support.erasing import erasures, request
from tests.support.hiding import delete, deletes
from tests.support.publishing import publish
from tests.support.sabotage import refused, replaced
from tests.support.topics import DAY, NOW, Topic, updates
from tests.support.watched import Killed, Nth, die, watched

_numbers = itertools.count()


@pytest.fixture
def topic(lake: Lake, engine: Engine) -> Topic:
    return Topic(lake, engine, f"beside.t{next(_numbers)}").create(hide_max_lag_ms="0")


def test_c22_what_lands_meanwhile_is_compared_next_time(topic: Topic) -> None:
    topic.land(updates("a=1", "a=2"))
    (stage,) = topic.validated(topic.plans("hide", force=True))
    topic.land(updates("a=3", "b=1", start=2))
    publish(topic.lake, stage)
    assert topic.offsets() == [1, 2, 3]
    (plan,) = topic.plans("hide", force=True)
    assert [one.compared for one in plan.inputs] == [True, False]
    topic.clean("hide", force=True)
    assert topic.offsets() == [2, 3]


def test_c22_a_cleaning_that_was_faster_is_a_conflict(topic: Topic) -> None:
    topic.land(updates("a=1", "a=2"), updates("b=1", start=2))
    (stage,) = topic.validated(topic.plans("hide", force=True))
    topic.clean("full", force=True)
    with pytest.raises(ConflictError, match="are no longer live"):
        publish(topic.lake, stage)
    topic.clean("hide", force=True)
    assert topic.offsets() == [1, 2]


def test_c22_a_plan_that_was_faster_is_a_conflict(topic: Topic) -> None:
    topic.land(updates("a=1", "a=2"))
    (mine,) = topic.plans("hide", force=True)
    (other,) = topic.plans("hide", NOW + 1, force=True)
    first, second = (topic.validated([plan])[0] for plan in (mine, other))
    publish(topic.lake, first)
    with pytest.raises(ConflictError, match="a row-level delete was added to"):
        publish(topic.lake, second)
    assert topic.offsets() == [1]


def test_c22_a_later_commit_that_hid_nothing_is_not_taken_back(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    (stage,) = topic.validated(topic.plans("hide", force=True))
    topic.land(updates("c=1", start=2))
    topic.clean("hide", NOW + 1, force=True)
    before = read_hide_memory(topic.lake.table(topic.table))
    with pytest.raises(ConflictError, match="a later comparison was published in snapshot"):
        publish(topic.lake, stage)
    assert read_hide_memory(topic.lake.table(topic.table)) == before


def test_c20_it_waits_for_an_open_job_and_status_names_it(topic: Topic) -> None:
    topic.land(updates("a=1", "a=2"), updates("b=1", start=2))
    (stage,) = topic.validated(topic.plans("full", force=True))
    work = plan_work(topic.lake, topic.table, "hide", NOW, force=True)
    reason = f"orders-0: lane hide waits until the open stage of lane full, {stage}, is published"
    assert work.plans == []
    assert [line.startswith(reason) for line in work.left()] == [True]
    status = status_of(topic.lake, topic.table, NOW)
    (part,) = status.partitions
    assert any(line.startswith(reason) for line in part.waiting)
    publish(topic.lake, stage)
    assert len(topic.clean("hide", force=True)) == 1


def test_c10_aborted_and_undecided_records(lake: Lake, engine: Engine, tmp_path: Path) -> None:
    topic = Topic(lake, engine, f"beside.t{next(_numbers)}")
    log = Log(topic, tmp_path).create(hide_max_lag_ms="0")
    log.land("a=0", "1 a=1", "1 abort", "b=1", "1 b=2", "1 commit", "b=3").land("a=4", "2 b=5", "b=6")
    topic.clean("hide", force=True)
    assert log.offsets() == [0, 1, 2, 5, 6, 7, 8, 9], "C10: the second segment is not decided, the aborted record stays"
    log.land("2 commit")
    topic.clean("hide", NOW + 1, force=True)
    assert log.offsets() == [1, 2, 5, 7, 9, 10]


def test_c4_an_active_segment_shows_the_log_end_until_others_delete_there(topic: Topic) -> None:
    topic.lake.set_properties(topic.table, {"firn.active.segments": "1"})
    topic.land(updates("a=1", "a=2"))
    for offset in (2, 3):
        topic.land(updates("a=3", start=offset))
        topic.clean("hide", NOW + offset, force=True)
        (compared,) = read_hide_memory(topic.lake.table(topic.table)).compared
        assert (compared.end, compared.end_path) == (offset, topic.segments()[-1].path)
    topic.land(updates("b=1", start=4))
    (plan,) = topic.plans("hide", NOW + 4, force=True)
    active = topic.segments()[-1].path
    assert plan.compares.shown_end is not None
    assert plan.compares.shown_end.path == active
    delete(topic, 4)
    (outcome,) = compact(topic.lake, [plan], topic.engine)
    assert f"a row-level delete was added to {active}" in str(outcome.error)
    (plan,) = topic.plans("hide", NOW + 4, force=True)
    assert plan.compares.shown_end is None


def test_c27_what_others_have_deleted_supersedes_nothing(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "b=2"), updates("a=2", "c=1", start=3))
    delete(topic, 3)
    topic.clean("hide", force=True)
    assert topic.offsets() == [0, 2, 4]
    assert read_hide_memory(topic.lake.table(topic.table)).hidden[0].records == 1
    topic.clean("full", NOW + DAY, force=True)
    assert topic.offsets() == [0, 2, 4]
    assert deletes(topic) == set()


def test_c6_keys_that_are_compared_on_disk(lake: Lake, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    history = [
        updates(*(f"k{number % 7}={number}" for number in range(start, start + 20)), start=start)
        for start in range(0, 60, 20)
    ]
    found = []
    for size in (512 << 20, 100):
        monkeypatch.setattr("firnlake.compact.keys.KEY_BYTES", size)
        topic = Topic(lake, engine, f"beside.t{next(_numbers)}").create(hide_max_lag_ms="0").land(*history)
        topic.clean("hide", force=True)
        found.append(topic.seen())
    assert found[0] == found[1] == history[2][-7:]


def test_c30_hidden_records_of_a_key_are_erased(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("a=2", "b=2", start=2), updates("c=1", start=4))
    topic.clean("hide", force=True)
    topic.lake.set_properties(topic.table, {"firn.erase.history": "expire"})
    asked = request(topic, b"a", now=clock.now_ms(), within_ms=4 * DAY)
    (counts,) = topic.clean("erase", clock.now_ms(), force=True)
    assert (counts.erased, counts.deleted) == (1, 2), "one of a and one of b were hidden before"
    assert topic.offsets() == [3, 4]
    maintain_table(topic.lake, topic.table, asked.deadline_ms + 1, remove=True)
    assert erasures(topic).certificate_of(1) is not None
    topic.clean("hide", NOW + DAY, force=True)
    topic.clean("full", NOW + DAY, force=True)
    assert topic.offsets() == [3, 4]


def test_explain_tells_what_lane_hide_has_hidden(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("a=2", start=2))
    (kept, _) = explain_key(topic.lake, topic.table, (b"a",), NOW + 100 * DAY).kept
    assert "superseded by offset 2" in kept.reason.text
    topic.clean("hide", force=True)
    explained = explain_key(topic.lake, topic.table, (b"a",), NOW)
    (gone,) = explained.removed
    assert (gone.record.offset, gone.reason.rule, gone.reason.text) == (
        0,
        "C28",
        "hidden by lane hide: superseded by offset 2",
    )
    assert gone.commit.lane == "hide"
    assert gone.commit.snapshot_id == topic.lake.table(topic.table).metadata.current_snapshot_id
    assert [one.record.offset for one in explained.kept] == [2]


def test_status_tells_what_is_hidden_and_compared(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("a=2", "b=2", start=2))
    topic.clean("hide", force=True)
    topic.land(updates("a=3", start=4))
    (part,) = status_of(topic.lake, topic.table, NOW).partitions
    (level,) = part.levels
    assert (level.records, level.hidden, level.delete_files, part.compared_through) == (5, 2, 1, 3)


def test_a_commit_is_verified_with_what_it_compared(topic: Topic) -> None:
    topic.land(updates("a=1", "a=2"), updates("b=1", "b=", start=2))
    (stage,) = topic.validated(topic.plans("hide", force=True))
    topic.land(updates("a=3", start=4))
    publish(topic.lake, stage)
    (found,) = verify(topic.lake, topic.table, None, topic.engine)
    assert found.passed, [row.observed for row in found.rows if row.broken]
    assert (found.claim.lane, found.claim.records_in, found.claim.superseded) == ("hide", 4, 2)
    for later in (0, 2 * DAY):
        topic.clean("hide", NOW + later, force=True)
        topic.clean("full", NOW + later, force=True)
        (full,) = verify(topic.lake, topic.table, None, topic.engine)
        assert full.passed, [row.observed for row in full.rows if row.broken]
    assert topic.offsets() == [4], "C4: the log end is known, so the tombstone went"


@pytest.mark.parametrize("defect", ["one too many", "one too few", "the wrong one"])
def test_c23_a_result_with_a_defect_is_refused(topic: Topic, monkeypatch: pytest.MonkeyPatch, defect: str) -> None:
    def broken(sound: Any, *args: Any) -> Any:
        flags = sound(*args)
        (path,) = flags
        places = {"one too many": [0, 1], "one too few": [], "the wrong one": [1]}[defect]
        flags[path] = np.isin(np.arange(len(flags[path])), places)
        return flags

    replaced(monkeypatch, hide, "superseded", broken)
    topic.land(updates("a=1", "b=1", "a=2"))
    refused(topic, topic.plans("hide", force=True))
    assert topic.offsets() == [0, 1, 2]


class TestTwice:
    """C25: a crash between any two steps, and steps that run twice."""

    def test_c25_steps_that_run_twice(self, topic: Topic) -> None:
        topic.land(updates("a=1", "a=2"))
        (plan,) = topic.plans("hide", force=True)
        topic.compacted(plan)
        assert topic.offsets() == [0, 1], "not visible yet"
        topic.compacted(plan)
        (stage,) = topic.validated([plan])
        topic.validated([plan])
        first = publish(topic.lake, stage)
        assert publish(topic.lake, stage).repeated
        assert first.snapshot_id == topic.lake.table(topic.table).metadata.current_snapshot_id
        assert topic.offsets() == [1]

    @pytest.mark.parametrize("stop", range(3))
    def test_c25_after_a_crash_the_next_run_takes_over(self, topic: Topic, stop: int) -> None:
        topic.land(updates("a=1", "a=2"))
        plans = topic.plans("hide")
        if stop > 0:
            topic.compacted(*plans)
        if stop > 1:
            topic.validated(plans)
        runs = list(run(topic.lake, topic.table, NOW, topic.engines, (Lane.HIDE,)))
        assert [one.failures for one in runs if one.failures] == []
        assert topic.offsets() == [1]
        assert len(deletes(topic)) == 1

    @pytest.mark.parametrize("nth", [4, 8, 11, 14, 17, 20])
    def test_c25_killed_at_a_call_of_the_catalog(self, topic: Topic, nth: int) -> None:
        topic.land(updates("a=1", "a=2"))
        killer = Nth(nth, die)
        with suppress(Killed):
            list(run(watched(topic.lake, killer), topic.table, NOW, topic.engines, (Lane.HIDE,), force=True))
        assert topic.offsets() in ([0, 1], [1])
        runs = list(run(topic.lake, topic.table, NOW, topic.engines, (Lane.HIDE,), force=True))
        assert [one.failures for one in runs if one.failures] == []
        assert topic.offsets() == [1]
        table = topic.lake.table(topic.table)
        assert len(deletes(topic)) == 1
        assert len(read_hide_memory(table).compared) == 1
        assert stages_of(topic.lake, topic.table) == [], "nothing is left lying about"
