"""The steps of Firn: what each begins with, and the call that takes it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest

from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add, equality_file
from tests.faults.world import LATER, NOW, PROPERTIES, TABLE, World
from tests.support.commands import Ran
from tests.support.faults import Gate, Killed
from tests.support.records import DAY, Record


def _batch(start: int, age_ms: int) -> list[Record]:
    """A value for two keys, and a tombstone."""
    pairs = ((b"a", b"%d" % start), (b"b", b"%d" % start), (b"c", None))
    return [Record(start + place, key, value, 0, NOW - age_ms) for place, (key, value) in enumerate(pairs)]


LAST: Final = [Record(6, None, b"no key", 0, NOW - DAY), Record(7, b"d", b"1", 0, NOW - DAY)]


@dataclass(frozen=True)
class Step:
    """``take`` is the step, taken by a process whose calls ask the gate; ``prepare`` is what is there before it."""

    take: Callable[[World, Gate], Ran]
    prepare: Callable[[World], object]
    calls: str
    """The kinds of calls that it makes."""
    staged: bool = False
    """It works on a stage, which a collector ends; what other steps have not committed yet, it takes for orphans."""
    again: tuple[int, ...] = (0,)
    """Exit codes of the same step once more, after a fault: a stage can be gone, and then a run finishes."""


def _created(world: World) -> None:
    """A table with two segments, the first of them past its retention, and a file to land."""
    world.clear()
    world.open().create(PROPERTIES)
    world.land(_batch(0, 40 * DAY))
    world.land(_batch(3, 2 * DAY))
    world.names = {"file": [world.write(LAST)]}


def filled(world: World) -> None:
    """A table with three segments."""
    _created(world)
    world.done("land", TABLE, *world.names["file"])


def finish(world: World) -> None:
    """A run does all the work that is due."""
    world.done("run", TABLE, "--force")


def collect(world: World) -> None:
    """Maintenance when everything is old; the second one takes what the commits of the first have let go."""
    for _ in range(2):
        assert [str(one) for one in world.open(later_ms=LATER).maintain() if one.exit_code] == []


def _command(*words: str) -> Callable[[World, Gate], Ran]:
    """The command; a word in braces stands for what the preparation has learned."""

    def take(world: World, gate: Gate) -> Ran:
        spelt = [name for word in words for name in world.names.get(word.strip("{}"), [word])]
        return world.firn(*spelt, gate=gate)

    return take


def _planned(lane: str) -> Callable[[World], object]:
    def prepare(world: World) -> None:
        filled(world)
        world.names["stages"] = world.planned(lane)

    return prepare


def _compacted(world: World) -> None:
    _planned("full")(world)
    world.done("compact", *world.names["stages"])


def _validated(world: World) -> None:
    _compacted(world)
    world.done("validate", *world.names["stages"])


def _expired(world: World) -> None:
    _planned("retain")(world)
    world.done("compact", *world.names["stages"])
    world.done("validate", *world.names["stages"])


def _cleaned(world: World) -> None:
    filled(world)
    world.done("run", TABLE, "--lane", "full", "--force")


def _asked(world: World) -> None:
    filled(world)
    world.done("erase", TABLE, "--key", "a", "--within", "1h")


class _BeforeCertificates(Gate):
    """That of a process which ends before it issues a certificate."""

    def write(self, path: str) -> None:
        if path.endswith(".certificate.json"):
            raise Killed


def _erased(world: World) -> None:
    _asked(world)
    world.done("run", TABLE, "--lane", "erase", "--force")
    with pytest.raises(Killed):
        world.open(_BeforeCertificates(), LATER).maintain()


def _quarantined(world: World) -> None:
    _cleaned(world)
    branch = world.table().metadata.refs["firn_quarantine"]
    world.names["snapshot"] = [str(branch.snapshot_id)]


def _hidden(world: World) -> None:
    """Another writer deletes a key by an equality delete, as Flink does."""
    filled(world)
    lake, table = world.lake, world.table()
    values = ("orders", 0, None)
    add(lake, TABLE, [equality_file(table, ["key"], [[b"b"]], table.spec().spec_id, values)])


def _damaged(world: World) -> None:
    """A store has lost a data file."""
    filled(world)
    (path,) = (task.file.file_path for task in world.table().scan("offset = 3").plan_files())
    on_disk(path).unlink()
    world.names["lost"] = [path]


def _maintained(world: World, gate: Gate) -> Ran:
    return world.by_door(lambda: world.open(gate, LATER).maintain())


COMMITS: Final = "load read write commit"
DELETES: Final = f"{COMMITS} delete"
STEPS: Final = {
    "land": Step(_command("land", TABLE, "{file}"), _created, COMMITS),
    "plan": Step(_command("open", TABLE, "--lane", "full", "--force"), filled, "load read write"),
    "compact": Step(_command("compact", "{stages}"), _planned("full"), "load read write", staged=True),
    "validate": Step(_command("validate", "{stages}"), _compacted, "load read write", staged=True),
    "publish": Step(_command("publish", "{stages}"), _validated, DELETES, staged=True),
    "discard": Step(_command("discard", "{stages}"), _validated, DELETES, staged=True, again=(0, 1)),
    "retain": Step(_command("publish", "{stages}"), _expired, DELETES, staged=True),
    "ask": Step(_command("erase", TABLE, "--key", "a", "--within", "1h"), filled, COMMITS),
    "erase": Step(_command("run", TABLE, "--lane", "erase", "--force"), _asked, DELETES, staged=True),
    "certify": Step(_command("erase", TABLE, "--certify"), _erased, "load read write"),
    "convert": Step(_command("run", TABLE, "--lane", "convert", "--force"), _hidden, DELETES, staged=True),
    "maintain": Step(_maintained, _cleaned, DELETES),
    "clear": Step(
        _command("quarantine", TABLE, "--clear", "--as-of", "{snapshot}", "--yes"),
        _quarantined,
        COMMITS,
    ),
    "mend": Step(_command("mend", TABLE, "--file", "{lost}", "--yes"), _damaged, COMMITS),
}
