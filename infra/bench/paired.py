"""``make bench BASE=<commit>``: this checkout beside that commit, in turns, through the ``firn`` command alone.

    python -m infra.bench.paired COMMIT [--only FAMILY,…] [--pairs 5] [--scale 1.0] [--home .firn/paired]

The commit gets a worktree with an environment of its own. Both sides land the same files into a lake of their own, and
each measured run starts from a copy of that lake at the same path. Nothing of the product is imported, so what is
measured may be renamed in between. Prints the median of the ratios this / base of the pairs, with their range, for CPU
seconds and wall time. Exit code 1 when a run fails, or when the two sides leave different records visible.
"""

import argparse
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable
from rich.console import Console

from infra.bench.measure import processor_seconds
from infra.demo.segments import SCHEMA

ROOT = Path(__file__).parents[2]
TABLE = "bench.paired"
NOW = "2026-01-02T00:00:00Z"
FIRST_MS = 1_767_225_600_000  # a day before NOW
BASE_RECORDS = 200_000
VALUE_BYTES = 1000
KEYS_PER_RECORD = 0.5
console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)


@dataclass(frozen=True)
class Family:
    """A kind of work: what lies there, and the ``firn run`` that is measured on it."""

    name: str
    tail: int
    """Records that are cleaned beforehand."""
    head: int
    """Records that are landed after that."""
    files: int
    """Number of files in which they are landed, in one commit."""
    lane: str
    engine: str


@dataclass(frozen=True)
class Side:
    """A checkout with an environment of its own."""

    name: str
    checkout: Path

    def firn(self, home: Path, *arguments: str, engine: str = "local") -> tuple[float, float]:
        """Run the command; CPU and wall seconds. Raises RuntimeError with its output when it fails."""
        before, started = processor_seconds(), time.monotonic()
        ended = subprocess.run(
            [str(self.checkout / ".venv" / "bin" / "firn"), *arguments],
            env=self._environment(home, engine),
            cwd=home.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            said = f"{ended.stdout}{ended.stderr}"
            raise RuntimeError(f"{self.name}: firn {' '.join(arguments)} ended with {ended.returncode}:\n{said}")
        return processor_seconds() - before, time.monotonic() - started

    def _environment(self, home: Path, engine: str) -> dict[str, str]:
        inherited = {name: value.replace(str(ROOT), str(self.checkout)) for name, value in os.environ.items()}
        for name in ("FIRN_JARS", "SPARK_DIST_CLASSPATH"):
            inherited.pop(name, None)
        return inherited | {"FIRN_HOME": str(home), "FIRN_ENGINE": engine, "HOME": str(home.parent)}


def families(scale: float) -> list[Family]:
    """All that can be measured, at ``scale``."""
    records = int(BASE_RECORDS * scale)
    small = records // 8
    return [
        Family("base", records, records, 8, "full", "local"),
        Family("head", 0, records, 32, "merge", "local"),
        Family("processes local", small, small, 200, "full", "local"),
        Family("processes spark", small, small, 200, "full", "spark"),
        Family("fixed cost", 100, 100, 2, "full", "local"),
    ]


def main() -> int:
    """Entry point; see --help."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.paired", description=__doc__)
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--only", default="", help="families whose name holds one of these texts, separated by commas")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="1.0: 200,000 records of 1 KB in tail and head")
    parser.add_argument("--home", type=Path, default=Path(".firn", "paired"))
    arguments = parser.parse_args()
    every = families(arguments.scale)
    chosen = [family for family in every if any(text in family.name for text in arguments.only.split(","))]
    if not chosen:
        names = ", ".join(family.name for family in every)
        raise SystemExit(f"no family holds {arguments.only!r}; allowed: a part of one of {names}")
    home: Path = arguments.home.resolve()
    sides = (Side("this", ROOT), Side("base", _worktree(arguments.commit, home)))
    console.print(f"{'family':<18}{'CPU: this / base':>28}{'wall: this / base':>28}{'CPU s':>16}{'wall s':>16}")
    try:
        for family in chosen:
            _print(family, _measured(family, sides, arguments.pairs, home / "lakes"))
    finally:
        shutil.rmtree(home / "lakes", ignore_errors=True)
    return 0


def _worktree(commit: str, home: Path) -> Path:
    """A worktree of the commit with its environment set up; kept for the next time."""
    asked = ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
    named = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    if named.returncode:
        raise SystemExit(f"BASE={commit} is no commit of this repository; allowed: a branch, a tag or a hash")
    checkout = home / named.stdout.strip()
    if not checkout.exists():
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", checkout, commit], cwd=ROOT, check=True)
    # Its make decides by itself: what this one exports would point into this checkout.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "FIRN_", "MAKE"))}
    subprocess.run(["make", "--silent", "setup"], cwd=checkout, env=clean, check=True, stdout=sys.stderr)
    return checkout


def _measured(family: Family, sides: Sequence[Side], pairs: int, folder: Path) -> list[list[tuple[float, float]]]:
    """CPU and wall seconds of every run, by side."""
    shutil.rmtree(folder, ignore_errors=True)
    landed = list(_landed(family, folder / "landing"))
    for side in sides:
        _prepare(side, folder, landed)
    seconds: list[list[tuple[float, float]]] = [[] for _ in sides]
    for number in range(pairs + 1):  # the first pair warms the disk
        turns = [*enumerate(sides)]
        visible = set()
        for index, side in turns if number % 2 else reversed(turns):
            home = _restored(side, folder)
            run = side.firn(home, "run", TABLE, "--lane", family.lane, "--force", "--now", NOW, engine=family.engine)
            visible.add(_visible(home))
            if number:
                seconds[index].append(run)
        if len(visible) > 1:
            raise RuntimeError(f"{family.name}: the two sides leave different records visible")
    return seconds


def _prepare(side: Side, folder: Path, landed: Sequence[Path]) -> None:
    """Make the side's lake: the tail cleaned, the head landed."""
    home = folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    side.firn(home, "create", TABLE)
    tail = [str(path) for path in landed if path.name.startswith("tail")]
    if tail:
        side.firn(home, "land", TABLE, *tail)
        side.firn(home, "run", TABLE, "--lane", "full", "--force", "--now", NOW)
    side.firn(home, "land", TABLE, *(str(path) for path in landed if path.name.startswith("head")))
    home.rename(folder / side.name)


def _restored(side: Side, folder: Path) -> Path:
    """The side's lake as `_prepare` left it, where it was made: metadata name absolute paths."""
    home = folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(folder / side.name, home)
    os.sync()
    return home


def _landed(family: Family, folder: Path) -> Iterator[Path]:
    """The files to land: keys at random, values that zstd cannot make much smaller."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(family.tail + family.files)
    keys = max(1, int(family.head * KEYS_PER_RECORD))
    offset = 0
    for part, records, files in (("tail", family.tail, 8), ("head", family.head, family.files)):
        for number in range(files if records else 0):
            rows = records // files
            table = pa.table(
                {
                    "key": [f"key-{draw.integers(keys):012}".encode() for _ in range(rows)],
                    "value": [draw.bytes(VALUE_BYTES) for _ in range(rows)],
                    "topic": ["bench"] * rows,
                    "partition": [0] * rows,
                    "offset": range(offset, offset + rows),
                    "timestamp": [1000 * (FIRST_MS + offset + row) for row in range(rows)],
                    "timestampType": [0] * rows,
                    "headers": [None] * rows,
                },
                schema=SCHEMA,
            )
            offset += rows
            path = folder / f"{part}-{number:03}.parquet"
            pq.write_table(table, path, compression="zstd")
            yield path


def _visible(home: Path) -> tuple[int, int]:
    """Number and sum of the offsets that a reader of the table sees."""
    (database,) = home.glob("*.db")
    with closing(sqlite3.connect(database)) as catalog:
        namespace, _, name = TABLE.partition(".")
        row = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
        ((location,),) = catalog.execute(row, (namespace, name))
    offsets = StaticTable.from_metadata(location).scan(selected_fields=("offset",)).to_arrow().column("offset")
    return len(offsets), pc.sum(offsets).as_py() or 0


def _print(family: Family, seconds: Sequence[Sequence[tuple[float, float]]]) -> None:
    """A line of the table."""
    this, base = seconds
    cells = []
    for kind in (0, 1):
        ratios = [one[kind] / other[kind] for one, other in zip(this, base, strict=True)]
        cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    cells += [" / ".join(f"{statistics.median(run[kind] for run in side):.1f}" for side in seconds) for kind in (0, 1)]
    console.print(f"{family.name:<18}{cells[0]:>28}{cells[1]:>28}{cells[2]:>16}{cells[3]:>16}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
