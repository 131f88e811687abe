"""Two processes do the same work: the slower one finds it done and says so in one line; nothing is done twice (C22)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from firnlake.compact.compact import compact
from firnlake.engine.local import LocalEngine
from firnlake.errors import ConflictError
from firnlake.iceberg.catalog import Lake
from firnlake.job.collect import discard, sweep
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.job.stage import stages_of
from firnlake.plan.make import plan_table
from firnlake.publish.publish_jobs import publish_stages, retain_plans
from firnlake.validate.validate import validate
from tests.support.examples import TIMES
from tests.support.in_process import Firn, Ran, command
from tests.support.topics import NOW, Topic, updates

TABLE = "shop.orders"
STEPS = ("plan", "compact", "validate", "publish")
"""The steps of a run, in order; between them another process may do anything."""
NEWEST = {Lane.RETAIN: [2, 3], Lane.MERGE: [0, 1, 2, 3], Lane.FULL: [1, 3]}
"""The offsets that readers see of each of two topic partitions once a lane has been published, by lane."""
WAYS = [
    [sum(gap == step for gap in gaps) for step in range(len(STEPS))]
    for gaps in combinations_with_replacement(range(len(STEPS)), len(STEPS))
    if gaps[-1] > 0
]
"""Every way in which the steps of a run fall before those of another one, if that plans before this publishes."""
PLACES = [(Lane.MERGE, at, 1) for at in range(1, len(STEPS))]
PLACES += [(Lane.RETAIN, 3, 1), (Lane.FULL, 1, 0), (Lane.FULL, 2, 0)]
"""A lane, the step before which another process does all of it, and how much earlier its clock is, milliseconds."""


@pytest.fixture
def firn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Firn:
    """`firn` in this process, on the embedded lake of an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIRN_ENGINE", "local")
    return command(monkeypatch, capsys)


@dataclass
class Other:
    """A second process at work in ``lane``: ``proceed`` performs its next steps."""

    topic: Topic
    lane: Lane
    now_ms: int = NOW
    plans: list[Plan] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)
    performed: int = 0

    def proceed(self, steps: int) -> None:
        for step in STEPS[self.performed : self.performed + steps]:
            getattr(self, f"_{step}")()
            self.performed += 1

    def _plan(self) -> None:
        sweep(self.topic.lake, TABLE)
        self.plans = plan_table(self.topic.lake, TABLE, self.lane, self.now_ms)

    def _compact(self) -> None:
        if self.plans and self.lane is not Lane.RETAIN:
            outcomes = compact(self.topic.lake, self.plans, self.topic.engine)
            self.stages = list(dict.fromkeys(one.stage for one in outcomes if not one.error))

    def _validate(self) -> None:
        validate(self.topic.lake, self.stages, self.topic.engine)

    def _publish(self) -> None:
        if self.lane is Lane.RETAIN:
            retain_plans(self.topic.lake, self.plans)
        publish_stages(self.topic.lake, {stage: [plan.id for plan in self.plans] for stage in self.stages})
        sweep(self.topic.lake, TABLE, [plan.id for plan in self.plans])


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], None]], None]:
    """Let something happen before each step of the next `firn run`; it is given the step's place."""

    def arrange(happens: Callable[[int], None]) -> None:
        steps = (
            (0, "firnlake.run", "plan_work"),
            (1, "firnlake.compact.compact", "compact"),
            (2, "firnlake.validate.validate", "validate"),
            (3, "firnlake.run", "publish_stages"),
            (3, "firnlake.run", "retain_plans"),
        )
        for place, module, name in steps:
            where = import_module(module)
            monkeypatch.setattr(where, name, _after(happens, place, getattr(where, name)))

    return arrange


def _after(happens: Callable[[int], None], place: int, step: Callable[..., object]) -> Callable[..., object]:
    def then(*arguments: object, **named: object) -> object:
        happens(place)
        return step(*arguments, **named)

    return then


@pytest.fixture
def topic(firn: Firn) -> Iterator[Topic]:
    """Two topic partitions with two segments each, in the lake that `firn` finds."""
    assert callable(firn)
    engine = LocalEngine(2)
    landed = Topic(Lake.load(), engine, TABLE).create(min_cleanable_dirty_ratio="0")
    for offset, pairs in ((0, ("a=1", "a=2")), (2, ("b=1", "b=2"))):
        landed.land([one for partition in (0, 1) for one in updates(*pairs, start=offset, partition=partition)])
    yield landed
    engine.close()


def lost(ran: Ran) -> None:
    """The outcome for a process that was slower: success, or "plan again" in one line."""
    assert ran.code in (0, 3), ran
    assert ran.err.count("\n") == (ran.code == 3), ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("way", WAYS[:: max(1, 5 // (TIMES or 1))], ids=str)
def test_r26_who_loses_a_race_succeeds_or_plans_again(
    firn: Firn, topic: Topic, interrupted: Callable[[Callable[[int], None]], None], way: list[int]
) -> None:
    other = Other(topic, Lane.FULL)
    interrupted(lambda place: other.proceed(way[place]))
    lost(firn("run", TABLE, "--lane", "full", "--now", NOW + 1))
    assert other.performed == len(STEPS)
    assert [topic.offsets(partition) for partition in (0, 1)] == [NEWEST[Lane.FULL]] * 2
    assert stages_of(topic.lake, TABLE) == []


@pytest.mark.parametrize(("lane", "at", "later_ms"), PLACES)
def test_r26_in_every_lane_and_with_the_same_plans(
    firn: Firn, topic: Topic, interrupted: Callable[[Callable[[int], None]], None], lane: Lane, at: int, later_ms: int
) -> None:
    """Plans that were made at the same millisecond are the same plans, and have one stage."""
    if lane is Lane.RETAIN:
        topic.lake.set_properties(TABLE, {"firn.cleanup.policy": "delete", "firn.retention.ms": "1"})
    other = Other(topic, lane)
    interrupted(lambda place: other.proceed(len(STEPS) * (place == at)))
    lost(firn("run", TABLE, "--lane", lane, "--now", NOW + later_ms))
    assert other.plans
    assert [topic.offsets(partition) for partition in (0, 1)] == [NEWEST[lane]] * 2
    assert stages_of(topic.lake, TABLE) == []


@pytest.mark.parametrize(("at", "later_ms"), [(1, 1), (2, 1), (3, 1), (2, 0)])
def test_r26_step_by_step_by_hand(firn: Firn, topic: Topic, tmp_path: Path, at: int, later_ms: int) -> None:
    other = Other(topic, Lane.FULL)
    plans = tmp_path / "plans"
    assert firn("plan", TABLE, "--lane", "full", "--now", NOW + later_ms, "--write", plans).code == 0
    for place, step in enumerate(STEPS[1:], 1):
        other.proceed(len(STEPS) * (place == at))
        lost(firn(step, *sorted(plans.iterdir())))
    assert [topic.offsets(partition) for partition in (0, 1)] == [NEWEST[Lane.FULL]] * 2


@pytest.mark.parametrize("later_ms", [0, 1])
def test_r26_a_task_of_airflow_that_loses_a_race_is_tried_again(
    firn: Firn, topic: Topic, tmp_path: Path, later_ms: int
) -> None:
    from firnlake.airflow.dag.planning import jobs_of
    from firnlake.airflow.dag.spark import meant_by

    own = topic.plans(Lane.FULL, NOW + later_ms)
    for plan in own:
        plan.write(tmp_path)
    (job,) = jobs_of(own, tmp_path, len(own))
    assert firn(*job["compact"]).code == 0
    Other(topic, Lane.FULL).proceed(len(STEPS))
    ran = firn(*job["validate"])
    lost(ran)
    assert isinstance(meant_by(ran.code, ""), ConflictError)


@pytest.mark.parametrize("at", [2, 3])
def test_r26_a_stage_that_somebody_discarded_is_an_error_as_before(
    firn: Firn, topic: Topic, interrupted: Callable[[Callable[[int], None]], None], at: int
) -> None:
    """A missing stage of a plan that no process has published, whose inputs are live, is refused."""

    def happens(place: int) -> None:
        for stage in stages_of(topic.lake, TABLE) if place == at else ():
            discard(topic.lake, stage)

    interrupted(happens)
    ran = firn("run", TABLE, "--lane", "full", "--now", NOW)
    assert ran.code == 1
    assert "there is no stage" in ran.err
    assert topic.offsets() == [0, 1, 2, 3]
