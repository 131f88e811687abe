"""Maintain a table with a long history, beside Iceberg's own procedures in Spark.

A table of 1,000 snapshots and 100,000 files is maintained by ``firn maintain``, a process from the command line to
its end. An identical one gets expire_snapshots, remove_orphan_files and rewrite_manifests of Iceberg's Spark runtime in
a session that is up already, with the limits that Firn has by default. Both must leave the same files.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyiceberg.table.snapshots import Operation

from firnlake import clock
from firnlake.iceberg.catalog import Lake
from infra.bench import history
from infra.bench.inputs import Bench
from infra.bench.measure import Figures, Measured, Share, WrongOutputError, in_turns, measured
from infra.bench.results import Case
from infra.bench.whole import firn
from infra.foreign.files import files_under, on_disk

FIRN, SPARK = "bench.maintained", "bench.maintained_by_spark"
SNAPSHOTS: Final = 1_000
FILES: Final = 100_000
"""At SCALE=1."""


@dataclass(frozen=True)
class Left:
    """The remains of a table after its maintenance: data files by their paths below the table's location."""

    snapshots: int
    """Those that others took."""
    live: frozenset[str]
    files: frozenset[str]
    """On the store."""


def cases(bench: Bench) -> Iterator[Case]:
    """One case; the procedures together are an entry, too."""
    snapshots, files = int(SNAPSHOTS * bench.scale), int(FILES * bench.scale)
    for name in (SPARK, FIRN):
        history.create(bench.lake, name, snapshots, files, clock.now_ms())
    bench.sql("SELECT 1")
    limits = {
        "expire_snapshots": {"older_than": _before(5 * history.DAY_MS), "retain_last": "1"},
        "remove_orphan_files": {"older_than": _before(3 * history.DAY_MS)},
        "rewrite_manifests": {"use_caching": "false"},
    }
    procedures = in_turns({name: partial(_called, bench, name, **given) for name, given in limits.items()}, 1)
    together: Figures = {"seconds": sum(one.figures["seconds"] for one in procedures)}
    ours = in_turns({"firn maintain": partial(_maintained, bench)}, 1)
    title = f"{snapshots:,} snapshots, {files:,} files"
    yield Case("maintain", title, {}, [*ours, *procedures, Measured.of("all three procedures", [together])])


def _called(bench: Bench, procedure: str, **arguments: str) -> Figures:
    with measured(Share.SPARK) as figures:
        bench.call(procedure, SPARK, **arguments)
    return figures


def _maintained(bench: Bench) -> Figures:
    with measured(Share.OWN) as figures:
        firn(bench.lake, "maintain", FIRN, cores=bench.cores)
    ours, theirs = _left(bench.lake, FIRN), _left(bench.lake, SPARK)
    if ours != theirs:
        raise WrongOutputError(f"left other files than the procedures: {len(ours.files)}, not {len(theirs.files)}")
    return figures


def _before(age_ms: int) -> str:
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime((clock.now_ms() - age_ms) / 1000))
    return f"TIMESTAMP '{text}'"


def _left(lake: Lake, identifier: str) -> Left:
    table = lake.table(identifier)
    snapshot = table.current_snapshot()
    root = on_disk(table.location())
    live = {
        str(on_disk(entry.data_file.file_path).relative_to(root))
        for one in (snapshot.manifests(table.io) if snapshot else [])
        for entry in one.fetch_manifest_entry(table.io)
    }
    files = {str(path.relative_to(root)) for path in files_under(root / "data")}
    # Each may have added one: of the same files under other manifests.
    summaries = [one.summary for one in table.metadata.snapshots if one.summary]
    taken = [one for one in summaries if one.operation is not Operation.REPLACE and not one["firn.fence"]]
    return Left(len(taken), frozenset(live), frozenset(files))
