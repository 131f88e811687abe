"""Read what transactions left in a table: narrow columns of few segments, by PyIceberg, without a JVM (C10).

Bounds of ``is_transactional`` and ``is_control`` tell which segments may hold what. A table without these columns, or
without a transactional record at levels 0 and 1, costs nothing here.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import Or
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table

from pipeline.lake import records
from pipeline.lake.filters import holds
from pipeline.lake.manifests import READERS
from pipeline.lake.topic_partition import TopicPartition
from pipeline.segments import Segment, Segments
from pipeline.segments.arrays import arrays_of
from pipeline.segments.planned import planned
from pipeline.segments.segment import RUN
from pipeline.sense.transactions import RECORDS, Transactions, Undecided, first_undecided, last_of, markers_of

_CONTROL, _TRANSACTIONAL = holds("is_control"), holds("is_transactional")


def transactions_of(
    table: Table, segments: Segments, only: Collection[TopicPartition] = ()
) -> Mapping[TopicPartition, Transactions]:
    """The transactions of each topic partition that may hold undecided ones (of ``only`` these, if any).

    ``segments`` are those of a snapshot of ``table``, which is the one that is read.
    """
    if not records.has_transactions(table):
        return {}
    by_partition = {
        where: segments.by_partition[where] for where in _may_be_undecided_in(segments) if not only or where in only
    }
    # A topic partition that waits for its equality deletes needs no other reason, and no scan applies these.
    wanted = {where: own for where, own in by_partition.items() if not any(one.holding_deletes for one in own)}
    if not wanted:
        return {}
    paths = {segment.path for own in wanted.values() for segment in own}
    files = planned(table, segments.snapshot_id, Or(_CONTROL, _TRANSACTIONAL), paths)
    reader = _Reader(table, files.tasks)
    with ThreadPoolExecutor(READERS) as readers:
        return dict(zip(wanted, readers.map(partial(_transactions, reader), wanted.values()), strict=True))


def _may_be_undecided_in(segments: Segments) -> Iterator[TopicPartition]:
    arrays = arrays_of(segments)
    held = np.flatnonzero(arrays.transactional & (arrays.level < RUN))
    places = np.unique(np.searchsorted(arrays.starts, held, side="right") - 1)
    return map(arrays.topic_partition, places.tolist())


def _may_be_undecided(segment: Segment) -> bool:
    """A cleaning takes nothing that is undecided, so what has reached level 2 is not."""
    return segment.transactional and segment.level < RUN


def _transactions(reader: "_Reader", own: Iterable[Segment]) -> Transactions:
    landed = [segment for segment in own if _may_be_undecided(segment)]
    start = min(segment.base_offset for segment in landed)
    try:
        # Markers below the first record that may be undecided decide others.
        markers = {one.path: reader.markers(one) for one in own if one.control and one.last_offset >= start}
        last = last_of(markers.values())
        pending = [undecided for segment in landed if (undecided := reader.undecided(segment, last))]
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        return Transactions(problem=f"its transactions can't be read: {reason}; allowed: segments that can be read")
    return Transactions(min(pending, key=lambda one: one.offset, default=None), markers)


class _Reader:
    """Reads narrow columns of data files of one snapshot."""

    def __init__(self, table: Table, tasks: Mapping[str, FileScanTask]) -> None:
        self._tasks = tasks
        schema = table.schema()
        self._control = ArrowScan(table.metadata, table.io, schema.select("producer_id", "offset", "key"), _CONTROL)
        self._records = ArrowScan(
            table.metadata, table.io, schema.select("producer_id", "offset", "is_control"), _TRANSACTIONAL
        )

    def markers(self, segment: Segment) -> pa.Table:
        """The markers in ``segment``."""
        return markers_of(self._read(self._control, segment))

    def undecided(self, segment: Segment, last: pa.Table) -> Undecided | None:
        """The first record of ``segment`` that no marker decides."""
        rows = self._read(self._records, segment)
        data = rows.filter(~pc.coalesce(pc.field("is_control"), pc.scalar(False)))  # noqa: FBT003  # Arrow's false
        return first_undecided(data.select(RECORDS.names).cast(RECORDS), last)

    def _read(self, scan: ArrowScan, segment: Segment) -> pa.Table:
        # A file that the scan's own pruning left out holds nothing of what is asked for.
        return scan.to_table([self._tasks[segment.path]] if segment.path in self._tasks else [])
