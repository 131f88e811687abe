"""A report as Markdown, for the terminal and for docs/performance.md: a table per family."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from infra.bench.measure import Case, Measured, Report

MARK = "<!-- made by `make bench`: {} -->"
BYTES = ("data", "metadata", "peak")
_TIMES = ("ratio", "seconds")
_CELLS = {
    "sense": ("seconds", "peak"),
    "equality": (*_TIMES, "data", "metadata"),
}
"""By family, the figures that a cell shows; elsewhere _TIMES. The ratio is the first entry's time by this one's."""


def markdown(report: Report) -> str:
    """Machine, and a table per family."""
    machine = ", ".join(f"{name} {text}" for name, text in report.machine.items())
    families = "\n\n".join(
        _family(family, list(cases)) for family, cases in groupby(report.cases, lambda one: one.family)
    )
    return f"`make bench`, SCALE={report.scale:g}. Machine: {machine}.\n\n{families}\n"


def into(document: Path, generated: str) -> None:
    """Replace what is between the marks in ``document``; the rest is written by people."""
    begin, end = (MARK.format(edge) for edge in ("begin", "end"))
    before, _, rest = document.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    document.write_text(f"{before}{begin}\n{generated}{end}{after}", encoding="utf-8")


def _family(family: str, cases: Sequence[Case]) -> str:
    """A table with a row per case and a column per entry."""
    names = list(dict.fromkeys(one.entry for case in cases for one in case.entries))
    rows = []
    for case in cases:
        cells = {one.entry: _cell(family, one, case.entries[0]) for one in case.entries}
        rows.append((case.title, *(cells.get(name, "") for name in names)))
    return f"**{family}**\n\n{_table(('case', *names), rows)}"


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
    """A figure with its unit, and with its name unless that is clear."""
    if name == "ratio":
        return f"{figure:.2f} ×"
    if name == "seconds":
        return f"{figure:.2f} s"
    if name in BYTES:
        return f"{figure / 1e6:,.0f} MB {name}" if figure >= 1e7 else f"{figure / 1e3:,.1f} kB {name}"
    return f"{figure:,.4g} {name}"
