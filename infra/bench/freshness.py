"""How long readers see two records of a key: ``python -m infra.bench.freshness [--full]``.

A thread lands ``--rate`` records a second on ``--keys`` uniform keys, one segment every ``--landing`` seconds. Beside
it Firn runs in a loop: lane ``mask`` when it is due, and all other lanes. Afterwards Firn's snapshots are read again: a
landing is fresh from the first of them on that shows one record per key up to it. Reported is the longest time from the
commit of a landing to that of this snapshot. What was found at full size goes to HOME/report.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from infra.bench.data import Shape, Stream, batches
from infra.bench.inputs import run_lane
from infra.bench.results import FRESHNESS, Elsewhere, Ratio
from pipeline import clock
from pipeline.engine.local import LocalEngine
from pipeline.history.ancestors import ancestors
from pipeline.history.properties import SUMMARY_PREFIX, properties_of
from pipeline.lake import Lake, records
from pipeline.run import run
from pipeline.sense import Lane

TABLE: Final = "bench.fresh"
SHORT: Final = (30, 20_000)
FULL: Final = (1800, 1_000_000)
"""Seconds and keys."""
GOAL_SECONDS: Final = 60
_LANDED_AT_ONCE: Final = 100_000
"""Records of a commit that makes the tail."""


@dataclass(frozen=True)
class Landing:
    """A commit that landed records: the last offset, and its clock in epoch milliseconds."""

    through: int
    at_ms: int


def main(arguments: Sequence[str]) -> int:
    """Land, run, read; exit code 1 when a run failed."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.freshness", description=__doc__)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--keys", type=int)
    parser.add_argument("--full", action="store_true", help=f"{FULL[0]:,} seconds on {FULL[1]:,} keys")
    parser.add_argument("--rate", type=int, default=1_000, help="records per second")
    parser.add_argument("--landing", type=float, default=5.0, help="seconds between two landings")
    parser.add_argument("--lag", type=float, default=10.0, help="firn.mask.max.lag.ms, in seconds")
    parser.add_argument("--value-bytes", type=int, default=1000)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--home", type=Path, default=Path(".firn", "bench"))
    given = parser.parse_args(arguments)
    seconds, keys = FULL if given.full else SHORT
    given.seconds, given.keys = given.seconds or seconds, given.keys or keys
    home: Path = given.home.resolve()
    shutil.rmtree(home / "fresh", ignore_errors=True)
    try:
        return _measure(given, Lake.embedded(home / "fresh"), home)
    finally:
        shutil.rmtree(home / "fresh", ignore_errors=True)


def _measure(given: argparse.Namespace, lake: Lake, home: Path) -> int:
    shape = Shape(given.value_bytes, "uniform", None, 1, 0)
    stream = _stream(given.keys, int(given.rate * given.seconds))
    engine = LocalEngine(given.cores)
    _make(lake, shape, stream, given, engine)
    before = lake.table(TABLE).current_snapshot()
    assert before is not None
    failures, masks = _run_beside(lake, shape, stream, given, engine)
    ended_ms = clock.now_ms()
    waits = list(_waits(lake.table(TABLE), before.sequence_number or 0, stream.tail, ended_ms))
    case = f"{given.rate:,} records a second on {given.keys:,} keys for {given.seconds:,.0f} s"
    longest = max(waits) / 1000
    figures = f"{longest:.1f} s at most, {sum(waits) / len(waits) / 1000:.1f} s on average, {masks} masks"
    print(f"{case}: {figures}; goal: at most {GOAL_SECONDS} s")
    for failure in failures:
        print(f"FAILED: {failure}")
    if (given.seconds, given.keys) == FULL and not failures:
        known = Elsewhere.read(home)
        replace(known, ratios=known.ratios | {FRESHNESS: Ratio(longest, case, figures)}).write(home)
    return 1 if failures else 0


def _stream(keys: int, updates: int) -> Stream:
    """One record per key, then updates of any of them."""
    rng = np.random.default_rng(5)
    drawn = np.concatenate([rng.permutation(keys), rng.integers(0, keys, updates)])
    return Stream(0, drawn, np.arange(len(drawn), dtype=np.int64), keys, np.zeros(len(drawn), bool))


def _make(lake: Lake, shape: Shape, stream: Stream, given: argparse.Namespace, engine: LocalEngine) -> None:
    """A table whose tail holds every key, masked once."""
    lake.create_namespace("bench")
    records.create(
        lake, TABLE, {"firn.mask.max.lag.ms": str(int(given.lag * 1000)), "firn.segment.bytes": str(64 << 20)}
    )
    for start in range(0, stream.tail, _LANDED_AT_ONCE):
        stop = min(start + _LANDED_AT_ONCE, stream.tail)
        lake.table(TABLE).append(batches(shape, stream, start, stop, level=None))
    for lane in (Lane.FULL, Lane.MASK):
        run_lane(lake, TABLE, lane, engine, clock.now_ms())


def _run_beside(
    lake: Lake, shape: Shape, stream: Stream, given: argparse.Namespace, engine: LocalEngine
) -> tuple[list[str], int]:
    """Land and run until all is landed and masked; the plans that failed, and the number of masks.

    Raises what a landing raised.
    """
    failures: list[str] = []
    masks = 0
    with ThreadPoolExecutor(1) as thread:
        landing = thread.submit(_land, lake, shape, stream, given)
        # After the last landing for as long as a landing may wait.
        last: float | None = None
        while last is None or time.monotonic() < last + 2 * given.lag:
            if last is None and landing.done():
                landing.result()
                last = time.monotonic()
            for lane in run(lake, TABLE, clock.now_ms(), lambda _: engine):
                failures += [f"{title}: {error}" for title, error in lane.failures.items()]
                masks += len(lane.publications) if lane.lane is Lane.MASK else 0
            time.sleep(0.2)
    return failures, masks


def _land(lake: Lake, shape: Shape, stream: Stream, given: argparse.Namespace) -> None:
    """Land a segment every few seconds; one that is late does not delay the next ones."""
    size = int(given.rate * given.landing)
    started = time.monotonic()
    for number, start in enumerate(range(stream.tail, len(stream), size), 1):
        rows = batches(shape, stream, start, min(start + size, len(stream)), level=None)
        time.sleep(max(0.0, started + number * given.landing - time.monotonic()))
        lake.table(TABLE).append(rows)


def _waits(table: Table, since: int, landed: int, ended_ms: int) -> Iterator[int]:
    """For every landing past sequence number ``since``, when ``landed`` offsets were there, milliseconds until a
    snapshot showed one record per key up to it; the time up to ``ended_ms`` where none did."""
    waiting: list[Landing] = []
    later = [one for one in ancestors(table) if (one.sequence_number or 0) > since]
    for snapshot in sorted(later, key=lambda one: one.sequence_number or 0):
        properties = properties_of(snapshot)
        if not any(name.startswith(SUMMARY_PREFIX) for name in properties):
            landed += int(properties["added-records"])
            waiting.append(Landing(landed - 1, snapshot.timestamp_ms))
            continue
        through = _fresh_through(table, snapshot.snapshot_id)
        yield from (snapshot.timestamp_ms - one.at_ms for one in waiting if one.through <= through)
        waiting = [one for one in waiting if one.through > through]
    yield from (ended_ms - one.at_ms for one in waiting)


def _fresh_through(table: Table, snapshot_id: int) -> float:
    """The offset up to which readers of a snapshot see one record per key; infinite where they see one of each."""
    rows = table.scan(snapshot_id=snapshot_id, selected_fields=("key", "offset")).to_arrow()
    seen = pa.table({"key": rows["key"], "seen_at": rows["offset"]})  # noqa: F841  # DuckDB finds it by its name
    with duckdb.connect() as connection:
        again = "SELECT lead(seen_at) OVER (PARTITION BY key ORDER BY seen_at) AS newer FROM seen"
        row = connection.execute(f"SELECT min(newer) FROM ({again})").fetchone()
    return inf if row is None or row[0] is None else row[0] - 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
