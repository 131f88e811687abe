"""``python -m tests.nightly.trials --seeds 1-1000 --kinds commit,history``: run trials; one seed is told step by step.

Exit code 1 on a violation that ``known.toml`` does not list, and on a listed one that so many seeds no longer show.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Annotated, Final

import typer

from tests.nightly.trials.kinds import KINDS
from tests.nightly.trials.trial import Told, kind_of, known, trials, verdict

PROCESSES: Final = 2
PER_PROCESS: Final = 25
"""Seeds that share a process: it pays for its imports once, and what it caches of their files stays small."""


def main(
    seeds: Annotated[str, typer.Option(help="One seed, or the first and the last one: 1-1000.")] = "1-20",
    kinds: Annotated[str, typer.Option(help=f"Kinds of seeds, of {','.join(KINDS)}; each has its turn.")] = "",
) -> None:
    """Run the trials of all seeds."""
    first, _, last = seeds.partition("-")
    asked = [one for one in kinds.split(",") if one] or list(KINDS)
    if unknown := set(asked) - set(KINDS):
        raise typer.BadParameter(f"kinds {', '.join(sorted(unknown))}; allowed: {', '.join(KINDS)}")
    work = [(seed, kind_of(seed, asked)) for seed in range(int(first), int(last or first) + 1)]
    # Sets and dictionaries of processes that are started from now on have the same order in each.
    os.environ["PYTHONHASHSEED"] = "0"
    done = []
    for told in _all(work):
        done.append(told)
        if len(work) == 1 or verdict([told], known()).strange:
            print(f"seed {told.seed} of kind {told.kind}", *told.log, *told.violations, sep="\n", flush=True)
    found = verdict(done, known())
    print(*found.lines(), sep="\n")
    raise typer.Exit(not found.passed)


def _all(work: list[tuple[int, str]]) -> Iterator[Told]:
    size = min(PER_PROCESS, -(-len(work) // PROCESSES))
    parts = [work[start : start + size] for start in range(0, len(work), size)]
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for done in pool.map(trials, parts):
            yield from done


# Processes of their own import this module again.
if __name__ == "__main__":
    typer.run(main)
