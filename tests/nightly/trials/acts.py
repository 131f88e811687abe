"""What every kind of seed begins and ends with, and steps of Firn that a fault may hit."""

from typing import Final

from tests.nightly.trials.faults import NOTHING, Script, commit_fault, deletion_fault, load_fault
from tests.nightly.trials.product import ERASE, FULL
from tests.nightly.trials.world import AGE, DAY, HOUR, PROPERTIES, TABLE, World

ROUNDS: Final = 3
"""Rounds of maintenance after the last fault, each but the last after a run."""
AGAIN: Final = "as if the topic was made again"
"""What the status says of a topic whose offsets seem to restart, which waits until somebody says what it is."""


def create(world: World, **properties: str) -> None:
    """The table, as Firn makes it."""
    orphans = world.random.random() < 0.7
    world.checker.orphans_may_go = orphans
    chosen = {"firn.maintenance": f"manifests,snapshots{',orphans' * orphans}", **properties}
    world.firn.create(TABLE, {**PROPERTIES, **chosen})


def some_fault(world: World) -> Script:
    """None, or one of any sort."""
    draw = world.random.random()
    if draw < 0.2:
        return NOTHING
    if draw < 0.7:
        return commit_fault(world.random)
    return (load_fault if draw < 0.85 else deletion_fault)(world.random)


def land(world: World, script: Script) -> None:
    world.land(world.records(), script)


def run(world: World, script: Script) -> None:
    world.run(script)


def full(world: World, script: Script) -> None:
    world.run(script, lanes=FULL, force=True)


def maintain(world: World, script: Script) -> None:
    world.now += world.random.choice((HOUR, 7 * HOUR))
    world.maintain(script)


def request(world: World, key: bytes) -> bool:
    """A request to erase ``key``, if the ends of all logs are known; True if Firn acknowledged it."""
    ends = {partition: one.offset + 1 for partition, one in world.checker.line.ends().items()}
    asked = world.ask([key], 4 * DAY).acknowledged
    if asked:
        world.checker.requested |= {(partition, key): end for partition, end in ends.items()}
    return asked


def settle(world: World) -> None:
    """Rounds without a fault, after which nothing is left to do and nothing is left over."""
    for held in world.held:
        world.arrive(held)
    world.held.clear()
    blocked: tuple[str, ...] = ()
    for number in range(1, ROUNDS + 1):
        if world.checker.unreadable:
            return
        world.now += AGE + HOUR
        if any(AGAIN in why for why in world.firn.status(TABLE).blocked):
            # What lands at lower offsets after a rollback and an expiry looks like that; its user says what it is.
            world.late()
        if number < ROUNDS:
            blocked = world.run(lanes=(*ERASE, *FULL), force=True).blocked
        if not world.checker.unreadable:
            world.maintain()
    world.checker.settled(blocked)
    world.checker.leftovers(world.now - AGE - 2 * HOUR, world.store.time_of)
