"""One seed: what its kind draws, then rounds without a fault."""

import shutil
import tempfile
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final
from unittest.mock import patch

import tenacity.nap

from tests.nightly.trials.acts import settle
from tests.nightly.trials.commits import commits
from tests.nightly.trials.histories import histories
from tests.nightly.trials.processes import processes
from tests.nightly.trials.product import one_by_one
from tests.nightly.trials.violation import Violation
from tests.nightly.trials.world import World
from tests.support.machine import unsynced

KINDS: Final[Mapping[str, Callable[[World], None]]] = {
    "commit": commits,
    "history": histories,
    "processes": processes,
}
SHARES: Final = {"commit": 5, "history": 3, "processes": 5}
"""How often a kind has its turn beside the others.

Their sum is a prime number: all that a kind takes in turn by the seed then has its turn in that kind."""


@dataclass
class Told:
    """What a seed has shown."""

    seed: int
    kind: str
    violations: list[Violation] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


class _Patience:
    """Time for those who try again: it passes at once."""

    @staticmethod
    def sleep(seconds: float) -> None:
        """Nothing waits in a trial."""


@contextmanager
def prepared() -> Iterator[None]:
    """Make this process one of trials, for a while: no waits, a catalog that no power cut threatens, and Firn by the
    trial's clock."""
    with (
        patch.object(tenacity.nap, "time", _Patience),
        one_by_one(),
        unsynced(),
    ):
        yield


def kind_of(seed: int, kinds: list[str]) -> str:
    """The kind whose turn it is with ``seed``, of those asked for."""
    turns = [kind for kind in kinds for _ in range(SHARES[kind])]
    return turns[seed % len(turns)]


def trial(seed: int, kind: str) -> Told:
    """Everything that the seed says, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="firn-trial-"))
    # What names files, of which the first to go is the one that a fault hits.
    names = Random(f"names {seed}")  # noqa: S311
    try:
        with patch.object(uuid, "uuid4", lambda: uuid.UUID(int=names.getrandbits(128), version=4)):
            world = World(Random(f"{kind} {seed}"), folder, seed)  # noqa: S311  # a seed is what it is for
            world.others.create_namespace("shop")
            _play(kind, world)
    finally:
        shutil.rmtree(folder)
    return Told(seed, kind, world.checker.violations, world.log)


def _play(kind: str, world: World) -> None:
    try:
        KINDS[kind](world)
        settle(world)
    except FileNotFoundError as error:
        # Whoever reads a file that was told to be lost ends here.
        if not any(one.invariant in ("I1", "I2") for one in world.checker.violations):
            world.checker.found("trial", "misses a file", error)
    except Exception as error:  # noqa: BLE001  # the other seeds go on, and this one is not known
        world.checker.found("trial", f"breaks with {type(error).__name__}", traceback.format_exc())


def trials(seeds: list[tuple[int, str]]) -> list[Told]:
    """The trials of seeds and their kinds, one after the other."""
    with prepared():
        return [trial(seed, kind) for seed, kind in seeds]
