"""``python -m tests.nightly.trials --seeds 1-1000 --kinds commit,history``: run trials; one seed is told step by step.

Exit code 1 on a violation that ``known.toml`` does not list, and on a listed one that so many seeds no longer show.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Annotated, Final

import typer
from rich.console import Console

from tests.nightly.trials.summary import tell, verdict
from tests.nightly.trials.trial import KINDS, Told, kind_of, trials
from tests.nightly.trials.violation import explanation, known

PER_PROCESS: Final = 25
"""Seeds that share a process: it pays for its imports once, and what it caches of their files stays small."""

console = Console(highlight=False, soft_wrap=True)


def main(
    seeds: Annotated[str, typer.Option(help="One seed, or the first and the last one: 1-1000.")] = "1-20",
    kinds: Annotated[str, typer.Option(help=f"Kinds of seeds, of {','.join(KINDS)}; each has its turn.")] = "",
    processes: Annotated[int, typer.Option(min=1, help="How many run at a time.")] = 2,
) -> None:
    """Run the trials of all seeds."""
    first, _, last = seeds.partition("-")
    asked = [one for one in kinds.split(",") if one] or list(KINDS)
    if unknown := set(asked) - set(KINDS):
        raise typer.BadParameter(f"kinds {', '.join(sorted(unknown))}; allowed: {', '.join(KINDS)}")
    work = [(seed, kind_of(seed, asked)) for seed in range(int(first), int(last or first) + 1)]
    # Sets and dictionaries of processes that are started from now on have the same order in each.
    os.environ["PYTHONHASHSEED"] = "0"
    if len(work) == 1:
        told_of = list(_all(work, 1))
        _tell(told_of[0])
    else:
        told_of = list(_all(work, processes))
    found = verdict(told_of, known())
    tell(found, console)
    raise typer.Exit(not found.passed)


def _tell(told: Told) -> None:
    console.print(f"seed {told.seed} of kind {told.kind}", *told.log, sep="\n", markup=False)
    console.print(*map(str, told.violations), sep="\n", markup=False)


def _all(work: list[tuple[int, str]], processes: int) -> Iterator[Told]:
    parts = [work[start : start + PER_PROCESS] for start in range(0, len(work), PER_PROCESS)]
    if len(parts) < processes:
        parts = [part for start in range(processes) if (part := work[start::processes])]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for done in pool.map(trials, parts):
            _tell_strange(done)
            yield from done


def _tell_strange(done: list[Told]) -> None:
    for told in done:
        strange = [one for one in told.violations if explanation(known(), told.kind, one) is None]
        if strange:
            console.print(f"seed {told.seed} of kind {told.kind}:", *map(str, strange), sep="\n  ", markup=False)


# Processes of their own import this module again.
if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
