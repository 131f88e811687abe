"""Plot the results of a simulation side by side. Needs matplotlib, the optional extra ``plot``."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.errors import RefusedError
from pipeline.segments.segment import TAIL
from pipeline.sense import Lane
from pipeline.sense.lanes import LEVELING
from pipeline.simulate.arrivals import HOUR_MS, START_MS
from pipeline.simulate.simulate import Simulated
from pipeline.simulate.totals import Series

FORMATS = (".png", ".svg")
_POINTS = 2000
"""Maximum number of points per line; more would not be visible."""


def check(path: Path) -> None:
    """Raise RefusedError unless a plot can be written to ``path``: known ending, existing folder, matplotlib."""
    if path.suffix not in FORMATS:
        raise RefusedError(f"plot {path} ends in {path.suffix!r}; allowed: {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise RefusedError(f"plot {path}: there is no folder {path.parent}; allowed: one that exists")
    try:
        import matplotlib.figure  # noqa: F401  # only to check that it is installed
    except ModuleNotFoundError as error:
        raise RefusedError(
            f"plot {path} needs matplotlib, which is not installed; allowed: `pip install 'firn[plot]'`, or no plot"
        ) from error


def plot(results: Sequence[Simulated], path: Path) -> Path:
    """Draw amplification, segments, lag and plans over time to ``path`` (.png or .svg), one line per contender."""
    check(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 7.5), layout="constrained")
    panels = figure.subplots(2, 3)
    for result in results:
        name, books = result.contender.name, result.books
        hours = (books.ticks - START_MS) / HOUR_MS
        written = np.cumsum(books.written_bytes) / np.maximum(np.cumsum(books.landed_bytes), 1)
        per_partition = result.segments / result.workload.partitions
        for panel, series in (
            (panels[0, 0], written),
            (panels[0, 1], result.space.max(axis=0)),
            (panels[0, 2], result.lag_ms / HOUR_MS),
            (panels[1, 0], per_partition[0]),
            (panels[1, 1], per_partition[1:TAIL].sum(axis=0)),
        ):
            panel.plot(*_thinned(hours, series), label=name, linewidth=1)
    titles = (
        (panels[0, 0], "write amplification so far"),
        (panels[0, 1], "space amplification"),
        (panels[0, 2], "lag, hours"),
        (panels[1, 0], "landed segments per topic partition"),
        (panels[1, 1], "L1 and L2 segments per topic partition"),
    )
    for panel, title in titles:
        panel.set_title(title)
        panel.set_xlabel("hours")
        panel.set_ylim(bottom=0)
        panel.grid(visible=True, alpha=0.3)
    panels[0, 0].legend()
    lanes = [lane for lane in Lane if lane in LEVELING]
    if any(result.contender.policy.masks for result in results):
        lanes.insert(0, Lane.MASK)
    width = 0.8 / len(results)
    for number, result in enumerate(results):
        heights = [*(result.plans_per_hour[lane] for lane in lanes), result.jobs_per_hour]
        panels[1, 2].bar(np.arange(len(heights)) + number * width, heights, width, label=result.contender.name)
    panels[1, 2].set_yscale("log")
    panels[1, 2].set_xticks(np.arange(len(lanes) + 1) + 0.4 - width / 2, [*(lane.value for lane in lanes), "jobs"])
    panels[1, 2].set_title("plans, and jobs, per hour")
    figure.savefig(path)
    return path


def _thinned(hours: Series, series: Series) -> tuple[Series, Series]:
    step = -(-len(hours) // _POINTS)
    return hours[::step], series[::step]
