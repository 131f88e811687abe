"""The results as plots, PNG, for docs/."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib import pyplot as plt

from infra.bench.entries import Task
from infra.bench.goals import FIRN, FIRN_LOCAL, PROCESSES
from infra.bench.results import Measurement, Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Plot = Callable[["list[Axes]", list[Measurement]], None]

_COLOURS = {
    FIRN: "#1f6f8b",
    FIRN_LOCAL: "#5fb0c9",
    PROCESSES["spark"]: "#1f6f8b",
    PROCESSES["local"]: "#5fb0c9",
    "DuckDB, process": "#e9c46a",
    "bin-pack": "#8d99ae",
    "row_number": "#e07a5f",
    "max_by": "#f2a38b",
    "MERGE": "#b5541c",
    "DuckDB": "#e9c46a",
    "Polars": "#7b9e87",
    "pyarrow copy": "#cccccc",
    "Kafka, zstd": "#333333",
    "Kafka, uncompressed": "#666666",
}


def draw(report: Report, folder: Path) -> list[Path]:
    """All plots that ``report`` has figures for, in ``folder``; their paths."""
    mpl.use("agg")
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, family, plot in (
        ("bench-base", "base", _throughput),
        ("bench-rooms", "base", _rooms),
        ("bench-changed", "changed", _seconds),
        ("bench-keys", "keys", _seconds),
        ("bench-partitions", "partitions", _seconds),
        ("bench-growth", "growth", _growth),
        ("bench-processes", "processes", _seconds),
    ):
        cases = [one for one in report.measurements if family in one.family]
        if cases:
            made.append(_draw(plot, cases, folder / f"{name}.png"))
    return made


def _draw(plot: Plot, cases: list[Measurement], path: Path) -> Path:
    panels = 1 if plot is _growth else len(cases)
    figure, axes = plt.subplots(1, panels, figsize=(4.6 * panels + 1.2, 3.6), squeeze=False)
    plot(list(axes[0]), cases)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": ""})
    plt.close(figure)
    return path


def _throughput(axes: "list[Axes]", cases: list[Measurement]) -> None:
    """MB/s per core, input side: what is comparable between one thread of Kafka and all of Spark's."""
    for axis, one in zip(axes, cases, strict=True):
        timings = sorted(
            (timing for timing in one.timings if timing.task == Task.FULL and not timing.problem),
            key=lambda timing: timing.seconds * timing.cores,
            reverse=True,
        )
        figures = [one.raw_bytes / 1e6 / timing.seconds / timing.cores for timing in timings]
        bars = axis.barh([timing.name for timing in timings], figures, color=[_colour(each.name) for each in timings])
        axis.bar_label(bars, fmt="%.0f", padding=3)
        axis.set_title(_title(one), fontsize=8)
        axis.set_xlabel("MB per second and core (more is better)")


def _seconds(axes: "list[Axes]", cases: list[Measurement]) -> None:
    for axis, one in zip(axes, cases, strict=True):
        timings = sorted(
            (timing for timing in one.timings if timing.task == Task.FULL and not timing.problem),
            key=lambda timing: timing.seconds,
            reverse=True,
        )
        seconds = [timing.seconds for timing in timings]
        bars = axis.barh([timing.name for timing in timings], seconds, color=[_colour(each.name) for each in timings])
        axis.bar_label(bars, fmt="%.1f", padding=3)
        axis.set_title(_title(one), fontsize=8)
        axis.set_xlabel("seconds, median (less is better)")


def _rooms(axes: "list[Axes]", cases: list[Measurement]) -> None:
    for axis, one in zip(axes, cases, strict=True):
        firn = one.find(FIRN)
        if firn is None:
            continue
        rooms = [(room, seconds) for room, seconds in firn.rooms.items() if seconds >= 0.005 * firn.seconds]
        bars = axis.bar([room for room, _ in rooms], [seconds for _, seconds in rooms], color=_COLOURS[FIRN])
        axis.bar_label(bars, fmt="%.2f", padding=2)
        axis.set_title(_title(one), fontsize=8)
        axis.set_ylabel("seconds of a full clean")


def _growth(axes: "list[Axes]", cases: list[Measurement]) -> None:
    (axis,) = axes
    for name in dict.fromkeys(timing.name for one in cases for timing in one.timings):
        points = sorted((one.raw_bytes / 1e6, timing.seconds) for one in cases if (timing := one.find(name)))
        axis.plot(*zip(*points, strict=True), marker="o", label=name, color=_colour(name))
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("MB of keys and values")
    axis.set_ylabel("seconds, median")
    axis.legend(frameon=False)


def _title(one: Measurement) -> str:
    return f"{one.title}\n{one.raw_bytes / 1e6:,.0f} MB".replace(", half", ",\nhalf")


def _colour(name: str) -> str:
    return _COLOURS.get(name, "#999999")
