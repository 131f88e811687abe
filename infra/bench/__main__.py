"""``make bench``: measure families of cases, Firn and its peers in turns, and write the report.

    python -m infra.bench [FAMILY,...] [--scale 1.0] [--docs]
    python -m infra.bench --base COMMIT [--scale 1.0]

The report goes to .firn/bench/report (JSON, Markdown); with --docs and at scale 1 into docs/, where families that were
not chosen keep what was measured of them before. Fails when an entry's output is not what it should be. With a base,
this checkout is measured beside that commit, which gets a worktree with an environment of its own, and nothing else is.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from firnlake.iceberg.catalog import Lake
from infra.bench import document
from infra.bench import families as of
from infra.bench.inputs import NAMESPACE, Bench
from infra.bench.measure import CHECKOUT, Report, machine
from infra.bench.sense import sense

DOCUMENT = CHECKOUT / "docs" / "performance.md"
HOME = CHECKOUT / ".firn" / "bench"
CORES = os.cpu_count() or 1
"""For each entry alike."""

FAMILIES: Mapping[str, of.Family] = {
    "sense": sense,
    **{name: partial(of.whole_table, name) for name in of.whole_tables(1.0)},
    "equality": of.equality,
}
"""All families by name, in the order of the report."""


def main() -> None:
    """Entry point; see --help."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="size of all inputs; 1.0: 200,000 keys of 1 KB values")
    parser.add_argument("--base", help="a commit to measure this checkout beside")
    parser.add_argument("--docs", action="store_true", help="write a report of scale 1 into docs/")
    arguments = parser.parse_args()
    os.environ["FIRN_SPARK_MASTER"] = f"local[{CORES}]"
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(HOME / "spark"))
    every = {"versions": of.versions} if arguments.base else FAMILIES
    chosen = [name for text in arguments.families for name in text.split(",") if name]
    if unknown := [name for name in chosen if name not in every]:
        parser.error(f"{', '.join(unknown)} is no family; allowed: {', '.join(every)}")
    report = _measure({name: every[name] for name in every if name in (chosen or every)}, arguments)
    to_document = arguments.docs and arguments.scale == 1 and not arguments.base
    _write(report, list(every), DOCUMENT.parent if to_document else HOME / "report", to_document=to_document)


def _measure(chosen: Mapping[str, of.Family], arguments: argparse.Namespace) -> Report:
    """Run the families one after the other, in a lake of their own; what was measured is on disk after each case."""
    folder = HOME / "lake"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "scratch").mkdir(parents=True)
    base = _worktree(arguments.base) if arguments.base else None
    bench = Bench(Lake.embedded(folder), CORES, arguments.scale, folder / "scratch", base)
    bench.lake.create_namespace(NAMESPACE)
    report = Report(machine(CORES), arguments.scale)
    try:
        for name, cases in chosen.items():
            print(name, flush=True)
            for case in cases(bench):
                report.cases.append(case)
                report.write(HOME / "report" / "results.json")
    finally:
        bench.close()
        shutil.rmtree(folder, ignore_errors=True)
    return report


def _worktree(commit: str) -> Path:
    """A worktree of the commit with its environment set up; kept for the next time."""
    asked = ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
    named = subprocess.run(asked, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if named.returncode:
        raise SystemExit(f"BASE={commit} is no commit of this repository; allowed: a branch, a tag or a hash")
    checkout = HOME / named.stdout.strip()
    if not checkout.exists():
        subprocess.run(["git", "worktree", "prune"], cwd=CHECKOUT, check=True)
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", checkout, commit], cwd=CHECKOUT, check=True)
    # Its make decides by itself: what this one exports would point into this checkout.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "FIRN_", "MAKE"))}
    subprocess.run(["make", "--silent", "setup"], cwd=checkout, env=clean, check=True, stdout=sys.stderr)
    return checkout


def _write(report: Report, order: list[str], folder: Path, *, to_document: bool) -> None:
    measured = DOCUMENT.with_suffix(".json")
    if to_document:
        report = report.with_earlier(Report.read(measured), order)
        report.write(measured)
    text = document.markdown(report)
    if to_document:
        document.into(DOCUMENT, text)
    else:
        (folder / "results.md").write_text(text, encoding="utf-8")
    print(f"{text}\nwritten to {folder}")


if __name__ == "__main__":
    main()
