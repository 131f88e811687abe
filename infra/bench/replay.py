"""Write and space amplification of the product itself: small files land, and Firn runs on a virtual clock.

One topic partition gets 38,400 records over 5,000 uniform keys, as from a sink that commits a file of 20 records every
30 seconds. Firn runs whenever 32 files have landed, which is when a watched table starts its DAG. What is counted are
records, all of one size: those that plans wrote per record that landed, and those in the table per key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from firnlake.ingest.land import land
from firnlake.lanes import Lane
from firnlake.run import run
from firnlake.table import records
from firnlake.table.manifest_reader import read
from firnlake.table.segment import TAIL
from infra.bench.data import Longs, Shape, Stream, batches, in_order
from infra.bench.inputs import NAMESPACE, Bench, drop
from infra.bench.measure import Figures, in_turns
from infra.bench.results import Case

TABLE: Final = f"{NAMESPACE}.replay"
KEYS: Final = 5_000
RECORDS: Final = 38_400
VALUE_BYTES: Final = (30, 200, 970)
RECORDS_PER_FILE: Final = 20
RECORD_MS: Final = 1_500
"""Between two records, and so 30 s between two files: a file lands with its last record."""
EVERY_MS: Final = 32 * RECORDS_PER_FILE * RECORD_MS
"""Between two runs."""
START_MS: Final = 1_767_225_600_000
"""Start of the virtual clock, epoch milliseconds: 2026-01-01T00:00:00Z."""
POLICIES: Final[Mapping[str, str]] = {
    "Firn": "firn",
    "Kafka": "kafka",
    "WarpStream": "warpstream",
}
"""Profiles, by the name of their entry."""


def cases(bench: Bench) -> Iterator[Case]:
    """A case for each size of values; the reference is as large at every scale."""
    keys = np.random.default_rng([0, 0]).integers(0, KEYS, RECORDS)
    for size in VALUE_BYTES:
        entries = {name: partial(_replayed, bench, keys, size, profile) for name, profile in POLICIES.items()}
        title = f"{RECORDS:,} records over {KEYS:,} uniform keys, 20 in a file, values of {size} B"
        yield Case("replay", title, {"value bytes": size}, in_turns(entries, 1))


def _replayed(bench: Bench, keys: Longs, size: int, profile: str) -> Figures:
    """Land records of ``keys`` with values of ``size`` bytes, and run Firn after every 32 files."""
    drop(bench.lake, TABLE)
    records.create(bench.lake, TABLE, {"firn.profile": profile})
    shape, stream = Shape(size, "uniform", None, 1, 0), in_order(keys)
    _, firsts = np.unique(keys, return_index=True)
    landed, written, full = 0, 0, 0
    looks: list[_Look] = []
    for now_ms in range(START_MS + EVERY_MS, START_MS + RECORDS * RECORD_MS + EVERY_MS, EVERY_MS):
        end = min(RECORDS, (now_ms - START_MS) // RECORD_MS + 1) // RECORDS_PER_FILE * RECORDS_PER_FILE
        files = []
        for first in range(landed, end, RECORDS_PER_FILE):
            files.append(bench.scratch / f"{first:06}.parquet")
            pq.write_table(_rows(shape, stream, first), files[-1])
        land(bench.lake, TABLE, files)
        landed, seen = end, int(np.count_nonzero(firsts < end))
        looks.append(_Look.at(bench, seen, now_ms))
        for lane in run(bench.lake, TABLE, now_ms, lambda _: bench.local):
            if lane.failures:
                raise RuntimeError(f"{TABLE}: {lane.failures}")
            written += sum(one.counts.records_out for one in lane.publications if one.counts)
            full += len(lane.publications) if lane.lane is Lane.FULL else 0
        looks.append(_Look.at(bench, seen, now_ms))
    return {
        "written per record": written / landed,
        "held per key": float(np.mean([look.held for look in looks])),
        "segments": float(np.mean([look.segments for look in looks])),
        "most segments": max(look.segments for look in looks),
        "longest lag": max(look.lag_seconds for look in looks),
        "full cleanings": full,
    }


@dataclass(frozen=True)
class _Look:
    """The records and segments in the table at one moment."""

    held: float
    """Records per key that has landed."""
    segments: int
    lag_seconds: float
    """For how long the oldest record of the head has waited for lane ``full``."""

    @classmethod
    def at(cls, bench: Bench, keys: int, now_ms: int) -> Self:
        """The look at the clock ``now_ms``, when records of ``keys`` keys have landed."""
        segments = list(read(bench.lake.table(TABLE), TABLE).each())
        oldest = min((one.oldest_ms for one in segments if one.level != TAIL), default=now_ms)
        return cls(sum(one.records for one in segments) / keys, len(segments), (now_ms - oldest) / 1000)


def _rows(shape: Shape, stream: Stream, first: int) -> pa.Table:
    """The records of one file, from offset ``first``, with the timestamps of the virtual clock."""
    offsets = range(first, first + RECORDS_PER_FILE)
    rows = batches(shape, stream, offsets.start, offsets.stop).select(records.KAFKA_COLUMNS)
    stamps = [(START_MS + offset * RECORD_MS) * 1000 for offset in offsets]
    index = rows.schema.get_field_index("timestamp")
    return rows.set_column(index, rows.schema.field(index), pa.array(stamps).cast(rows.schema.field(index).type))
