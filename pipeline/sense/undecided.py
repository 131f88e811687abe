"""Read what transactions left in a table: narrow columns of few segments, without a JVM (C10).

Bounds of ``is_transactional`` and ``is_control`` tell which segments may hold what. A table without these columns, or
without a transactional record at levels 0 and 1, costs nothing here.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from pipeline.errors import FirnError
from pipeline.lake import records
from pipeline.lake.branches import at_snapshot
from pipeline.lake.data_files import DataFiles, Source
from pipeline.lake.hidden_records import DeletedFrom, HiddenRecords
from pipeline.lake.manifests import READERS
from pipeline.lake.row_deletes import FileDeletes
from pipeline.lake.topic_partition import TopicPartition
from pipeline.segments import Segment, Segments
from pipeline.segments.arrays import arrays_of
from pipeline.segments.read import read_entries
from pipeline.segments.segment import RUN
from pipeline.sense.transactions import RECORDS, Transactions, Undecided, first_undecided, last_of, markers_of


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
    # A topic partition that waits for its equality deletes needs no other reason.
    wanted = {where: own for where, own in by_partition.items() if not any(one.holding_deletes for one in own)}
    if not wanted:
        return {}
    paths = {segment.path for own in wanted.values() for segment in own}
    reader = _Reader(table, segments.snapshot_id, paths)
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
    except FirnError as error:
        return Transactions(problem=f"its transactions can't be read: {error}")
    return Transactions(min(pending, key=lambda one: one.offset, default=None), markers)


class _Reader:
    """Reads narrow columns of data files of one snapshot."""

    def __init__(self, table: Table, snapshot_id: int | None, paths: Collection[str]) -> None:
        self._files = DataFiles.of(table)
        entries = list(read_entries(at_snapshot(table, snapshot_id), among=paths))
        self._sources = {entry.data_file.file_path: Source.of(entry.data_file) for entry, _ in entries}
        reached = (
            DeletedFrom(Source.of(entry.data_file), FileDeletes(entry.sequence_number or 0, tuple(deletes)))
            for entry, deletes in entries
            if deletes
        )
        self._hidden = HiddenRecords(self._files, reached)

    def markers(self, segment: Segment) -> pa.Table:
        """The markers in ``segment``."""
        return markers_of(self._read(segment, "is_control", ("producer_id", "offset", "key")))

    def undecided(self, segment: Segment, last: pa.Table) -> Undecided | None:
        """The first record of ``segment`` that no marker decides."""
        rows = self._read(segment, "is_transactional", ("producer_id", "offset", "is_control"))
        data = rows.filter(~pc.coalesce(pc.field("is_control"), pc.scalar(False)))  # noqa: FBT003  # Arrow's false
        return first_undecided(data.select(RECORDS.names).cast(RECORDS), last)

    def _read(self, segment: Segment, flag: str, columns: Sequence[str]) -> pa.Table:
        """The ``columns`` of the records that readers see and ``flag`` is true of."""
        source, names = self._sources[segment.path], [flag, *columns]
        hidden, first = self._hidden.of(source), 0
        found = []
        for batch in self._files.batches(source, names):
            flagged = batch.column(flag)
            if hidden is not None:
                flagged = pc.and_(flagged, pa.array(~hidden[first : first + len(batch)]))
            found.append(batch.filter(flagged))
            first += len(batch)
        return pa.Table.from_batches(found, self._files.arrow_schema(names)).select(list(columns))
