"""A report as Markdown, for the terminal and for docs/performance.md: plots, and a table per family."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib import pyplot as plt

from infra.bench.measure import Case, Measured, Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARK = "<!-- made by `make bench`: {} -->"
STEPS = ("plan", "compact", "validate", "publish")
BYTES = ("raw bytes", "written", "data", "metadata", "peak", "peak of JVM")
SECONDS = ("seconds", "core seconds", "longest lag", *STEPS)
_SHOWN_SECONDS = 0.05
_TIMES = ("ratio", "seconds", "processor")
_DELETING = ("ratio", "seconds", "data", "metadata")
_CELLS = {
    "sense": ("seconds", "processor", "peak", "due"),
    "memory": ("seconds", "peak", "peak of JVM"),
    "equality": _DELETING,
    "positions": _DELETING,
    "replay": ("written per record", "held per key", "most segments", "longest lag", "full cleanings"),
}
"""By family, the figures that a cell shows; elsewhere _TIMES. The ratio is the first entry's time by this one's."""


def markdown(report: Report, images: Sequence[Path] = ()) -> str:
    """Machine, plots, and a table per family. ``images`` are relative paths."""
    machine = ", ".join(f"{name} {text}" for name, text in report.machine.items())
    plots = "\n".join(f"![{path.stem}]({path.as_posix()})" for path in images)
    families = "\n\n".join(
        _family(family, list(cases)) for family, cases in groupby(report.cases, lambda one: one.family)
    )
    return (
        f"`make bench`, SCALE={report.scale:g}. Machine: {machine}.\n\n{plots}\n\n"
        "The figures are medians. CPU s are the CPU seconds of all threads; MB count the keys and values of a case. "
        "0.5 × in the column of an entry says that the first entry takes half of its time, per core. "
        f"The JSON file next to this page has all figures of every entry.\n\n{families}\n"
    )


def into(document: Path, generated: str) -> None:
    """Replace what is between the marks in ``document``; the rest is written by people."""
    begin, end = (MARK.format(edge) for edge in ("begin", "end"))
    before, _, rest = document.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    document.write_text(f"{before}{begin}\n{generated}{end}{after}", encoding="utf-8")


def draw(report: Report, folder: Path) -> list[Path]:
    """All plots that ``report`` has figures for, in ``folder``; their paths."""
    mpl.use("agg")
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for family, plot in _PLOTS.items():
        cases = [case for case in report.cases if case.family == family]
        if cases:
            figure, axes = plt.subplots(1, len(cases), figsize=(4.6 * len(cases) + 1.2, 3.6), squeeze=False)
            for axis, case in zip(axes[0], cases, strict=True):
                plot(axis, case)
            figure.tight_layout()
            made.append(folder / f"bench-{family}.png")
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


_PLOTS: Mapping[str, Callable[["Axes", Case], None]] = {
    "base": _throughput,
    "changed": _seconds,
    "partitions": _seconds,
    "processes": _seconds,
    "replay": _amplification,
}
"""The families that are drawn."""


def _bars(axis: "Axes", case: Case, figure: Callable[[Measured], float], form: str) -> None:
    entries = sorted(case.entries, key=lambda one: one.figures["core seconds"], reverse=True)
    colours = ["#1f6f8b" if one.entry.startswith("firn") else "#b0b7bf" for one in entries]
    bars = axis.barh([one.entry for one in entries], [figure(one) for one in entries], color=colours)
    axis.bar_label(bars, fmt=form, padding=3)
    axis.set_title(fill(case.title, 60), fontsize=8)


def _family(family: str, cases: Sequence[Case]) -> str:
    """A table with a row per case and a column per entry."""
    names = list(dict.fromkeys(one.entry for case in cases for one in case.entries))
    rows = []
    for case in cases:
        cells = {one.entry: _cell(family, one, case.entries[0]) for one in case.entries}
        steps = [(step, case.figure(names[0], step) or 0) for step in STEPS]
        parts = ", ".join(f"{step} {seconds:.1f}" for step, seconds in steps if seconds >= _SHOWN_SECONDS)
        rows.append((case.title, *(cells.get(name, "") for name in names), parts))
    parted = any(row[-1] for row in rows)
    heads = ("case", *names, f"{names[0]} by step, s")
    return f"**{family}**\n\n{_table(heads if parted else heads[:-1], rows if parted else [row[:-1] for row in rows])}"


def _cell(family: str, one: Measured, first: Measured) -> str:
    figures = dict(one.figures)
    if one is not first and (time := figures.get("core seconds", figures.get("seconds"))):
        # Per core, where that is known: Kafka's cleaner has one thread.
        figures["ratio"] = first.figures.get("core seconds", first.figures.get("seconds", 0)) / time
    return ", ".join(_shown(name, figures[name]) for name in _CELLS.get(family, _TIMES) if figures.get(name))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(name: str, figure: float) -> str:
    """A figure with its unit and its name."""
    if name == "ratio":
        return f"{figure:.2f} ×"
    if name in BYTES:
        return f"{figure / 1e6:,.0f} MB {name}" if figure >= 1e7 else f"{figure / 1e3:,.1f} kB {name}"
    if name == "processor":
        return f"{figure:.1f} CPU s"
    return f"{figure:.2f} s {name}".removesuffix(" seconds") if name in SECONDS else f"{figure:,.4g} {name}"
