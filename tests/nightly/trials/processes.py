"""Kind `processes`: two processes of Firn at once, keys to erase, hidden records, and others at any call of Firn's."""

from contextlib import nullcontext
from typing import Final

from tests.nightly.trials.acts import create, request, some_fault
from tests.nightly.trials.commits import append
from tests.nightly.trials.faults import NOTHING, Script, meanwhile
from tests.nightly.trials.hands import add_column, expire, hide_key, rewrite
from tests.nightly.trials.product import ALL_LANES, ERASE, FULL, HEAD, large
from tests.nightly.trials.records import Record
from tests.nightly.trials.world import AGE, DAY, HOUR, World


def processes(world: World) -> None:
    """Runs, at one of whose calls another process does something; requests and late records between them."""
    with large() if world.random.random() < 0.5 else nullcontext():
        _play(world)


def _play(world: World) -> None:
    create(world, **{"firn.erase.history": "expire"})
    world.acting = lambda: world.random.choice(_MEANWHILE)(world)
    world.append(world.records(2, 6))
    for _ in range(world.random.randint(2, 3)):
        for act in world.random.sample(_BETWEEN, 2):
            act(world)
        world.now += world.random.choice((0, HOUR, 5 * HOUR, AGE + HOUR))
        if not world.checker.unreadable:
            script = meanwhile(world.random) if world.random.random() < 0.7 else some_fault(world)
            world.random.choice((_run, _run, _run, collector))(world, script)
        if world.checker.unreadable:
            return


def erase(world: World) -> None:
    """Any key is to be erased, unless a user has deleted what the end of a log was."""
    if not world.checker.line.cut and request(world, world.random.choice((b"a", b"b", b"c", b"d", b"nobody has it"))):
        world.happened("request to erase")


def redelivery(world: World) -> None:
    """A restarted writer sends records of this line again."""
    known = [one for one in world.checker.line.records if one.key is not None]
    if known:
        batch = tuple(world.random.sample(known, min(len(known), world.random.randint(1, 3))))
        world.append(batch)
        world.happened("redelivery")


def late_hole(world: World) -> None:
    """Offsets that were left out arrive after the ones behind them."""
    partition = world.random.randint(0, 1)
    first = world.offsets[partition]
    world.offsets[partition] += 2
    world.append(world.records(3, 6))
    key = world.random.choice((b"a", b"b", b"c"))
    hole = (Record(partition, first, key, b"late", world.now - 2 * HOUR),)
    world.run()
    world.append(hole)
    world.happened("late hole")


def another_run(world: World) -> None:
    """Another process of Firn runs."""
    _run(world)
    world.happened("two runs at once")


def second_try(world: World) -> None:
    """A job that was taken for dead is ended, and is done again under the same name."""
    collector(world)
    _run(world)
    world.happened("a second try")


def _run(world: World, script: Script = NOTHING) -> None:
    lanes, force = world.random.choice(_RUNS)
    world.run(script, lanes=lanes, force=force)


def collector(world: World, script: Script = NOTHING) -> None:
    """Maintenance on a machine that is four days ahead: all that is staged is old for it."""
    former, world.skew = world.skew, 4 * DAY
    world.maintain(script)
    world.skew = former
    world.happened("a collector")


_RUNS: Final = ((ALL_LANES, False), (HEAD, False), (FULL, True), (FULL, True), ((*ERASE, *ALL_LANES), True))
"""Lanes, and whether thresholds count."""
_BETWEEN: Final = (append, append, late_hole, redelivery, hide_key, erase, erase)
_MEANWHILE: Final = (append, another_run, another_run, collector, second_try, hide_key, rewrite, expire, add_column)
