"""Times sense and plan on a large table: ``python -m infra.bench.sense``.

A table of 100,000 segments in 10,000 topic partitions, in metadata alone, is sensed in processes of its own: once with
nothing remembered, then again and again. 1,000,000 topic partitions are surveyed and planned from arrays. Seconds are
medians of several runs, on the clock and of the processor; the peak is the process's resident memory. Prints a table,
and JSON with ``--json FILE``; the first sense of 100,000 segments is kept where ``make bench`` finds it.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from infra.bench import metadata
from infra.bench.results import SENSE, Elsewhere
from pipeline.lake import Lake
from pipeline.plan import plan_partition
from pipeline.policy import Policies, Policy
from pipeline.segments import Segments
from pipeline.segments.arrays import Arrays, ByPartition
from pipeline.segments.segment import LANDED, RUN, TAIL
from pipeline.sense import Lane, sense_table
from pipeline.sense.survey import DueSurvey
from pipeline.status.gather import status_of

NOW: Final = 1_700_000_000_000
TABLE: Final = "bench.sensed"
PARTITIONS: Final = 10_000
"""Topic partitions of 100,000 segments."""
TOPICS: Final = 10_000
RUN_OF_PLANS: Final = 1_000
"""Plans of one run: what its budgets take."""
MIB: Final = 1 << 20

Figures = dict[str, Any]


def main(arguments: Sequence[str]) -> None:
    """Measure, or, as a process of its own, do one thing once and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.sense", description=__doc__)
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="topic partitions of ten segments each")
    parser.add_argument("--states", type=int, default=1_000_000, help="topic partitions that are planned from arrays")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bench", type=Path, default=Path(".firn", "bench"), help="the home of `make bench`")
    parser.add_argument("--only", choices=tuple(ALONE), help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.only:
        print(json.dumps(ALONE[given.only](given)))
        return
    with tempfile.TemporaryDirectory(prefix="firn-bench-") as folder:
        metadata.create(Lake.embedded(Path(folder)), TABLE, given.partitions, NOW, {})
        results = _results(given, Path(folder))
    _show(results)
    if given.partitions == PARTITIONS:
        known = Elsewhere.read(given.bench)
        first = next(iter(results.values()))["seconds"]
        replace(known, seconds=known.seconds | {SENSE: first}).write(given.bench)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


def sense_once(given: argparse.Namespace) -> Figures:
    """Sense the table for one lane, as the first room of a run does."""
    lake = Lake.embedded(given.home)
    return _measured(lambda: {"due": len(sense_table(lake, TABLE, NOW, lane=Lane.FULL)[1])})


def status_once(given: argparse.Namespace) -> Figures:
    """Everything of every topic partition, as ``firn status`` shows it."""
    lake = Lake.embedded(given.home)
    return _measured(lambda: {"due": sum(bool(one.due) for one in status_of(lake, TABLE, NOW)[0].partitions)})


def plan_once(given: argparse.Namespace) -> Figures:
    """Survey all lanes of many topic partitions and plan those that are due, up to one run's budget."""
    segments = states(given.states)
    return _measured(lambda: _planned(segments))


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


def _planned(segments: Segments) -> Figures:
    assert isinstance(segments.by_partition, ByPartition)
    survey = DueSurvey(segments.by_partition.arrays, Policies(Policy(), {}), NOW)
    places = {lane: survey.places(lane) for lane in Lane}
    first = [(lane, place) for lane in Lane for place in places[lane]][:RUN_OF_PLANS]
    plans = [plan for lane, place in first if (plan := plan_partition(lane, segments, survey.state(place)))]
    return {"due": sum(map(len, places.values())), "plans": len(plans)}


ALONE: Final[dict[str, Callable[[argparse.Namespace], Figures]]] = {
    "sense": sense_once,
    "status": status_once,
    "plan": plan_once,
}


def _measured(action: Callable[[], Figures]) -> Figures:
    started, busy = time.perf_counter(), time.process_time()
    answer = action()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - busy, "peak": peak}
    return figures | answer


def _results(given: argparse.Namespace, home: Path) -> dict[str, Figures]:
    def alone(only: str) -> Figures:
        size = ["--partitions", str(given.partitions), "--states", str(given.states), "--home", str(home)]
        command = [sys.executable, "-m", "infra.bench.sense", "--only", only, *size]
        figures: Figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return figures

    segments = given.partitions * len(metadata.LEVELS)
    return {
        f"sense {segments} segments, nothing remembered": _median([alone("sense")]),
        f"sense {segments} segments again": _median([alone("sense") for _ in range(given.runs)]),
        f"status of {given.partitions} topic partitions": _median([alone("status") for _ in range(given.runs)]),
        f"plan {given.states} topic partitions": _median([alone("plan") for _ in range(given.runs)]),
    }


def _median(runs: Sequence[Figures]) -> Figures:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]} | {
        "runs": [run["seconds"] for run in runs]
    }


def _show(results: dict[str, Figures]) -> None:
    print(f"{'':52}{'seconds':>9}{'CPU s':>9}{'peak MiB':>10}{'due':>8}")
    for name, figures in results.items():
        seconds, cpu, peak = figures["seconds"], figures["cpu"], figures["peak"] / MIB
        print(f"{name:52}{seconds:9.2f}{cpu:9.2f}{peak:10.0f}{figures['due']:8.0f}")


if __name__ == "__main__":
    main(sys.argv[1:])
