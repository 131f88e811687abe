"""A report as Markdown, for the terminal and for docs/performance.md, and as plots."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib import pyplot as plt

from infra.bench.goals import Finding, findings, shown
from infra.bench.measure import Measured
from infra.bench.results import Case, Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARK = "<!-- made by `make bench`: {} -->"
STEPS = ("plan", "compact", "validate", "publish")
_SHOWN_SECONDS = 0.05
_DELETING = ("seconds", "data", "metadata")
_CELLS = {
    "sense": ("seconds", "processor", "peak", "due"),
    "maintain": ("seconds", "peak", "peak of JVM"),
    "memory": ("seconds", "peak", "peak of JVM"),
    "equality": _DELETING,
    "positions": _DELETING,
    "replay": ("written per record", "held per key", "most segments", "longest lag", "full cleanings"),
}
"""By family, the figures that a cell shows; elsewhere seconds and processor seconds."""
_MET = {True: "met", False: "**missed**", None: "–"}


def markdown(report: Report, images: Sequence[Path] = ()) -> str:
    """Machine, goals, plots, and a table per family. ``images`` are relative paths."""
    machine = ", ".join(f"{name} {text}" for name, text in report.machine.items())
    goals = (_goal(list(group)) for _, group in groupby(findings(report), key=lambda finding: finding.goal))
    table = _table(("goal", "met", "case", "measured"), goals)
    plots = "\n".join(f"![{path.stem}]({path.as_posix()})" for path in images)
    families = "\n\n".join(
        _family(family, list(cases)) for family, cases in groupby(report.cases, lambda one: one.family)
    )
    return (
        f"`make bench`, SCALE={report.scale:g}. Machine: {machine}.\n\n### Goals\n\n{table}\n\n{plots}\n\n### Cases\n\n"
        "The figures are medians. CPU s are the CPU seconds of all threads; MB count the keys and values of a case. "
        f"The JSON file next to this page has all figures of every entry.\n\n{families}\n"
    )


def into(document: Path, generated: str) -> None:
    """Replace what is between the marks in ``document``; the rest is written by people."""
    begin, end = (MARK.format(edge) for edge in ("begin", "end"))
    before, _, rest = document.read_text(encoding="utf-8").partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise ValueError(f"{document} has no place for results; allowed: a line {begin} and a line {end}")
    document.write_text(f"{before}{begin}\n{generated}{end}{after}", encoding="utf-8")


def draw(report: Report, folder: Path) -> list[Path]:
    """All plots that ``report`` has figures for, in ``folder``; their paths."""
    mpl.use("agg")
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, family, plot in (
        ("bench-base", "base", _throughput),
        ("bench-changed", "changed", _seconds),
        ("bench-partitions", "partitions", _seconds),
        ("bench-processes", "processes", _seconds),
        ("bench-replay", "replay", _amplification),
    ):
        cases = [case for case in report.cases if case.family == family]
        if cases:
            figure, axes = plt.subplots(1, len(cases), figsize=(4.6 * len(cases) + 1.2, 3.6), squeeze=False)
            for axis, case in zip(axes[0], cases, strict=True):
                plot(axis, case)
            figure.tight_layout()
            made.append(folder / f"{name}.png")
            figure.savefig(made[-1], dpi=110, metadata={"Software": ""})
            plt.close(figure)
    return made


def _throughput(axis: "Axes", case: Case) -> None:
    """Input by core: what is comparable between one thread of Kafka and all of Spark's."""
    megabytes = case.facts["raw bytes"] / 1e6
    _bars(axis, case, lambda one: megabytes / one.figures["core seconds"], "%.0f")
    axis.set_xlabel("MB per second and core (more is better)")


def _seconds(axis: "Axes", case: Case) -> None:
    _bars(axis, case, lambda one: one.figures["seconds"], "%.1f")
    axis.set_xlabel("seconds, median (less is better)")


def _amplification(axis: "Axes", case: Case) -> None:
    """Both amplifications of each entry as a point."""
    for one in case.entries:
        write, space = one.figures["written per record"], one.figures["held per key"]
        axis.scatter(write, space, color="#1f6f8b" if one.entry.startswith("Firn") else "#b0b7bf")
        axis.annotate(one.entry, (write, space), textcoords="offset points", xytext=(6, 4))
    axis.margins(0.25)
    axis.set_xlabel("records written per record that landed")
    axis.set_ylabel("records in the table per key")
    axis.set_title(f"values of {case.facts['value bytes']:.0f} B", fontsize=8)


def _bars(axis: "Axes", case: Case, figure: Callable[[Measured], float], form: str) -> None:
    entries = sorted((one for one in case.entries if not one.problem), key=lambda one: one.figures["core seconds"])[
        ::-1
    ]
    colours = ["#1f6f8b" if one.entry.startswith("firn") else "#b0b7bf" for one in entries]
    bars = axis.barh([one.entry for one in entries], [figure(one) for one in entries], color=colours)
    axis.bar_label(bars, fmt=form, padding=3)
    axis.set_title(case.title.replace(", half", ",\nhalf"), fontsize=8)


def _family(family: str, cases: Sequence[Case]) -> str:
    """A table with a row per case and a column per entry."""
    names = list(dict.fromkeys(one.entry for case in cases for one in case.entries))
    rows = []
    for case in cases:
        cells = {one.entry: _cell(family, one) for one in case.entries}
        steps = [(step, case.figure(names[0], step) or 0) for step in STEPS]
        parts = ", ".join(f"{step} {seconds:.1f}" for step, seconds in steps if seconds >= _SHOWN_SECONDS)
        rows.append((case.title, *(cells.get(name, "") for name in names), parts))
    parted = any(row[-1] for row in rows)
    heads = ("case", *names, f"{names[0]} by step, s")
    return f"**{family}**\n\n{_table(heads if parted else heads[:-1], rows if parted else [row[:-1] for row in rows])}"


def _cell(family: str, one: Measured) -> str:
    if one.problem:
        return "output differs"
    names = _CELLS.get(family, ("seconds", "processor"))
    return ", ".join(shown(name, one.figures[name]) for name in names if one.figures.get(name))


def _goal(outcomes: Sequence[Finding]) -> tuple[str, ...]:
    """One goal: in how many cases it is met, and the first that misses it, or else the first."""
    met = [one.met for one in outcomes if one.met is not None]
    worst = next((one for one in outcomes if one.met is False), outcomes[0])
    count = f", met in {sum(met)} of {len(met)} cases" if len(met) > 1 else ""
    return (worst.goal, f"{_MET[worst.met]}{count}", worst.case, worst.found)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
