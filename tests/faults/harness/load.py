"""Ten appenders as fast as the catalog lets them: alone, beside processes that burn the cores, beside compactors (C22).

Compactors take cores and commits from appenders. What the burners take is the cores alone; the rest is the commits.

python -m tests.faults.harness.load --seconds 60
"""

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console

from pipeline.lake import Lake, records
from tests.faults.harness.appender import Appended, appending
from tests.faults.harness.catalogs import Kind, catalog
from tests.faults.harness.compactor import Cleaned, Compactor, Work, compacting
from tests.faults.harness.soak import PROPERTIES
from tests.faults.harness.workplace import Choice

console = Console(highlight=False, soft_wrap=True)
STARTED_WITHIN = 240  # seconds, in which every compactor has cleaned something


def main(
    seconds: Annotated[int, typer.Option(min=5, help="How long each part lasts.")] = 60,
    appenders: Annotated[int, typer.Option(min=1)] = 10,
    compactors: Annotated[int, typer.Option(min=1)] = 4,
    kind: Annotated[Kind, typer.Option("--catalog", help="Where the catalog is kept.")] = Kind.SQLITE,
    engine: Annotated[Choice, typer.Option(help="What Firn's tasks run in.")] = Choice.LOCAL,
) -> None:
    """Measure, and print the figures."""
    _tell("cores", os.cpu_count())
    with tempfile.TemporaryDirectory() as folder, catalog(kind, Path(folder)) as lake:
        _tell("alone", _appended(lake, "load.alone", seconds, appenders))
        with _burning(compactors):
            _tell("beside burners", _appended(lake, "load.burners", seconds, appenders))
        _tell("beside compactors", _beside(lake, seconds, appenders, compactors, Path(folder), engine))


def _tell(part: str, figures: object) -> None:
    """Print the figures of a part as it ends."""
    console.print_json(json.dumps({part: figures}))


def _appended(lake: Lake, table: str, seconds: int, appenders: int) -> dict[str, object]:
    records.create(lake, table, PROPERTIES)
    with appending(lake, table, range(appenders), seed=1) as writers:
        writers.count()
        time.sleep(seconds)
        appended = writers.stop()
    return _of_appenders(appended)


@contextmanager
def _burning(processes: int) -> Iterator[None]:
    """Processes that do nothing but take a core each, as far as there are so many."""
    context = multiprocessing.get_context("spawn")
    burners = [context.Process(target=_burn, daemon=True) for _ in range(processes)]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.join()


def _burn() -> None:
    while True:
        sum(range(1_000_000))


def _beside(
    lake: Lake, seconds: int, appenders: int, compactors: int, folder: Path, choice: Choice
) -> dict[str, object]:
    table = "load.beside"
    records.create(lake, table, PROPERTIES)
    works = [
        Work(table, number, folder / "faults", range(number, appenders, compactors), choice=choice)
        for number in range(compactors)
    ]
    done = Cleaned()
    with appending(lake, table, range(appenders), seed=1) as first:
        first.count()  # each topic partition has to be there before a compactor is asked for it
        first.stop()
    with compacting(lake, works) as crew:
        # Alone: beside busy appenders the start of four processes takes two cores minutes.
        _wait_for_all(crew)
        with appending(lake, table, range(appenders), seed=1) as writers:
            writers.count()
            time.sleep(seconds)
            # Appenders go on until the last cleaning is published: none has the table to itself.
            for compactor in crew:
                done.add(compactor.stop())
            appended = writers.stop()
    published = [one for ended in done.ended for one in ended.publishing]
    return _of_appenders(appended) | {
        "publishing commits": len(published),
        "tries": _spread([tries for tries, _ in published]),
        "seconds to publish": _spread([spent for _, spent in published]),
        "plans failed": sum(len(ended.failures) for ended in done.ended),
    }


def _wait_for_all(crew: Sequence[Compactor]) -> None:
    """Until each has cleaned something: it has started, and has loaded what it needs."""
    waiting, until = set(range(len(crew))), time.monotonic() + STARTED_WITHIN
    while waiting:
        if time.monotonic() > until:
            raise SystemExit(f"compactors {waiting} have not cleaned anything within {STARTED_WITHIN} s")
        time.sleep(1)
        waiting -= {number for number in waiting if crew[number].news().ended}


def _of_appenders(appended: Sequence[Appended]) -> dict[str, object]:
    commits, refused = sum(one.commits for one in appended), sum(one.refused for one in appended)
    return {
        "commits a second": round(sum(one.commits / one.seconds for one in appended), 2),
        "commits": commits,
        "appends refused": refused,
        "refused, of all": round(refused / (commits + refused), 2),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": round(median(values), 2), "most": round(max(values), 2)} if values else {}


# Processes of their own import this module again.
if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
