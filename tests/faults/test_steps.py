"""Each step of Firn × each of its calls × what can go wrong there (C20, C22, C25, C26), enumerated.

After every fault readers see what was before the step or what is after it; the step once more ends well; once all is
done and maintained, the table is the one that a step without a fault leaves, and no file is left over.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from sqlalchemy.exc import OperationalError

from tests.faults.steps import STEPS, Step, collect, finish
from tests.faults.world import LATER, NOW, Seen, World
from tests.support.commands import Ran
from tests.support.faults import Gate, GatedCatalog, Killed, Request
from tests.support.records import DAY, Record

ADDED: Final = Record(20, b"added", b"1", 0, NOW - DAY)
"""What another writer appends meanwhile."""


class Call(StrEnum):
    """What a process asks of its catalog and of its store."""

    LOAD = "load"
    COMMIT = "commit"
    READ = "read"
    WRITE = "write"
    DELETE = "delete"


class Fault(StrEnum):
    """What goes wrong at a call."""

    KILLED = "killed before it"
    AFTER = "killed after it"
    BROKEN = "no answer, and nothing is done"
    LOST = "the answer is lost"
    BUSY = "the catalog refuses to wait"
    REFUSED = "refused, as if somebody was faster"
    TWICE = "delivered twice"
    OVERTAKEN = "another writer commits right before it"
    TWIN = "another process takes the same step right before it"
    COLLECTED = "maintenance by a later clock comes right before it"
    AGAIN = "likewise, and then another process takes the same step"


FAULTS: Final[Mapping[Fault, tuple[Call, ...]]] = {
    Fault.KILLED: (Call.WRITE, Call.DELETE, Call.COMMIT),
    Fault.AFTER: (Call.COMMIT,),
    Fault.BROKEN: tuple(Call),
    Fault.LOST: (Call.COMMIT,),
    Fault.BUSY: (Call.LOAD, Call.COMMIT),
    Fault.REFUSED: (Call.COMMIT,),
    Fault.TWICE: (Call.COMMIT,),
    Fault.OVERTAKEN: (Call.COMMIT,),
    Fault.TWIN: (Call.WRITE, Call.COMMIT),
    Fault.COLLECTED: (Call.WRITE, Call.DELETE, Call.COMMIT),
    Fault.AGAIN: (Call.WRITE, Call.COMMIT),
}
"""At which calls each can come."""


@dataclass
class Failing(Gate):
    """The gate of a process to whose ``nth`` ``call``, from 1, ``fault`` comes; without one it only counts."""

    world: World
    step: Step
    fault: Fault | None = None
    call: Call | None = None
    nth: int = 0
    at: str = ""
    """The call that it has come to."""
    dead: bool = False
    calls: Counter[Call] = field(default_factory=Counter)

    def load(self, catalog: GatedCatalog, identifier: Any) -> Table:
        self._pass(Call.LOAD, str(identifier))
        return catalog.loaded(identifier)

    def read(self, path: str) -> None:
        self._pass(Call.READ, path)

    def write(self, path: str) -> None:
        self._pass(Call.WRITE, path)

    def delete(self, path: str) -> bool:
        self._pass(Call.DELETE, path)
        return True

    def commit(self, request: Request) -> CommitTableResponse:
        if not self._hits(Call.COMMIT, request.identifier):
            return request.deliver()
        if self.fault in (Fault.AFTER, Fault.LOST, Fault.TWICE):
            request.deliver()
        self._befall()
        return request.deliver()

    def _pass(self, call: Call, what: str) -> None:
        if self._hits(call, what):
            self._befall()

    def _befall(self) -> None:
        match self.fault:
            case Fault.KILLED | Fault.AFTER:
                self.dead = True
                raise Killed
            case Fault.LOST:
                raise ConnectionError("the connection broke")
            case Fault.BROKEN:
                broken = ConnectionError if self.call in (Call.LOAD, Call.COMMIT) else OSError
                raise broken(f"no answer to {self.at}")
            case Fault.BUSY:
                raise OperationalError("BEGIN", {}, Exception("database is locked"))
            case Fault.REFUSED:
                raise CommitFailedException("branch main has changed")
            case Fault.OVERTAKEN:
                self.world.append(ADDED)
            case Fault.COLLECTED | Fault.AGAIN:
                self.world.open(later_ms=LATER).maintain()
        if self.fault in (Fault.TWIN, Fault.AGAIN):
            self.step.take(self.world, Gate())

    def _hits(self, call: Call, what: str) -> bool:
        """Count the call; whether it is the one."""
        if self.dead:
            raise Killed
        self.calls[call] += 1
        hit = call is self.call and self.calls[call] == self.nth
        self.at = f"{call} {what}" if hit else self.at
        return hit


TABLE_OF_FAULTS: Final = [(fault, call) for fault, calls in FAULTS.items() for call in calls]
ENDING: Final = (Fault.COLLECTED, Fault.AGAIN)
"""Faults that end a stage: the step can't be taken again, and a run finishes."""
COMMITTING: Final = (Fault.TWIN, *ENDING)
"""Faults in which somebody may commit after the process has written its metadata file: its own commit is lost."""
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
    finished: Seen | None = None


def _undisturbed(world: World, step: Step) -> tuple[Right, Failing]:
    """The step without a fault, and the gate that has counted its calls."""
    step.prepare(world)
    world.keep()
    before, gate = world.seen(), Failing(world, step)
    ran = step.take(world, gate)
    assert ran.code == 0, ran
    after = world.seen()
    collect(world)
    assert world.left() == []
    assert world.seen() == after
    return Right(before, after), gate


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
    # `make test` takes a single fault of each step, another one with each, at a single call.
    by_turns = list(dict.fromkeys(fault for fault, _ in rows))
    chosen = rows if most > 1 else [row for row in rows if row[0] is by_turns[turn % len(by_turns)]][-1:]
    if 1 in step.again or any(fault in ENDING for fault, _ in chosen):
        world.put_back()
        finish(world)
        right = replace(right, finished=world.seen())
    for fault, call in chosen:
        # What the process keeps of files that never change it does not read a second time.
        for nth in _spread(undisturbed.calls[call] // (2 if call is Call.READ else 1), most, turn):
            world.put_back()
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
    before, after = _beside(gate, right.before), _beside(gate, right.after)
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
    if (seen := world.seen()) != (_beside(gate, right.finished or right.after) if again.code else after):
        yield f"in the end readers see {seen}"
    if lost := world.lost():
        yield f"in the end {lost} is lost"
    if twice := world.published_twice():
        yield f"{twice} is published twice"
    if left := world.left(lost_commits=gate.fault in COMMITTING):
        yield f"{left} is left"


def _beside(gate: Failing, seen: Seen) -> Seen:
    """``seen`` with the record that another writer appends."""
    more = [(ADDED.partition, ADDED.offset, ADDED.key, ADDED.value)] if gate.fault is Fault.OVERTAKEN else []
    return seen._replace(main=sorted(seen.main + more))
