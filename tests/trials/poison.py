"""Kind `poison`: what one topic partition, or one property, brings with it stops nobody else (I8)."""

from collections.abc import Callable
from typing import Final

from pyiceberg.table import Table

from tests.trials.acts import create
from tests.trials.foreign import add, foreign_file
from tests.trials.lines import Effect, appends
from tests.trials.product import FULL
from tests.trials.records import Record
from tests.trials.world import HOUR, World

BAD, GOOD = 0, 1
LAST: Final = 2**63 - 1
TIMES: Final = {
    "the year 55,840": 1_700_000_000_000_000_000,
    "infinity": LAST,
    "-infinity": -LAST,
    "91 BC": -65_000_000_000_000_000,
}
"""Absurd times of producers, microseconds since the epoch."""
PROPERTIES: Final = {
    "write.parquet.compression-level": "high",
    "write.parquet.compression-codec": "zip",
    "write.parquet.page-size-bytes": "1 MB",
    "write.metadata.metrics.default": "some",
}
"""Nonsensical values."""


def poison(world: World) -> None:
    """Both partitions have something to clean; then the poison comes, and Firn's steps go on."""
    create(world)
    world.append(_pairs(world, BAD) + _pairs(world, GOOD))
    world.checker.healthy = {GOOD}
    world.checker.may_be_blocked = True
    name, act = world.in_turn(list(_POISONS.items()))
    act(world)
    world.happened(name)
    for _ in range(world.random.randint(1, 2)):
        world.now += HOUR
        if name != "nonsensical property":
            world.append(_pairs(world, GOOD))
        ended = world.run()
        world.checker.goes_on(ended, GOOD)
        if world.random.random() < 0.5:
            world.maintain()
        world.checker.told_of(world.step("status", lambda: world.firn.status("shop.orders")))
    if name == "nonsensical property":
        # Its user mends it.
        world.by_others(Effect(), _without_properties)
    world.run(lanes=FULL, force=True)


def _pairs(world: World, partition: int) -> tuple[Record, ...]:
    """Two records of a key and one of another."""
    first = world.offsets[partition]
    world.offsets[partition] += 3
    keys = (b"a", b"a", b"b")
    return tuple(
        Record(partition, first + place, key, world.random.randbytes(4), world.now - HOUR)
        for place, key in enumerate(keys)
    )


def absurd_time(world: World) -> None:
    """One record with a time that no calendar has."""
    name, micros = world.random.choice(list(TIMES.items()))
    world.log.append(f"a record of {name}")
    record = Record(BAD, world.offsets[BAD], b"z", b"1", micros // 1000)
    world.offsets[BAD] += 1
    _foreign(world, [record], [micros])


def last_offset(world: World) -> None:
    """Records at both ends of what an offset can be."""
    records = [
        Record(BAD, offset, b"a", world.random.randbytes(4), world.now - HOUR)
        for offset in world.random.choice(((LAST - 1, LAST), (LAST,)))
    ]
    _foreign(world, records, [world.now * 1000] * len(records))


def _foreign(world: World, records: list[Record], micros: list[int]) -> None:
    world.batches += 1
    held = tuple(one._replace(timestamp_ms=time // 1000) for one, time in zip(records, micros, strict=True))
    file = foreign_file(world, records, micros)
    world.by_others(appends(world.batches, held), lambda table: add(table, file))


def torn_file(world: World) -> None:
    """A landed file is cut off in the middle."""
    records = _pairs(world, BAD)
    world.batches += 1
    file = foreign_file(world, records, [world.now * 1000] * len(records))
    held = tuple(one._replace(timestamp_ms=world.now) for one in records)
    world.by_others(appends(world.batches, held), lambda table: add(table, file))
    world.checker.files.damage(
        file.file_path, lambda content: content[: len(content) // 2] + bytes(len(content) - len(content) // 2)
    )


def nonsensical_property(world: World) -> None:
    """A write property that no writer understands."""
    name, value = world.random.choice(list(PROPERTIES.items()))
    world.log.append(f"{name} = {value}")

    def change(table: Table) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({name: value})

    world.append(_pairs(world, GOOD))
    world.by_others(Effect(), change)


def _without_properties(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.remove_properties(*(name for name in PROPERTIES if name in table.properties))


_POISONS: Final[dict[str, Callable[[World], None]]] = {
    "absurd time": absurd_time,
    "last offset": last_offset,
    "torn file": torn_file,
    "nonsensical property": nonsensical_property,
}
EVENTS: Final = tuple(_POISONS)
"""What they are counted as."""
