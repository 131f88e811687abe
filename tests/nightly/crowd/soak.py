"""Everything at once, for as long as asked: appenders, compactors, readers, other tools, and all that can go wrong.

python -m tests.nightly.crowd.soak --seconds 1800
"""

import json
import tempfile
import time
from collections import Counter
from functools import partial
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
from tests.nightly.crowd.appender import appending, record
from tests.nightly.crowd.catalogs import Kind, catalog, sql_only
from tests.nightly.crowd.child import Child, clean
from tests.nightly.crowd.compactor import Cleaned, Compactor, Work, compacting
from tests.nightly.crowd.reader import Seen, reading
from tests.nightly.crowd.workplace import Choice, Workplace
from tests.nightly.trials.checker import QUARANTINE, REMOVED_TOMBSTONES
from tests.nightly.trials.content import Branches, unsettled, wrong
from tests.nightly.trials.files import Files
from tests.nightly.trials.lines import Line
from tests.nightly.trials.records import Record
from tests.support.lakes import held, lost_files
from tests.support.topics import DAY, Topic

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
DEATH_SECONDS = 180.0
"""Between two deaths of a whole compactor; a new one takes half a minute until it cleans."""
APPEND_PAUSE_SECONDS = 5.0
"""Between two commits of an appender: with less, appenders and readers leave two cores no time to clean."""

console = Console(highlight=False, soft_wrap=True)


def main(
    seconds: Annotated[int, typer.Option(min=10, help="How long.")] = 1800,
    appenders: Annotated[int, typer.Option(min=1, help="Writers, each with a topic partition.")] = 4,
    compactors: Annotated[int, typer.Option(min=1, help="Processes that clean, and maintain with Spark.")] = 2,
    kind: Annotated[Kind, typer.Option("--catalog", help="Where the catalog is.", callback=sql_only)] = Kind.SQLITE,
    engine: Annotated[Choice, typer.Option(help="What Firn's tasks run in.")] = Choice.LOCAL,
    seed: Annotated[int, typer.Option(help="Of the records and the faults.")] = 1,
    report: Annotated[Path | None, typer.Option(help="A file for all figures, as JSON.")] = None,
) -> None:
    """Run all of it, stop, look whether what is left is right; exit code 1 if a rule was broken."""
    with tempfile.TemporaryDirectory() as folder, catalog(kind, Path(folder)) as lake:
        figures, violations = soak(lake, Path(folder), seconds, appenders, compactors, seed, engine)
    console.print(*violations, sep="\n")
    console.print_json(json.dumps(figures))
    if report:
        report.write_text(json.dumps(figures | {"violations": violations}, indent=1))
    raise typer.Exit(bool(violations))


def soak(
    lake: Lake, folder: Path, seconds: float, appenders: int, compactors: int, seed: int, choice: Choice
) -> tuple[dict[str, object], list[str]]:
    """Figures of what happened, and which rules were broken."""
    records.create(lake, TABLE, PROPERTIES)
    random = Random(seed)  # noqa: S311  # a seed is what it is for
    works = [Work(TABLE, seed + number, folder / "faults", faults=True, choice=choice) for number in range(compactors)]
    done = Cleaned()
    deaths = 0
    with (
        reading(lake) as one,
        reading(lake) as other,
        appending(lake, TABLE, range(appenders), seed, APPEND_PAUSE_SECONDS) as writers,
        compacting(lake, works) as crew,
    ):
        one.watch(TABLE)
        other.watch(TABLE)
        until = time.monotonic() + seconds
        death = time.monotonic() + DEATH_SECONDS
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
            news = [compactor.news() for compactor in crew]
            for one_of_them in news:
                done.add(one_of_them)
            # Not before it has come to anything: on a busy machine its start takes a while.
            busy = [place for place, found in enumerate(news) if found.ended and not crew[place].expires]
            if busy and time.monotonic() > death:
                deaths += _replace(crew, random.choice(busy))
                death = time.monotonic() + DEATH_SECONDS
            console.print(
                f"{max(0, left - LOOK_SECONDS):.0f} s left: {len(done.ended)} cleanings, {len(done.faults)} faults"
            )
        appended = writers.stop()
        for compactor in crew:
            done.add(compactor.stop())
        written = (record(seed, one.partition, offset) for one in appended for offset in range(one.log_end))
        line = Line(tuple(Record(one.partition, one.offset, one.key, one.value, one.timestamp_ms) for one in written))
        place = Workplace(partial(small_session, lake, "firn faults"), choice)
        place.prepare()
        topic = Topic(lake, place.engine(), TABLE, made=True)
        _settle(topic, place, done)
        seen = [one.stop(), other.stop()]
    violations = [*_of_cleanings(done), *_of_readers(seen), *_of_table(topic, line)]
    place.close()
    figures = _figures(done) | {
        "records": len(line.records),
        "appends": sum(writer.commits for writer in appended),
        "appends refused": sum(writer.refused for writer in appended),
        "compactors killed": deaths,
        "reads": sum(looks.views for looks, _ in seen),
        "violations": len(violations),
    }
    return figures, violations


def _replace(crew: list[Compactor], place: int) -> int:
    """A machine is lost, and another takes its place."""
    crew[place].kill()
    crew[place] = Compactor.start(crew[place].lake, crew[place].work)
    return 1


def _settle(topic: Topic, place: Workplace, done: Cleaned) -> None:
    """Cleanings without a fault, by a clock for which everything left behind is old."""
    for lanes, force in (((Lane.FULL,), True), (tuple(Lane), False)):
        now = clock.now_ms()
        work = partial(clean, topic.lake, topic.table, place.engine, now, lanes, ahead_ms=LATER, force=force)
        done.ended.append(Child.start(work).end())


def _of_cleanings(done: Cleaned) -> list[str]:
    crashed = [f"C26: {ended.crashed}" for ended in done.ended if ended.crashed]
    last = done.ended[-2:]
    return crashed + [f"C25: a run without a fault fails: {ended}" for ended in last if ended.failures or ended.refused]


def _of_readers(seen: list[Seen]) -> list[str]:
    return [problem for looks, errors in seen for problem in (*errors, *looks.violations())]


def _of_table(topic: Topic, line: Line) -> list[str]:
    table = topic.lake.table(TABLE)
    metadata, files = Files().document(table.metadata_location), Files()
    heads = [metadata["refs"].get(name, {}).get("snapshot-id") for name in ("main", QUARANTINE, REMOVED_TOMBSTONES)]
    seen = Branches(*(files.rows(metadata, head) for head in heads))
    found = [
        f"{what}: {details}" for what, details in (*wrong(line, seen, {}), *unsettled(line, seen, {}, clock.now_ms()))
    ]
    found += [f"{path} is gone, and a snapshot refers to it" for path in sorted(lost_files(table))]
    found += [f"C25: {name} is left" for name in stages_of(topic.lake, TABLE)]
    # Iceberg's expire_snapshots deletes what it knew before its commit: on a busy machine files come and go until then.
    # They were published, so maintenance deletes them. Others look for what was not before they maintain the table.
    maintain_table(topic.lake, TABLE, clock.now_ms() + LATER + DAY, remove=True)
    table = topic.lake.table(TABLE)
    known = {on_disk(path) for path in held(table)}
    own = files_under(on_disk(data_folder(table))) | files_under(on_disk(documents_folder(table)))
    return found + [f"C25: {path} is left" for path in sorted(own - known)]


def _figures(done: Cleaned) -> dict[str, object]:
    errors = Counter(error.partition(":")[0] for one in done.ended for error in [*one.failures, one.refused or ""])
    return {
        "cleanings": len(done.ended),
        "drivers killed": sum(one.killed for one in done.ended),
        "faults": len(done.faults),
        "kinds": dict(Counter(done.faults)),
        "publications": sum(one.publications for one in done.ended),
        "retries": sum(one.retries for one in done.ended),
        "errors": {kind: count for kind, count in errors.items() if kind},
        "other tools": dict(done.foreign),
    }


# Processes of their own import this module again.
if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
