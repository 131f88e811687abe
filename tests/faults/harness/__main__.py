"""``python -m tests.faults.harness --seeds 1-500``: run trials, say what happened; exit code 1 if a rule was broken."""

import json
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer

from tests.faults.harness.batch import console, trials, trials_of_maintenance, trials_of_steps
from tests.faults.harness.catalogs import Kind, sql_only
from tests.faults.harness.workplace import Choice

PER_PROCESS = 15
"""Seeds that share a process: what dead drivers leave in its JVM, if it has one, adds up to some 50 MB a seed."""


def main(
    seeds: Annotated[str, typer.Option(help="One seed, or the first and the last one: 1-500.")] = "1-20",
    processes: Annotated[int, typer.Option(min=1, help="How many run at a time.")] = 2,
    kind: Annotated[Kind, typer.Option("--catalog", help="Where the catalog is.", callback=sql_only)] = Kind.SQLITE,
    engine: Annotated[Choice, typer.Option(help="What Firn's tasks run in.")] = Choice.LOCAL,
    steps: Annotated[bool, typer.Option("--steps", help="Land, retain, collect instead of cleaning.")] = False,
    maintenance: Annotated[bool, typer.Option("--maintenance", help="Maintain tables instead of cleaning.")] = False,
    report: Annotated[Path | None, typer.Option(help="A file for all figures, as JSON.")] = None,
) -> None:
    """Run the trials of all seeds."""
    first, _, last = seeds.partition("-")
    every = range(int(first), int(last or first) + 1)
    parts = [every[start : start + PER_PROCESS] for start in range(0, len(every), PER_PROCESS)]
    if len(parts) < processes:
        parts = [every[start::processes] for start in range(processes)]
    total: Counter[str] = Counter()
    violations: dict[int, list[str]] = {}
    happened: Counter[str] = Counter()
    work = partial(trials, kind=kind, choice=engine)
    if steps or maintenance:
        work = partial(trials_of_maintenance if maintenance else trials_of_steps, kind=kind)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for done in pool.map(work, [part for part in parts if part]):
            for one in done:
                total.update(one.counts)
                happened.update(one.faults)
                if one.violations:
                    violations[one.seed] = one.violations
    kinds = Counter(" ".join(fault.split(" at ")[0].split(" after ")[0].split()) for fault in happened.elements())
    figures = {
        "seeds": len(every),
        "faults": happened.total(),
        "kinds": dict(kinds),
        "violations": violations,
        **total,
    }
    console.print_json(json.dumps(figures))
    if report:
        report.write_text(json.dumps(figures | {"each": dict(happened)}, indent=1))
    raise typer.Exit(bool(violations))


# Processes of their own import this module again.
if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
