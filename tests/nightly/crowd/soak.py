"""Everything at once, for as long as asked: appenders, compactors, readers, other tools, and all that can go wrong.

python -m tests.nightly.crowd.soak --seconds 1800
"""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from firnlake import clock
from firnlake.door import OpenCatalog
from firnlake.iceberg.catalog import EMBEDDED_NAME, Lake
from firnlake.iceberg.files import name_of
from firnlake.job.stage import Stage
from infra.foreign.files import files_under, on_disk
from infra.foreign.session import small_session
from infra.stack.stack import SQL, Stack
from tests.nightly.crowd.actors import Appended, Cleaning, Compactor, Looks, append, compacting, look, record, working
from tests.nightly.trials.checker import QUARANTINE, REMOVED_TOMBSTONES
from tests.nightly.trials.files import Files
from tests.nightly.trials.model import Branches, Line, unsettled, wrong
from tests.support.records import DAY

TABLE = "faults.soak"
PROPERTIES = {
    "firn.merge.segments": "12",
    "firn.clean.segments": "3",
    "firn.min.dirty.bytes": "0",
    "firn.delete.retention.ms": "20000",
    # Longer than a cleaning takes on a busy machine: what is written after its stage is gone, `firn maintain` deletes.
    "firn.job.max.age.ms": "300000",
    # What loads a table beside a busy writer that does this has to be quick, or try again.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
LATER = 4 * DAY
"""When everything that a dead process left is dead."""
APPENDERS, COMPACTORS, READERS = 4, 2, 2
SEED = 1
"""Of the records and the faults."""


class Kind(StrEnum):
    """The store of the catalog."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


def main(
    seconds: Annotated[int, typer.Option(min=10, help="How long.")] = 1800,
    kind: Annotated[Kind, typer.Option("--catalog", help="Where the catalog is.")] = Kind.SQLITE,
) -> None:
    """Run all of it, stop, look whether what is left is right; exit code 1 if a rule was broken."""
    with tempfile.TemporaryDirectory() as folder, _catalog(kind, Path(folder)) as lake:
        violations = _soak(lake, seconds)
    print(*violations, f"{len(violations)} violations", sep="\n")
    raise typer.Exit(bool(violations))


@contextmanager
def _catalog(kind: Kind, folder: Path) -> Iterator[Lake]:
    """A lake whose catalog is of that kind; it goes with ``folder``, where its warehouse is."""
    if kind is Kind.SQLITE:
        yield Lake.embedded(folder / "lake")
        return
    stack = Stack.of(folder / "postgres")
    try:
        stack.start_postgres()
        uri = stack.settings.catalogs()[SQL]["uri"]
        properties = {"type": "sql", "uri": uri, "warehouse": f"file://{folder / 'warehouse'}"}
        yield Lake(EMBEDDED_NAME, properties, folder / "home")
    finally:
        stack.down()
        stack.remove()


def _soak(lake: Lake, seconds: float) -> list[str]:
    """The rules that were broken."""
    OpenCatalog(lake).table(TABLE).create(PROPERTIES)
    spark = small_session(lake, "firn soak")
    randoms = [Random(f"{SEED} {number}") for number in range(COMPACTORS)]  # noqa: S311  # a seed is what it is for
    crew = [Compactor(lake, TABLE, spark, random) for random in randoms]
    with working(look, [(replace(lake), TABLE)] * READERS) as readers:
        writing = [(replace(lake), TABLE, partition, SEED) for partition in range(APPENDERS)]
        with working(append, writing) as writers, compacting(crew):
            time.sleep(seconds)
            appended = writers()
        # Cleanings without a fault, by a clock for which everything left behind is old.
        last = [
            Cleaning(lake, TABLE, ("full",), force=True, ahead_ms=LATER).driven(),
            Cleaning(lake, TABLE, ahead_ms=LATER).driven(),
        ]
        looks = readers()
    spark.stop()
    _tell(crew, appended, looks)
    ended = [one for compactor in crew for one in compactor.ended]
    violations = [f"C26: {one.crashed}" for one in (*ended, *last) if one.crashed]
    violations += [f"C25: a run without a fault fails: {one}" for one in last if one.failures]
    violations += [problem for one in looks for problem in one.violations]
    written = (record(SEED, one.partition, offset) for one in appended for offset in range(one.log_end))
    return violations + _of_table(lake, Line(tuple(written)))


def _of_table(lake: Lake, line: Line) -> list[str]:
    pointer, files = lake.table(TABLE).metadata_location, Files()
    metadata = files.document(pointer)
    seen = Branches(*(files.on(metadata, branch) for branch in ("main", QUARANTINE, REMOVED_TOMBSTONES)))
    found = [
        f"{what}: {details}" for what, details in (*wrong(line, seen, {}), *unsettled(line, seen, {}, clock.now_ms()))
    ]
    found += [f"{path} is gone, and a snapshot refers to it" for path in files.gone(pointer)]
    # What was written while another process deleted the job has no plans, and goes by its age, below.
    left = [one for one in Stage.every(lake.table(TABLE)) if one.readable_plans]
    found += [
        f"C25: {stage.identifier} is left: {sorted(name_of(one.path) for one in stage.found.values())}"
        for stage in left
    ]
    # Iceberg's expire_snapshots deletes what it knew before its commit: on a busy machine files come and go until then.
    # Others look for what was not published before they maintain the table.
    lake.set_properties(TABLE, {"firn.maintenance": "manifests,snapshots,orphans"})
    for path in files_under(on_disk(lake.table(TABLE).location())):
        moment = path.stat().st_mtime_ns - LATER * 1_000_000
        os.utime(path, ns=(moment, moment))
    for _ in range(2):
        OpenCatalog(lake, lambda: clock.now_ms() + LATER).table(TABLE).maintain()
    unreached = Files().unreached(lake.table(TABLE).metadata_location)
    return found + [f"C25: {path} is left" for path in unreached if "/data/" in path or "/_firn/" in path]


def _tell(crew: Sequence[Compactor], appended: Sequence[Appended], looks: Sequence[Looks]) -> None:
    ended = [one for compactor in crew for one in compactor.ended]
    print(
        f"{len(ended)} cleanings, {sum(one.publications for one in ended)} publications of plans, "
        f"{sum(one.killed for one in ended)} compactors killed, {sum(one.commits for one in appended)} appends "
        f"({sum(one.refused for one in appended)} refused), {sum(one.log_end for one in appended)} records, "
        f"{sum(one.views for one in looks)} reads",
        "faults: " + _counted(fault for one in crew for fault in one.faults),
        "errors: " + _counted(error.partition(":")[0] for one in ended for error in one.failures),
        "other tools: " + _counted(name for one in crew for name in one.foreign),
        sep="\n",
    )


def _counted(names: Iterator[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(names).most_common()) or "none"


# Processes of their own import this module again.
if __name__ == "__main__":
    typer.run(main)
