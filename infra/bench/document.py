"""A report as Markdown, for the terminal and for docs/performance.md: goals, plots, and a table per family."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import matplotlib as mpl
from matplotlib import pyplot as plt

from infra.bench.measure import Case, Measured, Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARK = "<!-- made by `make bench`: {} -->"
STEPS = ("plan", "compact", "validate", "publish")
BYTES = ("raw bytes", "written", "data", "metadata", "peak", "peak of JVM", "peak of all")
SECONDS = ("seconds", "core seconds", "longest lag", *STEPS)
_SHOWN_SECONDS = 0.05
_DELETING = ("seconds", "data", "metadata")
_CELLS = {
    "sense": ("seconds", "processor", "peak", "due"),
    "memory": ("seconds", "peak", "peak of JVM"),
    "equality": _DELETING,
    "positions": _DELETING,
    "replay": ("written per record", "held per key", "most segments", "longest lag", "full cleanings"),
}
"""By family, the figures that a cell shows; elsewhere seconds and processor seconds."""


class Finding(NamedTuple):
    """What a case says of a goal: the figure of the entry, and that of the peer (1 without one)."""

    case: Case
    ours: float
    theirs: float


@dataclass(frozen=True)
class Goal:
    """In cases of ``family`` that have the facts ``where``, ``figure`` of ``entry`` is at most ``limit``, or so many
    times the same figure (or ``of``) of ``peer``."""

    family: str
    entry: str
    limit: float
    peer: str = ""
    figure: str = "seconds"
    of: str = ""
    where: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        where = "".join(f", {name} {fact:,.9g}" for name, fact in self.where.items())
        what = self.entry if self.figure == "seconds" else f"{self.entry} ({self.figure})"
        times = f"{self.limit:g} × {self.peer}" + (f" ({self.of})" if self.of else "")
        return f"{self.family}{where}: {what} at most {times if self.peer else shown(self.figure, self.limit)}"

    def findings(self, cases: Iterable[Case]) -> Iterator[Finding]:
        """What the cases say to which the goal applies, and in which all was measured."""
        for case in cases:
            if case.family == self.family and all(case.facts.get(name) == fact for name, fact in self.where.items()):
                ours = case.figure(self.entry, self.figure)
                theirs = case.figure(self.peer, self.of or self.figure) if self.peer else 1.0
                if ours is not None and theirs is not None:
                    yield Finding(case, ours, theirs)

    def is_met(self, finding: Finding) -> bool:
        """True when the figure is small enough."""
        return finding.ours <= self.limit * finding.theirs

    def row(self, cases: Iterable[Case]) -> Sequence[str]:
        """The goal in a table: in how many cases it is met, and the first that misses it, or else the first."""
        every = list(self.findings(cases))
        if not every:
            return (str(self), "–", "", "not measured")
        missed = [one for one in every if not self.is_met(one)]
        case, ours, theirs = (missed or every)[0]
        count = f", met in {len(every) - len(missed)} of {len(every)} cases" if len(every) > 1 else ""
        found = shown(self.figure, ours)
        if self.peer:
            found = f"{ours / theirs:.3g} × ({found}, {shown(self.of or self.figure, theirs)})"
        return (str(self), ("**missed**" if missed else "met") + count, case.title, found)


_KILOBYTE, _HUNDRED = {"value bytes": 1000}, {"value bytes": 100}
_CLUSTERED = {"new keys": 0.75}
_SMALL_FILES, _LARGE_FILES = {"landed files": 200}, {"landed files": 0}
GOALS = (
    Goal("base", "firn full", 0.75, "bin-pack", where=_KILOBYTE),
    Goal("large", "firn full", 0.6, "bin-pack"),
    Goal("base", "firn full", 1.0, "bin-pack", where=_HUNDRED),
    Goal("partitions", "firn full", 0.5, "bin-pack", where={"partitions": 64}),
    Goal("base", "firn full", 0.5, "row_number", where=_KILOBYTE),
    Goal("base", "firn full", 0.33, "row_number", where=_HUNDRED),
    Goal("changed", "firn full", 0.17, "row_number", where=_CLUSTERED),
    Goal("changed", "firn full", 0.67, "MERGE", where=_CLUSTERED),
    Goal("changed", "firn full", 0.05, figure="of the tail's bytes", where=_CLUSTERED),
    Goal("large", "firn full", 1.0, "DuckDB"),
    Goal("base", "firn full", 1.67, "Kafka, zstd", figure="core seconds", where=_KILOBYTE),
    Goal("base", "firn full", 1.1, "pyarrow copy", figure="compact", of="seconds"),
    Goal("base", "firn full, local", 1.1, "pyarrow copy", figure="compact", of="seconds"),
    Goal("base", "firn full", 0.2, "firn full", figure="validate", of="seconds"),
    Goal("large", "firn full", 0.2, "firn full", figure="validate", of="seconds"),
    Goal("processes", "firn run, local", 3, where=_SMALL_FILES),
    Goal("processes", "firn run, spark", 14, where=_SMALL_FILES),
    Goal("processes", "firn run, spark session given", 7, where=_SMALL_FILES),
    Goal("processes", "firn run, local", 1.5, "DuckDB, process", where=_LARGE_FILES),
    Goal("processes", "firn run, spark", 5, "DuckDB, process", where=_LARGE_FILES),
    Goal("fixed", "firn full", 0.8),
    Goal("demo", "make demo", 75),
    Goal("sense", "sense, nothing remembered", 5),
    Goal("memory", "firn run", 4 << 30, figure="peak of all", where={"keys": 50_000_000}),
    Goal("memory", "firn run", 0.1, "firn run", figure="peak", of="raw bytes", where=_KILOBYTE),
    Goal("equality", "firn convert", 0.2, "rewrite_data_files"),
)
"""What Firn is held against. A missed goal is a finding, not a failure."""


def markdown(report: Report, images: Sequence[Path] = ()) -> str:
    """Machine, goals, plots, and a table per family. ``images`` are relative paths."""
    machine = ", ".join(f"{name} {text}" for name, text in report.machine.items())
    table = _table(("goal", "met", "case", "measured"), (goal.row(report.cases) for goal in GOALS))
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
    names = _CELLS.get(family, ("seconds", "processor"))
    return ", ".join(shown(name, one.figures[name]) for name in names if one.figures.get(name))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(name: str, figure: float) -> str:
    """A figure with its unit and its name."""
    if name in BYTES:
        return f"{figure / 1e6:,.0f} MB {name}" if figure >= 1e7 else f"{figure / 1e3:,.1f} kB {name}"
    if name == "processor":
        return f"{figure:.1f} CPU s"
    return f"{figure:.2f} s {name}".removesuffix(" seconds") if name in SECONDS else f"{figure:,.4g} {name}"
