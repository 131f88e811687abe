"""Kind `writers`: sinks with bookkeeping of their own, redelivery, topics made again, late holes, clocks, forgeries."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pyiceberg.exceptions import CommitFailedException

from tests.nightly.trials.acts import create
from tests.nightly.trials.lines import Effect, Line, appends, restarts
from tests.nightly.trials.lookups import AUTOMQ, WRITERS, Writer
from tests.nightly.trials.product import FULL
from tests.nightly.trials.records import Record, appending
from tests.nightly.trials.world import AGE, DAY, HOUR, TABLE, World

CENTURY: Final = 36_525 * DAY
FAR: Final = 500
"""First offset of a topic that is going to be made again: the new one does not get there."""


def writers(world: World) -> None:
    """Two to four acts of writers, with cleaning and maintenance between."""
    create(world)
    again = world.in_turn((True, False))
    if again:
        world.offsets.update({0: FAR, 1: FAR})
    sinks = world.random.sample(WRITERS, world.random.randint(1, 3))
    for sink in sinks:
        commit(world, sink)
    world.append(world.records(2, 6))
    others = world.random.choices(_ACTS, k=world.random.randint(1, 3))
    for act in (world.in_turn(_ACTS), *others):
        act(world)
        if world.random.random() < 0.5:
            commit(world, world.random.choice(sinks))
        world.now += world.random.choice((HOUR, 7 * HOUR, AGE))
        world.random.choice((_clean, _clean, _maintain))(world)
        if world.checker.unreadable:
            return
    if again:
        made_again(world)
        world.run(lanes=FULL, force=True)
        answer(world)
        world.run(lanes=FULL, force=True)


def _clean(world: World) -> None:
    world.run()


def _maintain(world: World) -> None:
    world.now += 7 * HOUR
    world.maintain()


def commit(world: World, writer: Writer) -> None:
    """A commit of a sink, with its progress in the summary."""
    number = str(world.batches + 1)
    records = world.records(1, 3)

    def change(line: Line) -> Line:
        kept = {name: told for name, told in line.progress.items() if name != AUTOMQ.name}
        added = appends(world.batches, records, {writer.name: number})
        return added.change(replace(line, progress=kept))

    world.log.append(f"{writer.name} commits {number}")
    world.append(records, Effect(change), **writer.properties(int(number)))
    world.happened(f"commit of {writer.name}")


def silence(world: World) -> None:
    """All sinks are silent for five days, while Firn works."""
    for _ in range(2):
        world.now += 60 * HOUR
        world.run(lanes=FULL, force=True)
        if not world.checker.unreadable:
            world.maintain()
    world.happened("five silent days")


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


def without_times(world: World) -> None:
    """A writer that has no timestamps: Kafka's clients send −1 then."""
    world.append(tuple(one._replace(timestamp_ms=-1) for one in world.records(1, 4)))
    world.happened("records without times")


def wrong_clock(world: World) -> None:
    """Firn runs once on a machine whose clock is off."""
    world.skew = world.random.choice((-2 * DAY, -HOUR, HOUR, 2 * DAY, 40 * DAY, CENTURY))
    world.log.append(f"the clock is off by {world.skew} ms")
    world.run(lanes=FULL, force=True)
    world.skew = 0
    world.happened("wrong clock")


def forged_clock(world: World) -> None:
    """An appender claims a clock that only Firn's commits have."""
    text = world.random.choice((str(world.now + CENTURY), "9" * 18, str(world.now + 3 * DAY), "-1"))
    records = world.records(1, 3)
    world.append(records, None, **{"firn.now-ms": text, "firn.lane": "full"})
    world.happened("forged clock")


def copied_summary(world: World) -> None:
    """An appender copies all that Firn's newest commit says of itself."""
    told = next((one for one in world.checker.summaries() if "firn.lane" in one), {})
    copied = {name: text for name, text in told.items() if name.startswith("firn.")}
    if copied:
        world.append(world.records(1, 3), None, **copied)
        world.happened("copied summary")


def mid_commit(world: World) -> None:
    """A writer has written its files and commits after Firn's next step."""
    records = world.records(1, 3)
    waiting = world.table().transaction()
    waiting.append(appending(records))
    world.log.append("a writer is about to commit")
    world.batches += 1
    world.skew = world.random.choice((0, 0, 2 * DAY))
    _maintain(world)
    world.skew = 0
    if not world.checker.unreadable:
        # It may lose the race, or find its own files gone.
        with suppress(CommitFailedException, FileNotFoundError):
            world.by_others(appends(world.batches, records), lambda _: waiting.commit_transaction())
        world.checker.look_around()
        world.happened("writer in mid-commit")


def answer(world: World) -> None:
    """Say of half of all restarts of offsets that the records are late; the topics of the others keep waiting."""
    line = world.checker.line
    former, present = (
        {one.partition for one in part} for part in (line.records[: line.restart], line.records[line.restart :])
    )
    if not former & present:
        return
    if not world.firn.status(TABLE).blocked:
        world.checker.found("I5", "a topic that was made again does not wait")
    if world.random.random() < 0.5:
        world.late()
        world.checker.may_be_blocked = False


def made_again(world: World) -> None:
    """The topic is deleted and made again: its offsets begin at 0, its records are days younger."""
    world.now += 3 * DAY
    world.offsets.clear()
    records = world.records(3, 6)
    world.checker.may_be_blocked = True
    world.append(records, restarts(world.batches + 1, records))
    world.append(world.records(1, 3))
    world.happened("topic made again")


_ACTS: Final[tuple[Callable[[World], None], ...]] = (
    *(silence, redelivery, late_hole, without_times, wrong_clock, forged_clock, mid_commit),
    *(copied_summary, copied_summary),
)
EVENTS: Final = (
    *(f"commit of {writer.name}" for writer in WRITERS),
    *("five silent days", "redelivery", "late hole", "records without times", "wrong clock", "forged clock"),
    *("copied summary", "writer in mid-commit", "topic made again", "topic late"),
)
"""What they are counted as."""
