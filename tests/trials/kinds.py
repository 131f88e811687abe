"""What each kind of seed draws: the steps, who gets in between, and what goes wrong."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.trials.faults import NOTHING, Deletion, Fate, Load, Script, commit_fault, deletion_fault, load_fault
from tests.trials.product import FULL, MASK
from tests.trials.world import AGE, HOUR, PROPERTIES, TABLE, World

ROUNDS: Final = 3
"""Rounds of runs and care after the last fault."""


def create(world: World, **properties: str) -> None:
    """The table, as Firn makes it."""
    orphans = world.random.random() < 0.7
    world.checker.orphans_may_go = orphans
    chosen = {"firn.care.orphans": str(orphans).lower(), **properties}
    if world.random.random() < 0.3:
        chosen["firn.mask.max.lag.ms"] = "0"
    world.firn.create(TABLE, {**PROPERTIES, **chosen})


def some_fault(world: World) -> Script:
    """None, or one of any sort."""
    draw = world.random.random()
    if draw < 0.2:
        return NOTHING
    if draw < 0.7:
        return commit_fault(world.random)
    return (load_fault if draw < 0.85 else deletion_fault)(world.random)


def commits(world: World) -> None:
    """Every request, load and deletion of Firn can go wrong, and another writer may be faster."""
    create(world)
    world.acting = lambda: world.append(world.records(1, 2))
    world.append(world.records())
    for _ in range(world.random.randint(3, 5)):
        world.append(world.records())
        world.now += world.random.choice((0, HOUR, 5 * HOUR, AGE + HOUR))
        step = world.random.choice((_land, _run, _run, _full, _care, _care))
        step(world, some_fault(world))
        if world.checker.unreadable:
            return


def _land(world: World, script: Script) -> None:
    world.land(world.records(), script)


def _run(world: World, script: Script) -> None:
    world.run(script)


def _full(world: World, script: Script) -> None:
    world.run(script, lanes=world.random.choice((FULL, MASK)), force=True)


def _care(world: World, script: Script) -> None:
    world.now += world.random.choice((HOUR, 7 * HOUR))
    world.care(script)


def settle(world: World) -> None:
    """Rounds without a fault, after which nothing is left to do and nothing is left over."""
    for held in world.held:
        world.arrive(held)
    world.held.clear()
    for _ in range(ROUNDS):
        if world.checker.unreadable:
            return
        world.now += AGE + HOUR
        world.run(lanes=FULL, force=True)
        if not world.checker.unreadable:
            world.care()
    world.checker.settled()
    world.checker.leftovers(world.location(), world.now - AGE - 2 * HOUR, world.store.time_of)


INJECTIONS: Final = (*Fate, *Load, *Deletion)
"""Everything that can go wrong, or that others can do; each is counted."""

KINDS: Final[Mapping[str, Callable[[World], None]]] = {"commit": commits}
