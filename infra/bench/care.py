"""Care for a table with a long history, beside Iceberg's own procedures in Spark: ``python -m infra.bench.care``.

A table of 10,000 snapshots and 1,000,000 files is cared for by ``firn care``, a process of its own from the command
line to its end. An identical one gets expire_snapshots, remove_orphan_files and rewrite_manifests of Iceberg's Spark
runtime in a session that is up already. Both must leave the same files. Prints a table, and JSON with ``--json FILE``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyiceberg.table.snapshots import Operation

from infra.bench import history
from infra.bench.resources import Share, watched
from infra.environment import CHECKOUT, environment
from infra.foreign.files import files_under, on_disk
from infra.foreign.session import iceberg_session
from pipeline import clock
from pipeline.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRN, SPARK = "bench.firn", "bench.spark"
GOAL: Final = 0.5
"""Of the seconds of all three procedures together."""
MIB: Final = 1 << 20


@dataclass(frozen=True)
class Figures:
    """Cost of one piece of work: wall seconds, and the largest resident sizes in bytes."""

    seconds: float
    peak: int
    peak_jvm: int


@dataclass(frozen=True)
class Left:
    """The remains of a table after its care."""

    snapshots: int
    """Those that others took."""
    manifests: int
    live: frozenset[str]
    """Paths of main's data files below the table's location."""
    files: frozenset[str]
    """Data files on the store, likewise."""


def main(arguments: Sequence[str]) -> int:
    """Measure both and compare; exit code 1 when they left different files."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.care", description=__doc__)
    parser.add_argument("--snapshots", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--home", type=Path, help="where the tables lie meanwhile; default: a temporary folder")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="firn-bench-", dir=given.home) as folder:
        lake = Lake.embedded(Path(folder))
        for name in (FIRN, SPARK):
            history.create(lake, name, given.snapshots, given.files, clock.now_ms())
        results = {"firn care": _firn(lake), **_spark(lake)}
        ours, theirs = _left(lake, FIRN), _left(lake, SPARK)
    together = sum(figures.seconds for name, figures in results.items() if name not in ("firn care", "Spark session"))
    ratio = results["firn care"].seconds / together
    same = (ours.snapshots, ours.live, ours.files) == (theirs.snapshots, theirs.live, theirs.files)
    print(f"{given.snapshots:,} snapshots, {given.files:,} files on {os.cpu_count()} cores")
    print(f"{'':32}{'seconds':>9}{'peak MiB':>10}{'of JVM':>10}")
    for name, figures in results.items():
        print(f"{name:32}{figures.seconds:9.1f}{figures.peak / MIB:10.0f}{figures.peak_jvm / MIB:10.0f}")
    print(f"{ratio:.2f} of the three procedures together ({together:.1f} s); goal: at most {GOAL}")
    for name, left in ((FIRN, ours), (SPARK, theirs)):
        print(f"{name}: {left.snapshots} snapshots, {left.manifests} manifests, {len(left.files)} data files left")
    if not same:
        print("WRONG: they left different files")
    if given.json:
        measured = {name: asdict(figures) for name, figures in results.items()}
        given.json.write_text(json.dumps(measured | {"ratio": ratio, "same": same}, indent=1), encoding="utf-8")
    return 0 if same else 1


def _firn(lake: Lake) -> Figures:
    command = [sys.executable, "-m", "pipeline", "care", FIRN]
    with _measured(Share.OWN) as figures:
        ended = subprocess.run(
            command, env=environment(lake), cwd=CHECKOUT, capture_output=True, text=True, check=False
        )
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return figures[0]


def _spark(lake: Lake) -> dict[str, Figures]:
    """Iceberg's procedures one after the other, each with the limits that Firn has by default."""
    results = {}
    with _measured(Share.SPARK) as figures:
        spark = iceberg_session(lake, "firn bench care", {"spark.master": f"local[{os.cpu_count()}]"})
        spark.sql("SELECT 1").collect()
    results["Spark session"] = figures[0]
    limits = {
        "expire_snapshots": f"older_than => {_timestamp(5 * history.DAY_MS)}, retain_last => 1",
        "remove_orphan_files": f"older_than => {_timestamp(3 * history.DAY_MS)}",
        "rewrite_manifests": "use_caching => false",
    }
    for name, arguments in limits.items():
        with _measured(Share.SPARK) as figures:
            _call(spark, f"CALL {lake.name}.system.{name}(table => '{SPARK}', {arguments})")
        results[name] = figures[0]
    spark.stop()
    return results


def _call(spark: "SparkSession", statement: str) -> None:
    spark.sql(statement).collect()


def _timestamp(age_ms: int) -> str:
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime((clock.now_ms() - age_ms) / 1000))
    return f"TIMESTAMP '{text}'"


@contextmanager
def _measured(share: Share) -> Iterator[list[Figures]]:
    """The figures of the block, once it is over."""
    figures: list[Figures] = []
    started = time.monotonic()
    with watched(share) as peak:
        yield figures
    figures.append(Figures(time.monotonic() - started, peak.others, peak.jvm))


def _left(lake: Lake, identifier: str) -> Left:
    table = lake.table(identifier)
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    root = on_disk(table.location())
    live = {
        str(on_disk(entry.data_file.file_path).relative_to(root))
        for one in manifests
        for entry in one.fetch_manifest_entry(table.io)
    }
    files = {str(path.relative_to(root)) for path in files_under(root / "data")}
    # Each may have added one: of the same files under other manifests.
    summaries = [one.summary for one in table.metadata.snapshots if one.summary]
    taken = [one for one in summaries if one.operation is not Operation.REPLACE and not one["firn.fence"]]
    return Left(len(taken), len(manifests), frozenset(live), frozenset(files))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
