"""Ten appenders as fast as the catalog lets them: alone, beside processes that burn the cores, beside compactors (C22).

Compactors take cores and commits from appenders. What burners take is the cores alone. What burners and a plain writer
take, who commits as often as the compactors did, is what any writer at that rate takes.

python -m tests.nightly.crowd.load --seconds 60
"""

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Annotated

import psutil
import typer
from pyiceberg.table.snapshots import Snapshot
from rich.console import Console

from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.table import records
from firnlake.table.summaries import CommitSummary
from firnlake.table.summaries import appended as of_others
from tests.nightly.crowd.appender import Appended, appending
from tests.nightly.crowd.catalogs import Kind, catalog
from tests.nightly.crowd.compactor import Cleaned, Compactor, Work, compacting
from tests.nightly.crowd.processes import forked
from tests.nightly.crowd.soak import PROPERTIES
from tests.nightly.crowd.workplace import Choice

console = Console(highlight=False, soft_wrap=True)
APPENDED, EMPTY = "append", "empty"
STARTED_WITHIN = 240  # seconds, in which every compactor has cleaned something


def main(
    seconds: Annotated[int, typer.Option(min=5, help="How long each part lasts.")] = 60,
    appenders: Annotated[int, typer.Option(min=1)] = 10,
    compactors: Annotated[int, typer.Option(min=1)] = 4,
    runs: Annotated[int, typer.Option(min=1, help="How often each part is measured, in turn.")] = 1,
    kind: Annotated[Kind, typer.Option("--catalog", help="Where the catalog is kept.")] = Kind.SQLITE,
    engine: Annotated[Choice, typer.Option(help="What Firn's tasks run in.")] = Choice.LOCAL,
) -> None:
    """Measure, and print the figures."""
    _tell("cores", os.cpu_count())
    with tempfile.TemporaryDirectory() as folder, catalog(kind, Path(folder)) as lake:
        for number in range(runs):
            run = f"load_{number}"
            _tell("alone", _appended(lake, f"{run}.alone", seconds, appenders))
            with _burning(compactors) as burners:
                _tell("beside burners", _appended(lake, f"{run}.burners", seconds, appenders, burners))
            place = Path(folder) / run
            beside, rate = _beside(lake, f"{run}.beside", seconds, appenders, compactors, place, engine)
            _tell("beside compactors", beside)
            if rate:
                with _burning(compactors) as burners:
                    same = _appended(lake, f"{run}.writer", seconds, appenders, burners, rate)
                _tell("beside burners and a writer", same)


def _tell(part: str, figures: object) -> None:
    """Print the figures of a part as it ends."""
    console.print_json(json.dumps({part: figures}))


def _appended(
    lake: Lake,
    table: str,
    seconds: int,
    appenders: int,
    beside: Sequence[psutil.Process] = (),
    rate: float = 0,
) -> dict[str, object]:
    """Figures of appenders beside those processes, and beside one more who commits ``rate`` times a second."""
    lake.create_namespace(table.partition(".")[0])
    records.create(lake, table, PROPERTIES)
    others = range(appenders, appenders + (rate > 0))
    with (
        appending(lake, table, range(appenders), seed=1) as writers,
        appending(lake, table, others, seed=1, pause_seconds=1 / rate if rate else 0) as writer,
    ):
        writers.count()
        writer.count()
        counted = _Counted(lake, table, beside)
        time.sleep(seconds)
        counted.end()
        appended = writers.stop()
        own = sum(one.commits for one in writer.stop())
        return _of_appenders(appended) | counted.figures() | ({"commits of the writer": own} if rate else {})


class _Counted:
    """Commits to a table from now on, and cores that some processes take with their children."""

    def __init__(self, lake: Lake, table: str, processes: Sequence[psutil.Process]) -> None:
        self._lake, self._table, self._processes = lake, table, processes
        self._before = {snapshot.snapshot_id for snapshot in lake.table(table).metadata.snapshots}
        self._spent, self._began = self._seconds(), time.monotonic()

    def end(self) -> None:
        """Count no longer."""
        self._cores = (self._seconds() - self._spent) / (time.monotonic() - self._began)
        table = self._lake.table(self._table)
        self._snapshots = len(table.metadata.snapshots)
        fresh = [snapshot for snapshot in ancestors(table) if snapshot.snapshot_id not in self._before]
        self._kinds = Counter(_kind(snapshot) for snapshot in fresh)

    @property
    def by_firn(self) -> int:
        """Number of Firn's commits."""
        return self._kinds.total() - self._kinds[APPENDED]

    def figures(self) -> dict[str, object]:
        return {
            "commits of each kind": dict(self._kinds.most_common()),
            "snapshots at last": self._snapshots,
            "cores taken by others": round(self._cores, 2),
        }

    def _seconds(self) -> float:
        """Seconds of all cores that the processes and their children have taken so far."""
        spent = 0.0
        for process in self._processes:
            # A child that has ended counts among its parent's.
            with suppress(psutil.NoSuchProcess):
                for one in (process, *process.children(recursive=True)):
                    with suppress(psutil.NoSuchProcess):
                        times = one.cpu_times()
                        spent += times.user + times.system + times.children_user + times.children_system
        return spent


def _kind(snapshot: Snapshot) -> str:
    """Kind of a snapshot of main: an append, or Firn's, of a lane or to fence off a deletion."""
    own = CommitSummary.of(snapshot)
    if own:
        return own.lane
    added = of_others(snapshot)
    return APPENDED if added and added.records else EMPTY


@contextmanager
def _burning(processes: int) -> Iterator[list[psutil.Process]]:
    """Processes that do nothing but take a core each, as far as there are so many."""
    context = forked()
    burners = [context.Process(target=_burn, daemon=True) for _ in range(processes)]
    for burner in burners:
        burner.start()
    try:
        yield [psutil.Process(burner.pid) for burner in burners]
    finally:
        for burner in burners:
            burner.kill()
            burner.join()


def _burn() -> None:
    while True:
        sum(range(1_000_000))


def _beside(
    lake: Lake, table: str, seconds: int, appenders: int, compactors: int, folder: Path, choice: Choice
) -> tuple[dict[str, object], float]:
    """Figures of appenders beside compactors, and the number of commits a second of the latter."""
    lake.create_namespace(table.partition(".")[0])
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
            counted = _Counted(lake, table, [compactor.process for compactor in crew])
            time.sleep(seconds)
            writers.enough()
            counted.end()
            # Appenders go on until the last cleaning is published: none has the table to itself.
            for compactor in crew:
                done.add(compactor.stop())
            appended = writers.stop()
    published = [one for ended in done.ended for one in ended.publishing]
    return _of_appenders(appended) | counted.figures() | {
        "tries": _spread([tries for tries, _ in published]),
        "seconds to publish": _spread([spent for _, spent in published]),
        "plans failed": sum(len(ended.failures) for ended in done.ended),
    }, counted.by_firn / seconds


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
