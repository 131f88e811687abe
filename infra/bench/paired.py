"""``make bench BASE=<commit>``: this checkout beside that commit, in turns, through the ``firn`` command alone.

    python -m infra.bench.paired COMMIT [--only FAMILY,…] [--pairs 5] [--scale 1.0] [--home .firn/paired]

The commit gets a worktree with an environment of its own. Both sides land the same files into a lake of their own, and
each measured run starts from a copy of that lake at the same path. Prints the median of the ratios this / base of the
pairs, with their range, for CPU seconds and wall time. Fails when a run fails, or when the two sides leave
different records visible.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from firnlake.iceberg.catalog import Lake
from firnlake.table.records import KAFKA_COLUMNS
from infra.bench.data import Shape, batches, slices, stream
from infra.bench.inputs import visible
from infra.bench.measure import Figures, Share, finished, measured
from infra.environment import CHECKOUT

TABLE = "bench.paired"
NOW = "2026-01-02T00:00:00Z"
BASE_RECORDS = 200_000
TAIL_FILES = 8
PRINTED = "{:<18}{:>26}{:>26}{:>16}{:>16}"


class Family(NamedTuple):
    """A kind of work: a tail of so many records that is cleaned beforehand, a head of as many in a number of files,
    which land in one commit, and the ``firn run`` that is measured on both."""

    records: int
    files: int
    lane: str = "full"
    engine: str = "local"


class Side(NamedTuple):
    """A checkout with an environment of its own."""

    name: str
    checkout: Path

    def firn(self, home: Path, *arguments: str, engine: str = "local") -> None:
        """Run the command; RuntimeError with its output when it fails."""
        own = {"FIRN_HOME": str(home), "FIRN_ENGINE": engine, "HOME": str(home.parent)}
        finished([str(self.checkout / ".venv" / "bin" / "firn"), *arguments], _inherited(self.checkout) | own)


def _inherited(checkout: Path) -> dict[str, str]:
    jars = ("FIRN_JARS", "SPARK_DIST_CLASSPATH")
    variables = {name: value for name, value in os.environ.items() if name not in jars}
    return {name: value.replace(str(CHECKOUT), str(checkout)) for name, value in variables.items()}


def families(scale: float) -> dict[str, Family]:
    """All that can be measured, at ``scale``."""
    records = int(BASE_RECORDS * scale)
    return {
        "base": Family(records, 8),
        "head": Family(records, 32, lane="merge"),
        "processes local": Family(records // 8, 200),
        "processes spark": Family(records // 8, 200, engine="spark"),
        "fixed cost": Family(100, 2),
    }


def main() -> None:
    """Entry point; see --help."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.paired", description=__doc__)
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--only", default="", help="families whose name holds one of these texts, separated by commas")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="1.0: 200,000 records of 1 KB in tail and head")
    parser.add_argument("--home", type=Path, default=Path(".firn", "paired"))
    arguments = parser.parse_args()
    every, texts = families(arguments.scale), arguments.only.split(",")
    chosen = {name: family for name, family in every.items() if any(text in name for text in texts)}
    if not chosen:
        parser.error(f"no family holds {arguments.only!r}; allowed: a part of one of {', '.join(every)}")
    home: Path = arguments.home.resolve()
    sides = (Side("this", CHECKOUT), Side("base", _worktree(arguments.commit, home)))
    print(PRINTED.format("family", "CPU: this / base", "wall: this / base", "CPU s", "wall s"))
    try:
        for name, family in chosen.items():
            runs = _measured(family, sides, arguments.pairs, home / "lakes")
            columns = [[[run[figure] for run in side] for side in runs] for figure in ("processor", "seconds")]
            print(PRINTED.format(name, *map(_ratio, columns), *map(_medians, columns)), flush=True)
    finally:
        shutil.rmtree(home / "lakes", ignore_errors=True)


def _ratio(sides: Sequence[Sequence[float]]) -> str:
    ratios = [this / base for this, base in zip(*sides, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _medians(sides: Sequence[Sequence[float]]) -> str:
    return " / ".join(f"{statistics.median(side):.1f}" for side in sides)


def _worktree(commit: str, home: Path) -> Path:
    """A worktree of the commit with its environment set up; kept for the next time."""
    asked = ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
    named = subprocess.run(asked, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if named.returncode:
        raise SystemExit(f"BASE={commit} is no commit of this repository; allowed: a branch, a tag or a hash")
    checkout = home / named.stdout.strip()
    if not checkout.exists():
        subprocess.run(["git", "worktree", "prune"], cwd=CHECKOUT, check=True)
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", checkout, commit], cwd=CHECKOUT, check=True)
    # Its make decides by itself: what this one exports would point into this checkout.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "FIRN_", "MAKE"))}
    subprocess.run(["make", "--silent", "setup"], cwd=checkout, env=clean, check=True, stdout=sys.stderr)
    return checkout


def _measured(family: Family, sides: Sequence[Side], pairs: int, folder: Path) -> list[list[Figures]]:
    """The figures of every run, by side."""
    shutil.rmtree(folder, ignore_errors=True)
    tail, head = _landed(family, folder / "landing")
    home = folder / "home"
    for side in sides:
        home.mkdir(parents=True)
        side.firn(home, "create", TABLE)
        if tail:
            side.firn(home, "land", TABLE, *tail)
            side.firn(home, "run", TABLE, "--lane", "full", "--force", "--now", NOW)
        side.firn(home, "land", TABLE, *head)
        home.rename(folder / side.name)
    runs: list[list[Figures]] = [[] for _ in sides]
    for number in range(pairs + 1):  # the first pair warms the disk
        turns = [*zip(sides, runs, strict=True)]
        seen = set()
        for side, own in turns if number % 2 else reversed(turns):
            # Where it was made: metadata name absolute paths.
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(folder / side.name, home)
            os.sync()
            with measured(Share.OWN) as figures:
                side.firn(home, "run", TABLE, "--lane", family.lane, "--force", "--now", NOW, engine=family.engine)
            seen.add(visible(Lake.embedded(home).table(TABLE)))
            if number:
                own.append(figures)
        if len(seen) > 1:
            raise RuntimeError("the two sides leave different records visible")
    return runs


def _landed(family: Family, folder: Path) -> tuple[list[str], list[str]]:
    """The files of the tail and of the head; of lane ``merge`` of the head alone."""
    folder.mkdir(parents=True)
    shape = Shape(1000, "uniform", None, 1, family.records)
    one = stream(shape, 0)

    def written(start: int, stop: int, files: int) -> Iterator[str]:
        for first, last in slices(start, stop, files):
            path = folder / f"{first:09}.parquet"
            pq.write_table(batches(shape, one, first, last).select(KAFKA_COLUMNS), path, compression="zstd")
            yield str(path)

    tail = list(written(0, one.tail, TAIL_FILES)) if family.lane == "full" else []
    return tail, list(written(one.tail, len(one), family.files))


if __name__ == "__main__":
    main()
