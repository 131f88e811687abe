"""The results as tables: for the terminal (rich) and for docs/performance.md (Markdown)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table

from infra.bench import firn, processes
from infra.bench.goals import Finding, findings
from infra.bench.results import Measurement, Report, Timing

MARK = "<!-- made by `make {}`: {} -->"
_HEADINGS = (
    "entry",
    "median s",
    "min – max",
    "processor s",
    "× firn",
    "MB/s",
    "MB/s per core",
    "records/s per core",
    "wrote MB",
    "files",
    "peak MB",
    "JVM MB",
)
REFERENCES = tuple(entry.name for entry in (*firn.ENTRIES, processes.FIRN[0]))
"""Entries that the other entries of a task are compared with."""
_SHOWN_SECONDS = 0.05
_LEGEND = (
    "Median seconds, with processor seconds in brackets; MB are keys and values. The last column splits the seconds of "
    "Firn's first column. The JSON beside this page has the extremes, memory, files and bytes written of every entry."
)
_MET = {True: "met", False: "**missed**", None: "–"}


def print_report(report: Report, console: Console) -> None:
    """All cases and goals on ``console``."""
    for one in report.measurements:
        table = Table(title=heading(one), title_justify="left", caption=_input(one), caption_justify="left")
        for number, name in enumerate(_HEADINGS):
            table.add_column(name, justify="right" if number else "left")
        for _, group in groupby(one.timings, key=lambda timing: timing.task):
            for row in _rows(one, list(group)):
                table.add_row(*row)
            table.add_section()
        console.print(table)
    goals = Table(title="Goals", title_justify="left")
    for name in ("goal", "where", "found", ""):
        goals.add_column(name)
    colours = {True: "green", False: "red", None: ""}
    for result in findings(report):
        word = _MET[result.met].strip("*")
        goals.add_row(
            result.goal, result.case, result.found, f"[{colours[result.met]}]{word}" if colours[result.met] else word
        )
    console.print(goals)


def markdown(report: Report, images: Sequence[Path]) -> str:
    """The generated part of the document: machine, goals, plots, a table per family. ``images`` are relative paths."""
    machine = ", ".join(f"{name} {text}" for name, text in report.machine.items())
    rows = (_goal(list(group)) for _, group in groupby(findings(report), key=lambda one: one.goal))
    goals = _table(("goal", "met", "case", "measured"), rows)
    plots = "\n".join(f"![{path.stem}]({path.as_posix()})" for path in images)
    families = "\n\n".join(_family(*one) for one in _families(report))
    kind = "`make bench-quick`" if report.quick else "`make bench`"
    return (
        f"{kind}, SCALE={report.scale:g}. Machine: {machine}.\n\n### Goals\n\n{goals}\n\n{plots}\n\n### Cases\n\n"
        f"{_LEGEND}\n\n{families}\n"
    )


def into(document: Path, what: str, generated: str) -> None:
    """Replace what is between the marks of ``what`` in ``document``; the rest is written by people."""
    begin, end = (MARK.format(what, edge) for edge in ("begin", "end"))
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise ValueError(f"{document} has no place for {what}; allowed: a line {begin} and a line {end}")
    document.write_text(f"{before}{begin}\n{generated}{end}{after}", encoding="utf-8")


def heading(one: Measurement) -> str:
    """A case's title with its size."""
    return f"{one.family}: {one.title}"


def _input(one: Measurement) -> str:
    return (
        f"{one.records:,} records, {one.raw_bytes / 1e6:,.0f} MB of keys and values; files: tail "
        f"{one.tail_file_bytes / 1e6:,.0f} MB, head {one.head_file_bytes / 1e6:,.0f} MB, written at "
        f"{one.segment_bytes / 2**20:.1f} MiB each"
    )


def _families(report: Report) -> Iterator[tuple[str, str, list[Measurement]]]:
    """Family, task and the cases with entries of that task; only entries of one task can be compared."""
    for family, group in groupby(report.measurements, key=lambda one: one.family):
        cases = list(group)
        for task in dict.fromkeys(timing.task for one in cases for timing in one.timings):
            yield family, task, cases


def _family(family: str, task: str, cases: Sequence[Measurement]) -> str:
    """A table with a row per case and a column per entry."""
    names = dict.fromkeys(timing.name for one in cases for timing in one.timings if timing.task == task)
    rows = []
    for one in cases:
        timings = {timing.name: timing for timing in one.timings if timing.task == task}
        records, raw = one.input_of(task)
        own = next((timing for name, timing in timings.items() if name in REFERENCES), None)
        rooms = own.rooms.items() if own else ()
        parts = ", ".join(f"{room} {seconds:.1f}" for room, seconds in rooms if seconds >= _SHOWN_SECONDS)
        case = f"{one.title}: {records:,} records, {raw / 1e6:,.0f} MB"
        rows.append((case, *(_cell(timings.get(name)) for name in names), parts))
    return f"**{family}**, lane {task}\n\n{_table(('case', *names, 'Firn by room'), rows)}"


def _cell(timing: Timing | None) -> str:
    if timing is None:
        return ""
    return "output differs" if timing.problem else f"{timing.seconds:.2f} ({timing.processor:.1f})"


def _rows(one: Measurement, timings: Sequence[Timing]) -> Iterable[tuple[str, ...]]:
    """Entries of one task, fastest first; Firn's rooms in rows of their own below it."""
    records, raw = one.input_of(timings[0].task)
    own = next((timing for timing in timings if timing.name in REFERENCES and not timing.problem), None)
    for timing in sorted(timings, key=lambda each: each.seconds):
        if timing.problem:
            yield (timing.name, f"output differs: {timing.problem}", *[""] * (len(_HEADINGS) - 2))
            continue
        yield _row(timing.name, timing, timing.seconds, own, records, raw)
        if timing.rooms:
            yield _row("… without validation", timing, timing.seconds - timing.rooms["validate"], own, records, raw)
            yield (
                "… " + ", ".join(f"{room} {seconds:.1f}" for room, seconds in timing.rooms.items()),
                *[""] * (len(_HEADINGS) - 1),
            )


def _row(name: str, timing: Timing, seconds: float, own: Timing | None, records: int, raw: int) -> tuple[str, ...]:
    whole = seconds == timing.seconds
    return (
        name,
        f"{seconds:.2f}",
        f"{min(timing.runs):.2f} – {max(timing.runs):.2f}" if whole else "",
        f"{timing.processor:.1f}" if whole else "",
        f"{seconds / own.seconds:.2f}" if own else "",
        f"{raw / 1e6 / seconds:,.0f}",
        f"{raw / 1e6 / seconds / timing.cores:,.0f}",
        f"{records / seconds / timing.cores:,.0f}",
        f"{timing.written_bytes / 1e6:,.0f}" if whole else "",
        str(timing.written_files) if whole else "",
        _megabytes(timing.peak_bytes) if whole else "",
        _megabytes(timing.peak_jvm_bytes) if whole else "",
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f}" if size else "–"


def _goal(outcomes: Sequence[Finding]) -> tuple[str, ...]:
    """One goal: the cases that meet it, and the first that misses it, or else the first."""
    met = [one.met for one in outcomes if one.met is not None]
    shown = next((one for one in outcomes if one.met is False), outcomes[0])
    count = f", met in {sum(met)} of {len(met)} cases" if len(met) > 1 else ""
    return (shown.goal, f"{_MET[shown.met]}{count}", shown.case, shown.found)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
