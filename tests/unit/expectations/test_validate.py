"""The judge sees all of a stage: segments that stay by themselves, and values once or twice."""

import shutil
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from pyiceberg.manifest import DataFile

from firnlake.compact.compact import compact
from firnlake.engine.local import LocalEngine
from firnlake.errors import ConflictError
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage
from firnlake.validate import tasks
from firnlake.validate.basis import Bases
from firnlake.validate.validate import Judged, staged_cases, validate
from firnlake_expectations.tables import IN_PLACE
from infra.foreign.files import on_disk
from tests.support.tampering import change_value
from tests.support.topics import Record, Topic, updates

T = TypeVar("T")
R = TypeVar("R")


def judge(topic: Topic, plan: Plan) -> tuple[Stage, Judged]:
    """Compacts and validates ``plan``; its stage and what was found."""
    (outcome,) = compact(topic.lake, [plan], LocalEngine())
    (judged,) = validate(topic.lake, [outcome.stage], LocalEngine())
    return Stage.load(topic.lake, outcome.stage), judged


def files_of(stage: Stage) -> list[DataFile]:
    """The data files of the results of all plans."""
    return [file for own in stage.files.values() for file in own.all]


def test_a_plan_that_passes_is_judged_by_its_fingerprint(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "a=2"), updates("c=", "b=", "d=1", start=3))
    topic.clean("merge")
    topic.land(updates("d=2", start=6), updates("e=1", start=7))
    topic.clean("merge")
    (plan,) = topic.plans("clean")
    _, judged = judge(topic, plan)
    assert judged.passed, judged.failure
    assert judged.plan == plan.id
    assert judged.verdict is not None
    assert not judged.verdict.closely


def test_with_validate_full_no_fingerprint_is_believed(topic: Topic) -> None:
    topic.create(validate="full").land(updates("a=1", "b=1", "a=2"))
    (plan,) = topic.plans("full", force=True)
    _, judged = judge(topic, plan)
    assert judged.passed
    assert judged.verdict is not None
    assert judged.verdict.closely


def test_c1_a_value_that_was_changed_on_the_way_is_found_by_the_fingerprint(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("a=2", start=2))
    (outcome,) = compact(topic.lake, topic.plans("full", force=True), LocalEngine())
    (file,) = files_of(Stage.load(topic.lake, outcome.stage))
    change_value(file, 1, b"x")
    (judged,) = validate(topic.lake, [outcome.stage], LocalEngine())
    assert judged.verdict is not None
    (finding,) = judged.verdict.failures
    assert (finding.name, [sample.offset for sample in finding.samples]) == ("expect_records_unchanged", [1])


class Watching(LocalEngine):
    """Counts the tasks that it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks = 0

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], *, weights: Sequence[int] | None = None, title: str = ""
    ) -> list[R | Exception]:
        self.tasks += len(tasks)
        return super().map(function, tasks, weights=weights, title=title)


def test_c17_plans_that_do_not_fit_the_memory_are_judged_by_the_engine_each_in_a_task_of_its_own(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in range(2):
        topic.land(updates("a=1", "b=1", "a=2", partition=partition))
    (stage,) = {outcome.stage for outcome in compact(topic.lake, topic.plans("full", force=True), LocalEngine())}
    monkeypatch.setattr(tasks, "HELD_BYTES", 100)
    engine = Watching()
    assert [judged.passed for judged in validate(topic.lake, [stage], engine)] == [True, True]
    assert engine.tasks == 2


def test_what_stays_in_place_is_told_apart_from_what_is_rewritten(topic: Topic) -> None:
    """C16: the judge sees the records of every segment that stays, and of no other."""
    records = [Record(offset, b"k%03d" % offset, bytes(range(256)) * 2) for offset in range(100)]
    topic.create(segment_bytes="1024").land(*(records[start : start + 20] for start in range(0, 100, 20)))
    topic.clean("full")
    topic.land([Record(100, b"k045", b"new")])
    (plan,) = topic.plans("full", force=True)
    stage, judged = judge(topic, plan)
    assert judged.passed, judged.failure
    ((case,), _) = staged_cases(stage, topic.lake.table(topic.table), Bases())
    left = [file for file in case.files if file.side == IN_PLACE]
    assert sum(file.source.records for file in left) == 80
    assert not any(file.tombstones for file in left), "their manifests say that no value is NULL"


def test_c20_a_file_that_is_gone_is_an_error_that_names_plan_and_file_and_no_verdict(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("a=2", start=2))
    (plan,) = topic.plans("full", force=True)
    (outcome,) = compact(topic.lake, [plan], LocalEngine())
    lost = on_disk(files_of(Stage.load(topic.lake, outcome.stage))[0].file_path)
    kept = shutil.move(lost, lost.with_suffix(".kept"))
    (judged,) = validate(topic.lake, [outcome.stage], LocalEngine())
    assert judged.verdict is None
    assert plan.id in judged.failure
    assert lost.name in judged.failure
    shutil.move(kept, lost)
    assert validate(topic.lake, [outcome.stage], LocalEngine())[0].passed, "asked again it is judged"


def test_c22_a_plan_whose_input_is_gone_has_no_verdict_and_the_others_have_theirs(topic: Topic) -> None:
    for partition in range(2):
        topic.land(updates("a=1", "b=1", "a=2", partition=partition))
    plans = topic.plans("full", force=True)
    (identifier,) = {outcome.stage for outcome in compact(topic.lake, plans, LocalEngine())}
    topic.lake.table(topic.table).delete("partition = 0")
    found = {judged.plan: judged for judged in validate(topic.lake, [identifier], LocalEngine())}
    gone, other = (found[plan.id] for plan in sorted(plans, key=lambda plan: plan.partition))
    assert gone.verdict is None
    assert isinstance(gone.error, ConflictError)
    assert str(gone.error).endswith("plan again")
    assert other.passed, other.failure


def test_many_plans_of_a_job_have_verdicts_of_their_own(topic: Topic) -> None:
    for partition in range(5):
        topic.land(updates("a=1", "b=1", "a=2", partition=partition))
    plans = topic.plans("full", force=True)
    outcomes = compact(topic.lake, plans, LocalEngine())
    stage = Stage.load(topic.lake, outcomes[0].stage)
    change_value(files_of(stage)[0], 1, b"x")
    judged = validate(topic.lake, [stage.identifier], LocalEngine())
    assert sorted(one.passed for one in judged) == [False, *[True] * 4]
    assert {one.plan for one in judged} == {plan.id for plan in plans}
