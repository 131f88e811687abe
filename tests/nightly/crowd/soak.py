"""Everything at once, for as long as asked: appenders, compactors, readers, other tools, and all that can go wrong.

python -m tests.nightly.crowd.soak --seconds 1800
"""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from rich.console import Console

from firnlake import clock
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import data_folder
from firnlake.job.documents import documents_folder
from firnlake.job.lane import Lane
from firnlake.job.stage import stages_of
from firnlake.maintain.maintain import maintain_table
from firnlake.table import records
from infra.foreign.files import files_under, on_disk
from infra.foreign.session import small_session
from tests.nightly.crowd.appender import append, record
from tests.nightly.crowd.catalogs import Kind, catalog
from tests.nightly.crowd.compactor import Cleaning, Compactor, Ended, compacting
from tests.nightly.crowd.processes import working
from tests.nightly.crowd.reader import look
from tests.nightly.trials.checker import QUARANTINE, REMOVED_TOMBSTONES
from tests.nightly.trials.content import Branches, unsettled, wrong
from tests.nightly.trials.files import Files
from tests.nightly.trials.lines import Line
from tests.nightly.trials.records import Record
from tests.support.lakes import held, lost_files
from tests.support.topics import DAY

TABLE = "faults.soak"
PROPERTIES = {
    "firn.merge.segments": "12",
    "firn.clean.segments": "3",
    "firn.delete.retention.ms": "20000",
    # Longer than a cleaning takes on a busy machine: what is written after its stage is gone, `firn maintain` deletes.
    "firn.job.max.age.ms": "300000",
    # What loads a table beside a busy writer that does this has to be quick, or try again.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
LATER = 3 * DAY
"""By a clock so far ahead everything that a dead process left is dead."""
LOOK_SECONDS = 30.0
"""Between two lines about how it goes."""
READERS = 2

console = Console(highlight=False, soft_wrap=True)


def main(
    seconds: Annotated[int, typer.Option(min=10, help="How long.")] = 1800,
    appenders: Annotated[int, typer.Option(min=1, help="Writers, each with a topic partition.")] = 4,
    compactors: Annotated[int, typer.Option(min=1, help="Processes that clean, and maintain with Spark.")] = 2,
    kind: Annotated[Kind, typer.Option("--catalog", help="Where the catalog is.")] = Kind.SQLITE,
    seed: Annotated[int, typer.Option(help="Of the records and the faults.")] = 1,
) -> None:
    """Run all of it, stop, look whether what is left is right; exit code 1 if a rule was broken."""
    with tempfile.TemporaryDirectory() as folder, catalog(kind, Path(folder)) as lake:
        figures, violations = soak(lake, seconds, appenders, compactors, seed)
    console.print(*violations, sep="\n")
    console.print_json(json.dumps(figures))
    raise typer.Exit(bool(violations))


def soak(lake: Lake, seconds: float, appenders: int, compactors: int, seed: int) -> tuple[dict[str, object], list[str]]:
    """Figures of what happened, and which rules were broken."""
    records.create(lake, TABLE, PROPERTIES)
    spark = small_session(lake, "firn soak")
    randoms = [Random(f"{seed} {number}") for number in range(compactors)]  # noqa: S311  # a seed is what it is for
    crew = [Compactor(lake, TABLE, spark, random) for random in randoms]
    with working(look, [(replace(lake), TABLE)] * READERS) as readers:
        writing = [(replace(lake), TABLE, partition, seed) for partition in range(appenders)]
        with working(append, writing) as writers, compacting(crew):
            _wait(seconds, crew)
            appended = writers()
        last = list(_settled(lake))
        looks = readers()
    spark.stop()
    written = (record(seed, one.partition, offset) for one in appended for offset in range(one.log_end))
    line = Line(tuple(Record(one.partition, one.offset, one.key, one.value, one.timestamp_ms) for one in written))
    ended = [one for compactor in crew for one in compactor.ended]
    violations = [f"C26: {one.crashed}" for one in (*ended, *last) if one.crashed]
    violations += [f"C25: a run without a fault fails: {one}" for one in last if one.failures or one.refused]
    violations += [problem for one in looks for problem in one.violations]
    violations += _of_table(lake, line)
    figures = _figures(crew, [*ended, *last]) | {
        "records": len(line.records),
        "appends": sum(writer.commits for writer in appended),
        "appends refused": sum(writer.refused for writer in appended),
        "reads": sum(one.views for one in looks),
        "violations": len(violations),
    }
    return figures, violations


def _wait(seconds: float, crew: Sequence[Compactor]) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, LOOK_SECONDS))
        cleanings, faults = sum(len(one.ended) for one in crew), sum(len(one.faults) for one in crew)
        console.print(f"{max(0, left - LOOK_SECONDS):.0f} s left: {cleanings} cleanings, {faults} faults")


def _settled(lake: Lake) -> Iterator[Ended]:
    """Cleanings without a fault, by a clock for which everything left behind is old."""
    yield Cleaning(lake, TABLE, (Lane.FULL,), force=True, ahead_ms=LATER).driven()
    yield Cleaning(lake, TABLE, ahead_ms=LATER).driven()


def _of_table(lake: Lake, line: Line) -> list[str]:
    table = lake.table(TABLE)
    metadata, files = Files().document(table.metadata_location), Files()
    heads = [metadata["refs"].get(name, {}).get("snapshot-id") for name in ("main", QUARANTINE, REMOVED_TOMBSTONES)]
    seen = Branches(*(files.rows(metadata, head) for head in heads))
    found = [
        f"{what}: {details}" for what, details in (*wrong(line, seen, {}), *unsettled(line, seen, {}, clock.now_ms()))
    ]
    found += [f"{path} is gone, and a snapshot refers to it" for path in sorted(lost_files(table))]
    found += [f"C25: {name} is left" for name in stages_of(lake, TABLE)]
    # Iceberg's expire_snapshots deletes what it knew before its commit: on a busy machine files come and go until then.
    # They were published, so maintenance deletes them. Others look for what was not before they maintain the table.
    maintain_table(lake, TABLE, clock.now_ms() + LATER + DAY, remove=True)
    table = lake.table(TABLE)
    known = {on_disk(path) for path in held(table)}
    own = files_under(on_disk(data_folder(table))) | files_under(on_disk(documents_folder(table)))
    return found + [f"C25: {path} is left" for path in sorted(own - known)]


def _figures(crew: Sequence[Compactor], ended: Sequence[Ended]) -> dict[str, object]:
    errors = Counter(error.partition(":")[0] for one in ended for error in (*one.failures, one.refused) if error)
    faults = Counter(fault for one in crew for fault in one.faults)
    return {
        "cleanings": len(ended),
        "drivers killed": sum(one.killed for one in ended),
        "faults": faults.total(),
        "kinds": dict(faults),
        "publications": sum(one.publications for one in ended),
        "retries": sum(one.retries for one in ended),
        "errors": dict(errors),
        "other tools": dict(Counter(name for one in crew for name in one.foreign)),
    }


# Processes of their own import this module again.
if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
