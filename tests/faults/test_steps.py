"""Each step of Firn × each of its calls × what can go wrong there (C20, C22, C25, C26), enumerated.

After every fault readers see what was before the step or what is after it; the step once more ends well; once all is
done and maintained, the table is the one that a step without a fault leaves, and no file is left over.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.faults.failing import ADDED, FAULTS, Call, Failing, Fault
from tests.faults.steps import STEPS, Step, collect, finish
from tests.faults.world import Seen, World
from tests.support.commands import Ran

TABLE_OF_FAULTS: Final = [(fault, call) for fault, calls in FAULTS.items() for call in calls]
TURNS: Final = 8
"""`make test` takes every eighth row of the table of faults, from another one on with each step, at a single call."""
ENDING: Final = (Fault.COLLECTED, Fault.AGAIN)
"""Faults that end a stage: the step can't be taken again, and a run finishes."""
PLACES: Final = ("db.t", "/db/t/", "catalog lake")
"""The table, its files or the catalog: where a problem is."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


@dataclass(frozen=True)
class Right:
    """What readers see where nothing goes wrong: before the step, after it, and when a run finishes what is left."""

    before: Seen
    after: Seen
    finished: Seen


def _undisturbed(world: World, step: Step) -> tuple[Right, Failing]:
    """The step without a fault, and the gate that has counted its calls."""
    step.prepare(world)
    world.keep("before")
    before, gate = world.seen(), Failing(world, step)
    ran = step.take(world, gate)
    assert ran.code == 0, ran
    after = world.seen()
    collect(world)
    assert world.left() == []
    assert world.seen() == after
    finished = after
    if step.staged or 1 in step.again:
        world.put_back("before")
        finish(world)
        finished = world.seen()
    return Right(before, after, finished), gate


@pytest.mark.parametrize(
    "most", [pytest.param(1, id=""), pytest.param(8, id="at-most-calls", marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("name", STEPS)
def test_c22_c25_c26_whatever_goes_wrong_in_a_step_the_next_one_puts_right(world: World, name: str, most: int) -> None:
    step, turn = STEPS[name], list(STEPS).index(name)
    right, undisturbed = _undisturbed(world, step)
    assert set(undisturbed.calls) == set(step.calls.split())
    found: dict[str, list[str]] = {}
    rows = [(fault, call) for fault, call in TABLE_OF_FAULTS if call in undisturbed.calls]
    rows = [(fault, call) for fault, call in rows if step.staged or fault not in ENDING]
    for fault, call in rows[turn % TURNS :: TURNS] if most == 1 else rows:
        # What the process keeps of files that never change it does not read a second time.
        for nth in _spread(undisturbed.calls[call] // (2 if call is Call.READ else 1), most, turn):
            world.put_back("before")
            gate = Failing(world, step, fault, call, nth)
            ran = step.take(world, gate)
            problems = list(_problems(world, step, gate, right, ran)) if gate.at else ["it has not come into play"]
            found |= {f"{fault} at {gate.at or call} ({nth}), {ran}": problems} if problems else {}
    assert found == {}


def _spread(count: int, most: int, turn: int) -> list[int]:
    """Up to ``most`` of the numbers from 1 to ``count``, from the first to the last; a single one by turns."""
    if most == 1:
        return [1 + turn % count]
    return sorted({1 + round(place * (count - 1) / (most - 1)) for place in range(most)})


def _problems(world: World, step: Step, gate: Failing, right: Right, ran: Ran) -> Iterator[str]:
    before, after, finished = (_beside(gate, one) for one in (right.before, right.after, right.finished))
    if gate.dead != (ran.code == -9) or ran.code not in (-9, 0, 1, 3, 4, 5):
        yield f"it ends with {ran}"
    if ran.code > 0 and (ran.err.count("\n") != 1 or not any(name in ran.err for name in PLACES)):
        yield f"it does not say what is wrong with which table in one line: {ran.err}"
    if (seen := world.seen()) not in (before, after) or world.lost():
        yield f"readers see {seen}, and {world.lost()} is lost"
    again = step.take(world, Failing(world, step))
    if again.code not in ((0, 1) if gate.fault in ENDING else step.again):
        yield f"the same step again ends with {again}"
    if again.code:
        finish(world)
    collect(world)
    if (seen := world.seen()) != (finished if again.code else after):
        yield f"in the end readers see {seen}"
    if lost := world.lost():
        yield f"in the end {lost} is lost"
    if twice := world.published_twice():
        yield f"{twice} is published twice"
    if left := world.left():
        yield f"{left} is left"


def _beside(gate: Failing, seen: Seen) -> Seen:
    """``seen`` with the record that another writer appends."""
    more = [(ADDED.partition, ADDED.offset, ADDED.key, ADDED.value)] if gate.fault is Fault.OVERTAKEN else []
    return seen._replace(main=sorted(seen.main + more))
