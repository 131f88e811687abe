"""Kind `commit`: every request, load and deletion of Firn can go wrong."""

from tests.nightly.trials.acts import create, full, land, maintain, run, some_fault
from tests.nightly.trials.hands import tag_oldest
from tests.nightly.trials.world import AGE, HOUR, World


def append(world: World) -> None:
    """Another writer appends."""
    world.append(world.records(1, 2))


def commits(world: World) -> None:
    """Every request, load and deletion of Firn can go wrong, and another writer may be faster."""
    create(world)
    world.acting = lambda: world.random.choice((append, append, tag_oldest))(world)
    world.append(world.records())
    for _ in range(world.random.randint(3, 5)):
        world.append(world.records())
        world.now += world.random.choice((0, HOUR, 5 * HOUR, AGE + HOUR))
        step = world.random.choice((land, run, run, full, maintain, maintain))
        step(world, some_fault(world))
        if world.checker.unreadable:
            return
