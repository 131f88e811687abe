"""How long readers see two records of a key.

A thread lands 1,000 records a second on uniform keys, a segment every five seconds. Beside it Firn runs in a loop: lane
``hide`` when it is due, and all other lanes. Afterwards Firn's snapshots are read again: a landing is fresh from the
first of them on that shows one record per key up to it. Measured is the time from the commit of a landing to that of
this snapshot.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from firnlake import clock
from firnlake.iceberg.branches import ancestors
from firnlake.job.lane import Lane
from firnlake.run import run
from firnlake.table import records
from firnlake.table.published_plans import SUMMARY_PREFIX, properties_of
from infra.bench.data import Shape, Stream, batches, in_order
from infra.bench.inputs import NAMESPACE, Bench, append_all, run_lane
from infra.bench.measure import Figures, in_turns
from infra.bench.results import Case

TABLE: Final = f"{NAMESPACE}.fresh"
SECONDS: Final = 1_800
KEYS: Final = 1_000_000
"""At SCALE=1."""
RATE: Final = 1_000
"""Records a second."""
LANDING_SECONDS: Final = 5
"""Between two landings."""
LAG_SECONDS: Final = 10
"""firn.hide.max.lag.ms, and after the last landing half of the time for which Firn runs on."""
SHAPE: Final = Shape(1000, "uniform", None, 1, 0)


def cases(bench: Bench) -> Iterator[Case]:
    """One case."""
    seconds, keys = int(SECONDS * bench.scale), int(KEYS * bench.scale)
    title = f"{RATE:,} records a second on {keys:,} keys for {seconds:,} s"
    measured = in_turns({"firn in a loop": lambda: _waited(bench, keys, seconds)}, 1)
    yield Case("freshness", title, {"keys": keys}, measured)


def _waited(bench: Bench, keys: int, seconds: int) -> Figures:
    """Make a table whose tail holds every key, compared once; land into it, and look at what readers saw meanwhile."""
    lake = bench.lake
    rng = np.random.default_rng(5)
    stream = in_order(np.concatenate([rng.permutation(keys), rng.integers(0, keys, RATE * seconds)]))
    properties = {"firn.hide.max.lag.ms": str(LAG_SECONDS * 1000), "firn.segment.bytes": str(64 << 20)}
    records.create(lake, TABLE, properties)
    append_all(lake, TABLE, SHAPE, stream, keys)
    for lane in (Lane.FULL, Lane.HIDE):
        run_lane(lake, TABLE, lane, bench.local, clock.now_ms())
    before = lake.table(TABLE).metadata.next_sequence_number() - 1
    commits = _run_beside(bench, stream, keys)
    waits = list(_waits(lake.table(TABLE), before, keys, clock.now_ms()))
    return {"longest wait": max(waits) / 1000, "mean wait": sum(waits) / len(waits) / 1000, "commits": commits}


def _run_beside(bench: Bench, stream: Stream, landed: int) -> int:
    """Run until all is landed and hidden; how often lane ``hide`` committed. Raises what a landing or a plan raised."""
    commits = 0
    with ThreadPoolExecutor(1) as thread:
        landing = thread.submit(_land, bench, stream, landed)
        last: float | None = None
        while last is None or time.monotonic() < last + 2 * LAG_SECONDS:
            if last is None and landing.done():
                landing.result()
                last = time.monotonic()
            for lane in run(bench.lake, TABLE, clock.now_ms(), lambda _: bench.local):
                if lane.failures:
                    raise RuntimeError(f"{TABLE}: {lane.failures}")
                commits += len(lane.publications) if lane.lane is Lane.HIDE else 0
            time.sleep(0.2)
    return commits


def _land(bench: Bench, stream: Stream, landed: int) -> None:
    """Land a segment every few seconds; one that is late does not delay the next ones."""
    started = time.monotonic()
    for number, start in enumerate(range(landed, len(stream), RATE * LANDING_SECONDS), 1):
        rows = batches(SHAPE, stream, start, min(start + RATE * LANDING_SECONDS, len(stream)))
        time.sleep(max(0.0, started + number * LANDING_SECONDS - time.monotonic()))
        bench.lake.table(TABLE).append(rows)


def _waits(table: Table, since: int, landed: int, ended_ms: int) -> Iterator[int]:
    """For every landing past sequence number ``since``, when ``landed`` offsets were there, milliseconds until a
    snapshot showed one record per key up to it; the time up to ``ended_ms`` where none did."""
    waiting: list[tuple[int, int]] = []
    """The last offset of a landing, and the clock of its commit."""
    later = [one for one in ancestors(table) if (one.sequence_number or 0) > since]
    for snapshot in sorted(later, key=lambda one: one.sequence_number or 0):
        properties = properties_of(snapshot)
        if not any(name.startswith(SUMMARY_PREFIX) for name in properties):
            landed += int(properties["added-records"])
            waiting.append((landed - 1, snapshot.timestamp_ms))
            continue
        through = _fresh_through(table, snapshot.snapshot_id)
        yield from (snapshot.timestamp_ms - at_ms for last, at_ms in waiting if last <= through)
        waiting = [one for one in waiting if one[0] > through]
    yield from (ended_ms - at_ms for _, at_ms in waiting)


def _fresh_through(table: Table, snapshot_id: int) -> float:
    """The offset up to which readers of a snapshot see one record per key; infinite where they see one of each."""
    rows = table.scan(snapshot_id=snapshot_id, selected_fields=("key", "offset")).to_arrow()
    seen = pa.table({"key": rows["key"], "seen_at": rows["offset"]})  # noqa: F841  # DuckDB finds it by its name
    with duckdb.connect() as connection:
        again = "SELECT lead(seen_at) OVER (PARTITION BY key ORDER BY seen_at) AS newer FROM seen"
        row = connection.execute(f"SELECT min(newer) FROM ({again})").fetchone()
    return inf if row is None or row[0] is None else row[0] - 1
