"""Several plans share one job, one stage and one commit (C20, C22, C24)."""

import sys
from typing import Any

import pytest

from firnlake.compact.compact import compact
from firnlake.iceberg.files import job_of
from firnlake.job.failures import failed_plans
from firnlake.job.lane import Lane
from firnlake.job.stage import Stage
from firnlake.publish.publish import publish_job
from firnlake.run import run
from firnlake.validate.validate import validate
from infra.foreign.files import on_disk
from tests.support.topics import NOW, Topic, updates


def test_c22_one_stage_and_one_commit_for_all(topic: Topic) -> None:
    """Offsets and keys are the same in every topic partition, and none of them has anything to do with another's."""
    for partition in range(3):
        topic.land(
            updates("a=1", "b=2", "a=3", "c=4", partition=partition), updates("b=5", start=4, partition=partition)
        )
    plans = topic.plans("full")
    outcomes = topic.compacted(*plans)
    (stage,) = {outcome.stage for outcome in outcomes}
    assert len(plans) == 3
    counts = [(one.counts.superseded, one.counts.records_out) for one in outcomes if one.counts]
    assert counts == [(2, 3)] * 3
    judged = validate(topic.lake, [stage], topic.engine)
    assert [result.passed for result in judged] == [True] * 3
    before = len(topic.lake.table(topic.table).metadata.snapshots)
    assert len(publish_job(topic.lake, stage).publications) == 3
    assert len(topic.lake.table(topic.table).metadata.snapshots) == before + 1
    assert [topic.offsets(partition) for partition in range(3)] == [[2, 3, 4]] * 3


def test_c20_one_that_is_refused_holds_up_no_other(topic: Topic) -> None:
    for partition in range(3):
        topic.land(updates("a=1", "a=2", partition=partition))
    topic.land(updates("b=no", "b=way", partition=1))
    outcomes = compact(topic.lake, topic.plans("full"), topic.engine)
    errors = {outcome.plan.partition: str(outcome.error) for outcome in outcomes if outcome.error}
    assert list(errors) == [1]
    assert "offset 0 of orders-1 holds different records" in errors[1]
    (stage,) = {outcome.stage for outcome in outcomes}
    judged = validate(topic.lake, [stage], topic.engine)
    assert [result.passed for result in judged] == [True, True]
    publish_job(topic.lake, stage)
    assert [topic.offsets(partition) for partition in range(3)] == [[1], [0, 0, 1, 1], [1]]
    assert topic.plans("full", NOW + 1) == [], "what was refused is not tried again on the same segments"


def test_a_job_leaves_the_tails_of_its_plans_in_place(topic: Topic) -> None:
    for partition in range(3):
        topic.land(updates(*(f"{'x' * 900}{n}=1" for n in range(4)), partition=partition))
    topic.clean("full")
    before = {segment.path for partition in range(3) for segment in topic.segments(partition)}
    topic.land(updates("y=1", start=4, partition=0), updates(f"{'x' * 900}2=2", start=4, partition=2))
    outcomes = topic.compacted(*topic.plans("full", force=True))
    (stage,) = {outcome.stage for outcome in outcomes}
    assert validate(topic.lake, [stage], topic.engine)[0].passed
    assert len(Stage.load(topic.lake, stage).plans) == 2
    publish_job(topic.lake, stage)
    assert [topic.offsets(partition) for partition in range(3)] == [[0, 1, 2, 3, 4], [0, 1, 2, 3], [0, 1, 3, 4]]
    after = {segment.path for partition in range(3) for segment in topic.segments(partition)}
    assert len(before & after) == 2


def test_c20_a_torn_file_holds_up_no_other(topic: Topic) -> None:
    """Only the plan that reads it fails; the others of its job are published."""
    for partition in range(3):
        topic.land(updates("a=1", "a=2", partition=partition))
    path = on_disk(topic.segments(1)[0].path)
    path.write_bytes(path.read_bytes()[:-200])
    done = list(run(topic.lake, topic.table, NOW, topic.engines, (Lane.FULL,)))
    (failure,) = [str(error) for lane in done for error in lane.failures.values()]
    assert "orders-1" in failure
    assert [topic.levels(partition) for partition in range(3)] == [[3], [0], [3]]
    (marker,) = failed_plans(topic.lake, topic.table)
    assert (marker.plan.partition, marker.failure.step) == (1, "compact")
    assert topic.plans("full", NOW + 1) == [], "it waits until its segments change"


def test_c25_a_process_that_wakes_up_after_its_job_ended_leaves_no_files(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process compacts, publishes and drops the same job while the first one stands still."""
    topic.land(updates("a=1", "a=2"))
    plans = topic.plans("full")
    module = sys.modules["firnlake.compact.compact"]
    own = module.COMPACTIONS[Lane.FULL]

    def late(*args: Any) -> Any:
        found = own(*args)
        monkeypatch.undo()
        topic.publish("full")
        return found

    monkeypatch.setitem(module.COMPACTIONS, Lane.FULL, late)
    (done,) = compact(topic.lake, plans, topic.engine)
    assert done.error is None, "its plan is published"
    assert compact(topic.lake, plans, topic.engine)[0].error is None
    home = on_disk(topic.lake.table(topic.table).location())
    assert {path.name for path in home.rglob("*.parquet") if job_of(str(path)) is not None} == {
        segment.path.rpartition("/")[2] for segment in topic.segments()
    }
