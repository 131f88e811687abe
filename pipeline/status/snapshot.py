"""Write a table's status down for pages: figures, topic partitions, last commits, verdicts, quarantine."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.lake import Lake
from pipeline.lake.topic_partition import TopicPartition
from pipeline.overview import COLUMNS, Conditions, Details, Level, Quarantined, Summary
from pipeline.overview import file as overview_file
from pipeline.overview.results import last_verdicts
from pipeline.quarantine import Batch, batches
from pipeline.segments.segment import LEVELS
from pipeline.status.history import work_on
from pipeline.status.status import PartitionStatus, Status, status_of

QUARANTINED_SHOWN = 100
"""Batches of quarantined records that are listed, the largest; ``firn quarantine`` lists all."""

_LOWEST, _HIGHEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def write_snapshot(lake: Lake, table: str, now_ms: int) -> Summary:
    """Write the status of ``table`` at ``now_ms`` (epoch milliseconds) under the lake's home; what it says in short.

    From metadata alone, no JVM. Read it with ``pipeline.overview.read``. Raises RefusedError for an unknown table, or
    a folder that can't be written to.
    """
    (status,) = status_of(lake, table, now_ms)
    quarantined = batches(lake, table)
    work = work_on(lake.table(table))
    verdicts = last_verdicts(lake.reports_folder, table)
    summary = Summary(
        table=table,
        snapshot_id=status.snapshot_id,
        taken_ms=now_ms,
        topic_partitions=len(status.partitions),
        levels=_levels(status),
        conditions=Conditions(**Counter(part.condition.value for part in status.partitions)),
        max_dirty_ratio=max((part.dirty_ratio for part in status.partitions), default=0.0),
        max_lag_ms=_bounded(max((part.lag_ms for part in status.partitions if part.lag_ms is not None), default=None)),
        quarantined_records=sum(batch.records for batch in quarantined),
        landed_bytes=work.landed_bytes,
        written_bytes=work.written_bytes,
        saved_bytes=work.saved_bytes,
        since_ms=work.since_ms,
        last_publication=next(iter(work.publications), None),
        last_verdict=next(iter(verdicts), None),
    )
    details = Details(
        publications=work.publications,
        verdicts=verdicts,
        quarantine=_largest(quarantined),
        strays=status.strays,
        doubts=status.doubts,
    )
    overview_file.write(lake.home, summary, details, _rows(status.partitions, quarantined))
    return summary


def _levels(status: Status) -> tuple[Level, Level, Level, Level]:
    sums = {level: Counter[str]() for level in LEVELS}
    for part in status.partitions:
        for found in part.levels:
            if found.level in sums:  # a file that claims another blocks its topic partition
                sums[found.level].update(segments=found.segments, records=found.records, bytes=found.bytes)
    landed, merged, cleaned, tail = (Level(**sums[level]) for level in LEVELS)
    return landed, merged, cleaned, tail


def _largest(quarantined: Sequence[Batch]) -> tuple[Quarantined, ...]:
    largest = sorted(quarantined, key=lambda batch: (-batch.records, batch.topic_partition))[:QUARANTINED_SHOWN]
    return tuple(
        Quarantined(
            topic_partition=str(batch.topic_partition),
            reason=batch.reason,
            plan=batch.plan,
            records=batch.records,
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
        )
        for batch in largest
    )


def _rows(parts: Sequence[PartitionStatus], quarantined: Sequence[Batch]) -> pa.Table:
    """The topic partitions as columns; those that have nothing but quarantined records have no row."""
    records: Counter[TopicPartition] = Counter()
    for batch in quarantined:
        records[batch.topic_partition] += batch.records
    return pa.Table.from_pylist([_row(part, records) for part in parts], schema=COLUMNS)


def _row(part: PartitionStatus, quarantined: Mapping[TopicPartition, int]) -> dict[str, Any]:
    sizes = {
        f"l{found.level}_{name}": value
        for found in part.levels
        for name, value in (("segments", found.segments), ("records", found.records), ("bytes", found.bytes))
    }
    return dict.fromkeys((f"l{level}_{what}" for level in LEVELS for what in ("segments", "records", "bytes")), 0) | {
        **sizes,
        "name": str(part.topic_partition),
        **part.topic_partition._asdict(),
        "condition": part.condition.value,
        "segments": sum(found.segments for found in part.levels),
        "records": sum(found.records for found in part.levels),
        "bytes": sum(found.bytes for found in part.levels),
        "dirty_ratio": part.dirty_ratio,
        "lag_ms": _bounded(part.lag_ms),
        "cleanable_bytes": part.cleanable_bytes,
        "uncleanable_bytes": part.uncleanable_bytes,
        "first_dirty_offset": part.first_dirty_offset,
        "due_in_ms": _bounded(part.due_in_ms),
        "quarantined": quarantined.get(part.topic_partition, 0),
        "due": list(starmap("{}: {}".format, part.due.items())),
        "in_the_way": list(part.blockers),
        "waiting": list(part.waiting),
    }


def _bounded(milliseconds: int | None) -> int | None:
    """As 64 bits hold it: timestamps are the producers', and may be anything."""
    return None if milliseconds is None else min(max(milliseconds, _LOWEST), _HIGHEST)
