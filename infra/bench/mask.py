"""Lanes that hide beside Spark on the same files: ``python -m infra.bench.mask [--full]``.

1 % of a tail is superseded, by uniform keys: lane ``mask`` hides those records, Spark deletes them by MERGE, and
rewrites of the table show what hiding saves. Then both tables are read whole. A second table gets equality delete
files: lane ``lighten`` turns them into position deletes, Spark rewrites the data; a third one many position delete
files, which become one. Write amplification is that of ``infra.bench.amplification``. Before a time counts, the
records that readers see are compared with those that the generator expects. Figures at full size go to HOME/report,
where ``make bench`` finds them. A missed goal is a finding, not a failure.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from infra.bench.data import Shape
from infra.bench.results import (
    LIGHTEN_TIME,
    MASK_AMPLIFICATION,
    MASK_SCAN,
    MASK_TIME,
    MASK_WRITES,
    Elsewhere,
    Ratio,
)

if TYPE_CHECKING:
    from infra.bench.hiding import Contestant, Hiding, Ran
    from pipeline.engine import Engine

KEYS: Final = 20_000
FULL_KEYS: Final = 1_000_000
"""With values of 1 KB a tail of 1 GB of keys and values."""
WARM_UP_KEYS: Final = 2_000
POSITION_FILES: Final = 20
"""More than Firn leaves as they are."""
PARTS: Final = ("mask", "lighten", "positions", "amplification")

Ratios = dict[str, Ratio]


def main(arguments: Sequence[str]) -> int:
    """Measure and compare; exit code 1 when an entry left something else than it should have."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.mask", description=__doc__)
    parser.add_argument("--keys", type=int, default=KEYS, help="records of the tail")
    parser.add_argument("--full", action="store_true", help=f"{FULL_KEYS:,} keys: 1 GB")
    parser.add_argument("--delete-files", type=int, default=100, help="equality delete files")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help=f"some of {', '.join(PARTS)}, separated by commas")
    parser.add_argument("--peers", action="store_true", help="without Firn's lanes that hide")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--home", type=Path, default=Path(".firn", "bench"), help="inputs are kept here between runs")
    given = parser.parse_args(arguments)
    home: Path = given.home.resolve()
    keys = FULL_KEYS if given.full else given.keys
    wanted = given.only.split(",") if given.only else PARTS
    # Read when the engines start: so they are set before any of them is imported.
    os.environ["FIRN_SPARK_MASTER"] = f"local[{given.cores}]"
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(home / "spark"))
    ratios, right = _beside_spark(given, home, keys, wanted) if set(wanted) - {"amplification"} else ({}, True)
    if "amplification" in wanted and not given.peers:
        ratios |= _amplification()
    for name, ratio in ratios.items():
        print(f"{name}: {ratio.found} ({ratio.case})")
    if given.full:
        known = Elsewhere.read(home)
        replace(known, ratios=known.ratios | ratios).write(home)
    return 0 if right else 1


def _beside_spark(given: argparse.Namespace, home: Path, keys: int, wanted: Sequence[str]) -> tuple[Ratios, bool]:
    """The ratios of the ``wanted`` parts; False when a contestant left the wrong records."""
    from infra.bench.entries import Bench
    from infra.bench.hiding import Hiding
    from infra.bench.inputs import prepare
    from infra.bench.upserted import Upserted
    from infra.foreign.session import iceberg_session
    from pipeline.engine.local import LocalEngine
    from pipeline.engine.spark import SparkEngine
    from pipeline.lake import Lake

    lake = Lake.embedded(home)
    lake.create_namespace("bench")
    spark = iceberg_session(lake, "firn bench mask")
    try:
        engines: dict[str, Engine] = {"spark": SparkEngine(spark), "local": LocalEngine(given.cores)}
        bench = Bench(spark, engines, given.cores, home / "scratch")
        ratios: Ratios = {}
        right = True
        if "mask" in wanted:
            shapes = (Shape(1000, "uniform", 0.01, 1, size) for size in (WARM_UP_KEYS, keys))
            small, whole = (Hiding(bench, prepare(lake, shape, engines["local"])) for shape in shapes)
            masks = _in_turns(small.contestants(given.peers), whole.contestants(given.peers), given.runs)
            right &= _show(f"1 % of {keys:,} records superseded", masks)
            if not given.peers:
                ratios |= _of_masks(masks, keys) | _of_scans(whole, given.runs, keys)
        for part, by_key, files, kind in (
            ("lighten", True, given.delete_files, "equality"),
            ("positions", False, POSITION_FILES, "position"),
        ):
            if part in wanted:
                sizes = (WARM_UP_KEYS, keys)
                tables = [Upserted.create(bench, lake, size, files, by_key=by_key) for size in sizes]
                small_one, whole_one = (one.contestants(given.peers) for one in tables)
                runs = _in_turns(small_one, whole_one, given.runs)
                right &= _show(f"{files} {kind} delete files on {keys:,} records", runs)
                if by_key and not given.peers:
                    ratios |= _of_lighten(runs, files, keys)
    finally:
        spark.stop()
    return ratios, right


def _in_turns(
    small: Mapping[str, "Contestant"],
    whole: Mapping[str, "Contestant"],
    runs: int,
) -> Mapping[str, list["Ran"]]:
    """The runs of every contestant, after one on a small input."""
    for once in small.values():
        once()
    ran: dict[str, list[Ran]] = {name: [] for name in whole}
    for _ in range(runs):
        for name, once in whole.items():
            os.sync()
            ran[name].append(once())
    return ran


def _show(title: str, ran: Mapping[str, Sequence["Ran"]]) -> bool:
    """Print a table; False when a contestant left the wrong records."""
    print(title)
    print(f"{'':40}{'median s':>10}{'min':>8}{'max':>8}{'wrote kB':>12}{'metadata kB':>13}")
    for name, runs in ran.items():
        seconds = [one.seconds for one in runs]
        times = f"{statistics.median(seconds):10.2f}{min(seconds):8.2f}{max(seconds):8.2f}"
        written = f"{runs[0].data_bytes / 1e3:12,.1f}{runs[0].metadata_bytes / 1e3:13,.1f}"
        print(f"{name:40}{times}{written}{'' if all(one.right for one in runs) else '  WRONG records'}")
    return all(one.right for runs in ran.values() for one in runs)


def _median(runs: Sequence["Ran"]) -> float:
    return statistics.median(one.seconds for one in runs)


def _times(name: str, ours: float, peer: float, case: str) -> Ratios:
    return {name: Ratio(ours / peer, case, f"{ours / peer:.2f} × ({ours:.2f} s, {peer:.2f} s)")}


def _of_masks(runs: Mapping[str, Sequence["Ran"]], keys: int) -> Ratios:
    case = f"1 % of {keys:,} records of 1 KB superseded, uniform keys"
    mask, rewrite = runs["firn mask"][0], runs["firn full"][0]
    ours, theirs = mask.data_bytes + mask.metadata_bytes, rewrite.data_bytes + rewrite.metadata_bytes
    text = f"{ours / theirs:.3%} ({ours:,} of {theirs:,} bytes, metadata included; delete files: {mask.data_bytes:,})"
    writes = {MASK_WRITES: Ratio(ours / theirs, case, text)}
    return writes | _times(MASK_TIME, _median(runs["firn mask"]), _median(runs["MERGE, merge-on-read"]), case)


def _of_scans(whole: "Hiding", runs: int, keys: int) -> Ratios:
    """The slowest reader decides."""
    ratios: Ratios = {}
    with whole.masked_and_clean() as (masked, clean):
        for reader in masked:
            ours, theirs = _read(masked[reader], runs), _read(clean[reader], runs)
            ratios |= _times(reader, ours, theirs, f"{keys:,} records, {reader}")
            print(f"scan by {reader}: {ratios[reader].found}")
    return {MASK_SCAN: max(ratios.values(), key=lambda one: one.times)}


def _read(scan: Callable[[], float], runs: int) -> float:
    return statistics.median([scan() for _ in range(runs + 1)][1:])


def _of_lighten(runs: Mapping[str, Sequence["Ran"]], files: int, keys: int) -> Ratios:
    case = f"{files} equality delete files on {keys:,} records of 1 KB"
    return _times(LIGHTEN_TIME, _median(runs["firn lighten"]), _median(runs["rewrite_data_files"]), case)


def _amplification() -> Ratios:
    from infra.bench.amplification import MASKED, amplification
    from infra.bench.arrivals import uniform

    figures = amplification(uniform(50_000), MASKED)
    text = f"{figures.write:.2f} at space amplification {figures.space:.2f}"
    # Above 2 the figure says nothing.
    times = figures.write if figures.space <= 2 else float("inf")
    return {MASK_AMPLIFICATION: Ratio(times, "docs/amplification.md, reference, masked after 5 minutes", text)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
