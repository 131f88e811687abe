"""``make bench``: measure, hold against the goals, write the report.

    python -m infra.bench [--quick] [--scale 1.0] [--only FAMILY,…] [--home .firn/bench] [--docs]

The report goes to HOME/report (JSON, Markdown, plots), with --docs into docs/, where families that were not chosen keep
what was measured of them before. Exit code 1 when an entry's output is
not what it should be. A missed goal is a finding, not a failure.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from infra.bench.results import Report
    from pipeline.engine import Engine

console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
DOCUMENT = Path(__file__).parents[2] / "docs" / "performance.md"
MEASURED = DOCUMENT.with_suffix(".json")


def main() -> int:
    """Entry point; see --help."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few cases in a few minutes")
    parser.add_argument("--scale", type=float, default=1.0, help="size of all inputs; 1.0: 200,000 keys of 1 KB values")
    parser.add_argument("--only", default="", help="cases whose family holds one of these texts, separated by commas")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="for each entry alike")
    parser.add_argument("--home", type=Path, default=Path(".firn", "bench"), help="inputs are kept here between runs")
    parser.add_argument("--docs", action="store_true", help="write the report into docs/")
    arguments = parser.parse_args()
    home: Path = arguments.home.resolve()
    # Read when the engines start: so they are set before any of them is imported.
    os.environ["FIRN_SPARK_MASTER"] = f"local[{arguments.cores}]"
    os.environ["POLARS_MAX_THREADS"] = str(arguments.cores)
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(home / "spark"))
    return _run(arguments, home)


def _run(arguments: argparse.Namespace, home: Path) -> int:
    from infra.bench import cases, results, tables
    from infra.bench.entries import Bench
    from infra.bench.measure import measure
    from infra.foreign.session import iceberg_session
    from pipeline.engine.local import LocalEngine
    from pipeline.engine.spark import SparkEngine
    from pipeline.lake import Lake

    started = time.monotonic()

    def say(line: str) -> None:
        console.print(f"{time.monotonic() - started:6.0f} s  {line}", markup=False)

    wanted = cases.quick(arguments.scale) if arguments.quick else cases.full(arguments.scale)
    chosen = [case for case in wanted if any(text in case.family for text in arguments.only.split(","))]
    if not chosen:
        families = ", ".join(dict.fromkeys(case.family for case in wanted))
        raise SystemExit(f"no family holds {arguments.only!r}; allowed: a part of one of {families}")
    lake = Lake.embedded(home)
    lake.create_namespace("bench")
    elsewhere = results.Elsewhere.read(home)
    report = results.Report(results.machine(arguments.cores), arguments.scale, arguments.quick, elsewhere=elsewhere)
    spark = iceberg_session(lake, "firn bench")
    try:
        engines: dict[str, Engine] = {"spark": SparkEngine(spark), "local": LocalEngine(arguments.cores)}
        bench = Bench(spark, engines, arguments.cores, home / "scratch")
        bench.scratch.mkdir(parents=True, exist_ok=True)
        for one in measure(bench, lake, chosen, say):
            report.measurements.append(one)
            report.write(home / "report" / "results.json")
    finally:
        spark.stop()
    tables.print_report(report, console)
    if arguments.docs:
        order = list(dict.fromkeys(case.family for case in wanted))
        report = results.completed(report, results.Report.read(MEASURED), order) if MEASURED.exists() else report
    _write(report, DOCUMENT.parent if arguments.docs else home / "report", to_document=arguments.docs)
    return 1 if any(timing.problem for one in report.measurements for timing in one.timings) else 0


def _write(report: "Report", folder: Path, to_document: bool) -> None:
    from infra.bench import plots, tables

    images = plots.draw(report, folder / "images")
    text = tables.markdown(report, [path.relative_to(folder) for path in images])
    if to_document:
        tables.into(DOCUMENT, "bench", text)
        report.write(MEASURED)
    else:
        (folder / "results.md").write_text(text, encoding="utf-8")
    console.print(f"written to {folder}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
