"""The trials of several seeds in one process: they share a lake and a reader, and Spark if they need it."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from rich.console import Console

from infra.foreign.session import small_session
from tests.faults.harness import maintenance, steps
from tests.faults.harness.catalogs import Kind, catalog
from tests.faults.harness.reader import reading
from tests.faults.harness.trial import Trial, trial
from tests.faults.harness.workplace import Choice, Workplace
from tests.support.clocks import judging_late

console = Console(highlight=False, soft_wrap=True)


def trials(seeds: Iterable[int], kind: Kind = Kind.SQLITE, choice: Choice = Choice.LOCAL) -> list[Trial]:
    """The trials of ``seeds``, one after the other; each is told of on standard output."""
    return list(each(seeds, kind, choice))


def each(seeds: Iterable[int], kind: Kind = Kind.SQLITE, choice: Choice = Choice.LOCAL) -> Iterator[Trial]:
    """The same, as they end."""
    with (
        tempfile.TemporaryDirectory() as folder,
        catalog(kind, Path(folder)) as lake,
        reading(lake) as reader,
        closing(Workplace(partial(small_session, lake, "firn faults"), choice)) as place,
    ):
        for seed in seeds:
            yield _told(trial(seed, lake, place, reader, Path(folder) / "trials"))


def trials_of_steps(seeds: Iterable[int], kind: Kind = Kind.SQLITE) -> list[Trial]:
    """The same of the steps that work on metadata alone."""
    with tempfile.TemporaryDirectory() as folder, catalog(kind, Path(folder)) as lake, judging_late():
        return [_told(steps.trial(seed, lake, Path(folder) / "trials")) for seed in seeds]


def trials_of_maintenance(seeds: Iterable[int], kind: Kind = Kind.SQLITE) -> list[Trial]:
    """The same of maintenance."""
    with tempfile.TemporaryDirectory() as folder, catalog(kind, Path(folder)) as lake:
        return [_told(maintenance.trial(seed, lake, Path(folder) / "trials")) for seed in seeds]


def _told(done: Trial) -> Trial:
    console.print(f"seed {done.seed}: {'; '.join(done.faults) or 'nothing happened'}", *done.violations, sep="\n  ")
    return done
