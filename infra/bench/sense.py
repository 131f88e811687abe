"""Sense and plan on a large table, in processes of their own.

A table of 100,000 segments in 10,000 topic partitions, in metadata alone, is sensed: once with nothing remembered, then
again and again. 1,000,000 topic partitions are surveyed and planned from arrays.
"""

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.gather import status_of
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_partition
from firnlake.plan.read_states import sense_table
from firnlake.plan.survey import DueSurvey
from firnlake.table.arrays import Arrays, ByPartition
from firnlake.table.policies import Policies
from firnlake.table.policy import Policy
from firnlake.table.segment import LANDED, RUN, TAIL, Segments
from infra.bench import metadata
from infra.bench.inputs import Bench
from infra.bench.measure import Figures, in_turns, measured
from infra.bench.results import Case

NOW: Final = 1_700_000_000_000
TABLE: Final = "bench.sensed"
PARTITIONS: Final = 10_000
"""Topic partitions of 100,000 segments, at SCALE=1."""
STATES: Final = 1_000_000
"""Topic partitions that are planned from arrays, at SCALE=1."""
TOPICS: Final = 10_000
RUN_OF_PLANS: Final = 1_000
"""Plans of one run: what its budgets take."""
RUNS: Final = 5


def cases(bench: Bench) -> Iterator[Case]:
    """Both."""
    partitions, states = int(PARTITIONS * bench.scale), int(STATES * bench.scale)
    segments = partitions * len(metadata.LEVELS)
    with tempfile.TemporaryDirectory(prefix="firn-bench-") as folder:
        home = Path(folder)
        metadata.create(Lake.embedded(home), TABLE, partitions, NOW, {})
        first = in_turns({"sense, nothing remembered": partial(_alone, sense_once, home)}, 1)
        again = {"sense": partial(_alone, sense_once, home), "firn status": partial(_alone, status_once, home)}
        facts = {"segments": segments, "partitions": partitions}
        title = f"{segments:,} segments of {partitions:,} topic partitions"
        yield Case("sense", title, facts, first + in_turns(again, RUNS))
    plan = in_turns({"plan": partial(_alone, plan_once, states)}, RUNS)
    yield Case("sense", f"{states:,} topic partitions", {"partitions": states}, plan)


def _alone(action: Callable[..., Figures], *arguments: object) -> Figures:
    """The figures that ``action`` has measured in a process of its own, whose imports are done."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(action, *arguments).result()


def sense_once(home: Path) -> Figures:
    """Sense the table for one lane, as the first room of a run does."""
    lake = Lake.embedded(home)
    with measured() as figures:
        figures["due"] = len(sense_table(lake, TABLE, NOW, lane=Lane.FULL)[1])
    return figures


def status_once(home: Path) -> Figures:
    """Everything of every topic partition, as ``firn status`` shows it."""
    lake = Lake.embedded(home)
    with measured() as figures:
        figures["due"] = sum(bool(one.due) for one in status_of(lake, TABLE, NOW)[0].partitions)
    return figures


def plan_once(count: int) -> Figures:
    """Survey all lanes of many topic partitions and plan those that are due, up to one run's budget."""
    segments = states(count)
    assert isinstance(segments.by_partition, ByPartition)
    with measured() as figures:
        survey = DueSurvey(segments.by_partition.arrays, Policies(Policy(), {}), NOW)
        places = [(lane, place) for lane in Lane for place in survey.places(lane)]
        for lane, place in places[:RUN_OF_PLANS]:
            plan_partition(lane, segments, survey.state(place))
        figures["due"] = len(places)
    return figures


def states(count: int) -> Segments:
    """``count`` topic partitions of one to three segments: a tail, a run, a landed segment; of 1 % much is dirty."""
    random = np.random.default_rng(1)
    sizes = random.integers(1, 4, count)
    starts = np.append(0, np.cumsum(sizes))
    owner = np.repeat(np.arange(count), sizes)
    place = np.arange(starts[-1]) - starts[owner]
    dirty = random.random(count) < 0.01
    level = np.array([TAIL, RUN, LANDED])[place]
    hour_ago = np.full(len(owner), NOW - 3_600_000)
    arrays = Arrays.filled(
        topics=[f"topic-{number:05}" for number in range(TOPICS)],
        topic=np.arange(count) * TOPICS // count,
        partition=np.arange(count),
        starts=starts,
        path=pa.array(np.char.add("s3://bucket/table/data/00000-", np.arange(len(owner)).astype(str))),
        level=level,
        base_offset=place * 1000,
        last_offset=place * 1000 + 999,
        records=np.full(len(owner), 1000),
        bytes=np.where(level == TAIL, 1_000_000, np.where(dirty[owner], 2_000_000, 100_000)),
        oldest_ms=hour_ago,
        newest_ms=hour_ago,
        committed_ms=hour_ago,
        by_firn=level == TAIL,
        whole=level == TAIL,
        sequence_number=place + 1,
    )
    return Segments(TABLE, "", 1, ByPartition(arrays))
