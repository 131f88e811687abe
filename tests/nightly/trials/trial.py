"""One seed: what its kind draws, then rounds without a fault; and what many seeds show, by what is known of it."""

import re
import shutil
import tempfile
import tomllib
import traceback
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple
from unittest.mock import patch

import tenacity.nap

from tests.nightly.trials.checker import Violation
from tests.nightly.trials.kinds import KINDS, settle
from tests.nightly.trials.world import World, one_by_one
from tests.support.machine import unsynced

SHARES: Final = {"commit": 5, "history": 3, "processes": 5}
"""How often a kind has its turn beside the others.

Their sum is a prime number: all that a kind takes in turn by the seed then has its turn in that kind."""
KNOWN: Final = Path(__file__).with_name("known.toml")
ENOUGH: Final = 200
"""Seeds of each of its kinds after which a listed violation that did not show counts as mended."""


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
    with patch.object(tenacity.nap, "time", _Patience), one_by_one(), unsynced():
        yield


def kind_of(seed: int, kinds: list[str]) -> str:
    """The kind whose turn it is with ``seed``, of those asked for."""
    turns = [kind for kind in kinds for _ in range(SHARES[kind])]
    return turns[seed % len(turns)]


def trials(seeds: list[tuple[int, str]]) -> list[Told]:
    """The trials of seeds and their kinds, one after the other."""
    with prepared():
        return [trial(seed, kind) for seed, kind in seeds]


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


class Known(NamedTuple):
    """A violation that a known defect explains, in seeds of some kinds."""

    invariant: str
    kinds: tuple[str, ...]
    what: str
    """A regular expression of all of the violation's ``what``."""
    why: str
    """What the defect is."""

    def explains(self, kind: str, violation: Violation) -> bool:
        fits = re.fullmatch(self.what, violation.what) is not None
        return fits and self.invariant == violation.invariant and kind in self.kinds


def known() -> list[Known]:
    """All that is listed in ``known.toml``."""
    listed = tomllib.loads(KNOWN.read_text(encoding="utf-8")).get("known", [])
    return [Known(**one | {"kinds": tuple(one["kinds"])}) for one in listed]


@dataclass(frozen=True)
class Verdict:
    """What a run has shown: seeds by what is ``known``, seeds by kind and what is not, and entries that are ``gone``:
    enough seeds of each of their kinds no longer show them."""

    of_kind: Counter[str]
    known: Mapping[Known, list[int]]
    strange: Mapping[tuple[str, Violation], list[int]]
    gone: list[Known]

    @property
    def passed(self) -> bool:
        """True when all that was seen is known, and all that is known was seen."""
        return not self.strange and not self.gone

    def lines(self) -> list[str]:
        """The lines that a run of trials prints."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.of_kind.items()))
        lines = [f"{self.of_kind.total()} seeds: {kinds}"]
        lines += [f"known: {entry.invariant}, {entry.why}: {_some(seeds)}" for entry, seeds in self.known.items()]
        lines += [f"NOT KNOWN ({kind}) {one}: {_some(seeds)}" for (kind, one), seeds in self.strange.items()]
        return lines + [f"NO LONGER SEEN, take it out of known.toml: {one.invariant}, {one.why}" for one in self.gone]


def verdict(done: list[Told], listed: list[Known]) -> Verdict:
    """Sort what the seeds ``done`` have shown by what is ``listed``."""
    of_kind = Counter(told.kind for told in done)
    seen: defaultdict[Known, list[int]] = defaultdict(list)
    strange: defaultdict[tuple[str, Violation], list[int]] = defaultdict(list)
    for told in done:
        for one in told.violations:
            if entry := next((entry for entry in listed if entry.explains(told.kind, one)), None):
                seen[entry].append(told.seed)
            else:
                strange[told.kind, one._replace(details="")].append(told.seed)
    gone = [one for one in listed if one not in seen and all(of_kind[kind] >= ENOUGH for kind in one.kinds)]
    return Verdict(of_kind, seen, strange, gone)


def _some(seeds: Sequence[int]) -> str:
    numbers = sorted(set(seeds))
    return f"{len(numbers)} seeds: {', '.join(map(str, numbers[:8]))}{' ...' if len(numbers) > 8 else ''}"
