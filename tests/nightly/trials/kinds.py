"""What every kind of seed draws: `commit`, `history` and `processes`; and what each begins and ends with."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final
from unittest.mock import patch

from firnlake.lanes import Lane
from tests.nightly.trials import hands
from tests.nightly.trials.gate import DYING, NOTHING, Call, Fault, Script, commit_fault, meanwhile, some_fault
from tests.nightly.trials.world import AGE, HOUR, PROPERTIES, World
from tests.support.records import DAY, Record

ROUNDS: Final = 3
"""Rounds of maintenance after the last fault, each but the last after a run."""
AGAIN: Final = "as if the topic was made again"
"""What the status says of a topic whose offsets seem to restart, which waits until somebody says what it is."""
FULL: Final = (Lane.FULL,)
HEAD: Final = (Lane.MERGE, Lane.CLEAN)


def _create(world: World, **properties: str) -> None:
    """The table, as Firn makes it."""
    orphans = world.checker.orphans_may_go = world.random.random() < 0.5
    chosen = {"firn.maintenance": f"manifests,snapshots{',orphans' * orphans}", **properties}
    world.firn.create({**PROPERTIES, **chosen})


def settle(world: World) -> None:
    """Rounds without a fault, after which nothing is left to do and nothing is left over."""
    if world.held:
        # What is still on its way arrives days later, when maintenance has found its files.
        world.now += AGE + HOUR
        world.maintain()
    for held in world.held:
        world.arrive(held)
    world.held.clear()
    blocked: tuple[str, ...] = ()
    for number in range(1, ROUNDS + 1):
        if world.checker.unreadable:
            return
        world.now += AGE + HOUR
        if any(AGAIN in why for part in world.firn.status().partitions for why in part.blockers):
            # What lands at lower offsets after a rollback and an expiry looks like that; its user says what it is.
            world.late()
        if number < ROUNDS:
            blocked = world.run(lanes=(Lane.ERASE, *FULL), force=True).blocked
        if not world.checker.unreadable:
            world.maintain()
    world.checker.settled(blocked)
    world.checker.leftovers(world.now - AGE - 2 * HOUR, world.store.time_of)


# Every request, load and deletion of Firn can go wrong, and another writer may be faster.


def commits(world: World) -> None:
    _create(world)
    world.acting = lambda: world.random.choice((_append, _append, hands.tag_oldest))(world)
    world.append(world.records())
    for _ in range(world.random.randint(3, 5)):
        world.append(world.records())
        world.now += world.random.choice((0, HOUR, 5 * HOUR, AGE + HOUR))
        step = world.random.choice((_land, World.run, World.run, _full, _maintain, _maintain))
        step(world, some_fault(world.random))
        if world.checker.unreadable:
            return
    if world.random.random() < 0.5:
        world.random.choice((_land, _land, World.run, _full))(world, DYING)


def _append(world: World) -> None:
    world.append(world.records(1, 2))


def _slow_append(world: World) -> None:
    """A writer whose files are there before a round of maintenance, and whose commit comes after it."""
    world.slow = world.maintain
    _append(world)


def _land(world: World, script: Script) -> None:
    world.land(world.records(), script)


def _full(world: World, script: Script) -> None:
    world.run(script, FULL, force=True)


def _maintain(world: World, script: Script) -> None:
    world.now += world.random.choice((HOUR, 7 * HOUR))
    world.maintain(script)


# Main gets another past, or a new beginning, between the steps of Firn.

_HANDS: Final = (
    *(hands.roll_back, hands.roll_forward, hands.roll_forward, hands.tag, hands.branch, hands.delete_key),
    *(hands.delete_key, hands.rewrite, hands.expire, hands.overwrite, hands.delete_and_reload, hands.create_or_replace),
    *(hands.add_files, World.append_elsewhere),
)


def histories(world: World) -> None:
    """A little history that Firn cleans, then other hands, and Firn's next commit between them."""
    _create(world)
    world.acting = world.random.choice(
        (lambda: hands.tag_oldest(world), lambda: hands.roll_back(world), lambda: _append(world))
    )
    world.append(world.records(2, 6))
    world.append(world.records(2, 6))
    # Two full cleans, the second one past the horizon of what the first has stamped.
    for _ in range(2):
        world.run(lanes=FULL, force=True)
        world.now += 3 * HOUR
        world.append(world.records(1, 3))
    if world.random.random() < 0.35:
        _erase_a_key_of_the_table(world)
    others = world.random.choices(_HANDS, k=world.random.randint(1, 3))
    # One has its turn with this seed.
    for hand in (_HANDS[world.seed % len(_HANDS)], *others):
        world.now += world.random.choice((0, HOUR, 5 * HOUR))
        hand(world)
        if world.random.random() < 0.6:
            world.append(world.records(1, 4))
        world.random.choice((_clean, _clean, _maintain_beside))(world)
        if world.checker.unreadable:
            return


def _erase_a_key_of_the_table(world: World) -> None:
    keys = sorted({one.key for one in world.checker.line.records if one.key})
    if keys and world.ask(world.random.choice(keys)):
        world.run(lanes=(Lane.ERASE,), force=True)
        world.happened("erasure")


def _clean(world: World) -> None:
    world.run(commit_fault(world.random, (Fault.BESIDE,)) if world.random.random() < 0.3 else NOTHING)


def _maintain_beside(world: World) -> None:
    world.now += 7 * HOUR
    world.maintain(Script(Call.COMMIT, world.random.choice((1, 1, 2)), Fault.BESIDE))


# Two processes of Firn at once, keys to erase, hidden records, and others at any call of Firn's.


def processes(world: World) -> None:
    """Runs, at one of whose calls another process does something; requests and late records between them."""
    with ExitStack() as large:
        if world.random.random() < 0.5:
            # Every plan is too large for one task, and has too many keys for memory.
            large.enter_context(patch("firnlake.compact.tasks.WHOLE_BYTES", 0))
            large.enter_context(patch("firnlake.compact.survey.KEY_BYTES", 0))
        _create(world, **{"firn.erase.history": "expire"})
        world.acting = lambda: world.random.choice(_MEANWHILE)(world)
        world.append(world.records(2, 6))
        for _ in range(world.random.randint(2, 3)):
            for act in world.random.sample(_BETWEEN, 2):
                act(world)
            world.now += world.random.choice((0, HOUR, 5 * HOUR, AGE + HOUR))
            if not world.checker.unreadable:
                script = meanwhile(world.random) if world.random.random() < 0.7 else some_fault(world.random)
                world.random.choice((_run, _run, _run, _collector))(world, script)
            if world.checker.unreadable:
                return


def _erase_any_key(world: World) -> None:
    """Any key is to be erased, unless a user has deleted what the end of a log was."""
    if not world.checker.line.cut and world.ask(world.random.choice((b"a", b"b", b"c", b"d", b"nobody has it"))):
        world.happened("request to erase")


def _redelivery(world: World) -> None:
    """A restarted writer sends records of this line again."""
    known = [one for one in world.checker.line.records if one.key is not None]
    if known:
        world.append(tuple(world.random.sample(known, min(len(known), world.random.randint(1, 3)))))
        world.happened("redelivery")


def _late_hole(world: World) -> None:
    """Offsets that were left out arrive after the ones behind them."""
    partition = world.random.randint(0, 1)
    first = world.offsets[partition]
    world.offsets[partition] += 2
    world.append(world.records(3, 6))
    key = world.random.choice((b"a", b"b", b"c"))
    hole = (Record(first, key, b"late", partition, world.now - 2 * HOUR),)
    world.run()
    world.append(hole)
    world.happened("late hole")


def _another_run(world: World) -> None:
    _run(world)
    world.happened("two runs at once")


def _second_try(world: World) -> None:
    """A job that was taken for dead is ended, and is done again under the same name."""
    _collector(world)
    _run(world)
    world.happened("a second try")


def _run(world: World, script: Script = NOTHING) -> None:
    lanes, force = world.random.choice(_RUNS)
    world.run(script, lanes, force=force)


def _collector(world: World, script: Script = NOTHING) -> None:
    """Maintenance on a machine that is four days ahead: all that is staged is old for it."""
    former, world.skew = world.skew, 4 * DAY
    world.maintain(script)
    world.skew = former
    world.happened("a collector")


_RUNS: Final = (((), False), (HEAD, False), (FULL, True), (FULL, True), ((Lane.ERASE, *Lane), True))
"""Lanes, and whether thresholds count not."""
_BETWEEN: Final = (_append, _slow_append, _late_hole, _redelivery, hands.hide_key, _erase_any_key, _erase_any_key)
_MEANWHILE: Final = (
    *(_append, _another_run, _another_run, _collector, _second_try),
    *(hands.hide_key, hands.rewrite, hands.expire, hands.add_column),
)
KINDS: Final[Mapping[str, Callable[[World], None]]] = {
    "commit": commits,
    "history": histories,
    "processes": processes,
}
