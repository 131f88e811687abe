"""The trials of several seeds in one process: they share a lake, and a Spark session and a reader if they need them."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console

from tests.faults.harness import rooms
from tests.faults.harness.catalogs import Kind, catalog
from tests.faults.harness.reader import reading
from tests.faults.harness.trial import Trial, trial
from tests.spark.session import small_session

console = Console(highlight=False, soft_wrap=True)


def trials(seeds: Iterable[int], kind: Kind = Kind.SQLITE) -> list[Trial]:
    """The trials of ``seeds``, one after the other; each is told of on standard output."""
    return list(each(seeds, kind))


def each(seeds: Iterable[int], kind: Kind = Kind.SQLITE) -> Iterator[Trial]:
    """The same, as they end."""
    with tempfile.TemporaryDirectory() as folder, catalog(kind, Path(folder)) as lake:
        spark = small_session(lake, "firn faults")
        with reading(lake) as reader:
            for seed in seeds:
                yield _told(trial(seed, lake, spark, reader, Path(folder) / "trials"))
        spark.stop()


def trials_of_rooms(seeds: Iterable[int], kind: Kind = Kind.SQLITE) -> list[Trial]:
    """The same of the rooms that need no Spark."""
    with tempfile.TemporaryDirectory() as folder, catalog(kind, Path(folder)) as lake:
        return [_told(rooms.trial(seed, lake, Path(folder) / "trials")) for seed in seeds]


def _told(done: Trial) -> Trial:
    console.print(f"seed {done.seed}: {'; '.join(done.faults) or 'nothing happened'}", *done.violations, sep="\n  ")
    return done
