"""Kind `history`: main gets another past, or a new beginning, between the steps of Firn."""

from tests.nightly.trials import hands
from tests.nightly.trials.acts import create, request
from tests.nightly.trials.faults import NOTHING, Fate, Script, commit_fault
from tests.nightly.trials.product import ERASE, FULL
from tests.nightly.trials.world import HOUR, World

_HANDS = (
    *(hands.roll_back, hands.roll_forward, hands.roll_forward, hands.tag, hands.branch, hands.delete_key),
    *(hands.delete_key, hands.rewrite, hands.expire, hands.overwrite, hands.delete_and_reload, hands.create_or_replace),
)


def histories(world: World) -> None:
    """A little history that Firn cleans, then other hands, and Firn's next commit between them."""
    create(world)
    world.acting = world.random.choice(
        (lambda: hands.tag_oldest(world), lambda: hands.roll_back(world), lambda: world.append(world.records(1, 2)))
    )
    world.append(world.records(2, 6))
    world.append(world.records(2, 6))
    _forget_tombstones(world)
    if world.random.random() < 0.35:
        erase(world)
    others = world.random.choices(_HANDS, k=world.random.randint(1, 3))
    for hand in (world.in_turn(_HANDS), *others):
        world.now += world.random.choice((0, HOUR, 5 * HOUR))
        hand(world)
        if world.random.random() < 0.6:
            world.append(world.records(1, 4))
        world.random.choice((_clean, _clean, _maintain))(world)
        if world.checker.unreadable:
            return


def _forget_tombstones(world: World) -> None:
    """Two full cleans, the second one past the horizon of what the first has stamped."""
    for _ in range(2):
        world.run(lanes=FULL, force=True)
        world.now += 3 * HOUR
        world.append(world.records(1, 3))


def erase(world: World) -> None:
    """A key is to be erased, and is."""
    keys = sorted({one.key for one in world.checker.line.records if one.key})
    if not keys:
        return
    if request(world, world.random.choice(keys)):
        world.run(lanes=ERASE, force=True)
        world.happened("erasure")


def _clean(world: World) -> None:
    world.run(commit_fault(world.random, (Fate.BESIDE,)) if world.random.random() < 0.3 else NOTHING)


def _maintain(world: World) -> None:
    world.now += 7 * HOUR
    world.maintain(Script(commit=(world.random.choice((1, 1, 2)), Fate.BESIDE, "", 0)))
