"""Sense a large table, in processes of their own.

A table of 100,000 segments in 10,000 topic partitions, in metadata alone, is sensed: once with nothing remembered, then
again and again.
"""

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from firnlake.iceberg.catalog import Lake
from firnlake.inspect.gather import status_of
from firnlake.plan.read_states import read_once
from infra.bench import metadata
from infra.bench.inputs import Bench
from infra.bench.measure import Figures, in_turns, measured
from infra.bench.results import Case

NOW: Final = 1_700_000_000_000
TABLE: Final = "bench.sensed"
PARTITIONS: Final = 10_000
"""Topic partitions of 100,000 segments, at SCALE=1."""
RUNS: Final = 5


def cases(bench: Bench) -> Iterator[Case]:
    """One case."""
    partitions = int(PARTITIONS * bench.scale)
    segments = partitions * len(metadata.LEVELS)
    with tempfile.TemporaryDirectory(prefix="firn-bench-") as folder:
        home = Path(folder)
        metadata.create(Lake.embedded(home), TABLE, partitions, NOW, {})
        first = in_turns({"sense, nothing remembered": partial(_alone, sense_once, home)}, 1)
        again = {"sense": partial(_alone, sense_once, home), "firn status": partial(_alone, status_once, home)}
        facts = {"segments": segments, "partitions": partitions}
        title = f"{segments:,} segments of {partitions:,} topic partitions"
        yield Case("sense", title, facts, first + in_turns(again, RUNS))


def _alone(action: Callable[..., Figures], *arguments: object) -> Figures:
    """The figures that ``action`` has measured in a process of its own, whose imports are done."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(action, *arguments).result()


def sense_once(home: Path) -> Figures:
    """Sense the table for one lane, as the first step of a run does."""
    lake = Lake.embedded(home)
    with measured() as figures:
        figures["due"] = len(read_once(lake, TABLE, NOW).states(every=False))
    return figures


def status_once(home: Path) -> Figures:
    """Everything of every topic partition, as ``firn status`` shows it."""
    lake = Lake.embedded(home)
    with measured() as figures:
        figures["due"] = sum(bool(one.due) for one in status_of(lake, TABLE, NOW).partitions)
    return figures
