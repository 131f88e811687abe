"""The undecided transactions of a topic partition, and the markers that decide the inputs of a plan (C10).

A transactional record is decided by the first marker of the record's producer at a higher offset, whatever the marker's
epoch, because the transaction of a fenced producer is aborted under the next epoch. The offset of the first undecided
record is the last stable offset (KIP-98). This module reads only narrow columns of few segments, without a JVM. The
bounds of ``is_transactional`` and ``is_control`` tell which segments may hold transactional records and markers.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from firnlake.errors import FirnError
from firnlake.iceberg.branches import at_snapshot
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.deletes import HiddenRecords
from firnlake.iceberg.manifests import READERS
from firnlake.table import records
from firnlake.table.manifest_reader import read_entries
from firnlake.table.segment import RUN, Segment, Segments, TopicPartition

MARKERS = pa.schema([("producer_id", pa.int64()), ("offset", pa.int64()), ("commit", pa.bool_())])
RECORDS = pa.schema([("producer_id", pa.int64()), ("offset", pa.int64())])

_COMMIT, _ABORT = b"\x00\x01", b"\x00\x00"
"""Types of a control record. In the record's key, the type follows a version of 2 bytes (Kafka's ControlRecordType)."""


class Marker(NamedTuple):
    """The control record at ``offset`` that ends a transaction of ``producer_id``."""

    producer_id: int
    offset: int
    commit: bool


class Undecided(NamedTuple):
    """The oldest record that no marker decides. ``producer_id`` is None if the record lacks its producer."""

    offset: int
    producer_id: int | None

    def __str__(self) -> str:
        """The transaction's description in messages."""
        return f"transaction of producer {self.producer_id} is undecided from offset {self.offset} on"


@dataclass(frozen=True)
class Transactions:
    """The transactions of a topic partition; by default there are none."""

    undecided: Undecided | None = None
    markers: Mapping[str, pa.Table] = field(default_factory=dict)
    """Tables of markers (schema ``MARKERS``) that may decide a record of levels 0 and 1, by path of their segment."""
    problem: str | None = None
    """Why the transactions can't be read, which blocks the topic partition (C20); None if they were read."""

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """True when the first marker of ``producer_id`` past ``offset`` aborts the producer's record at ``offset``."""
        of_producer = (pc.field("producer_id") == producer_id) & (pc.field("offset") > offset)
        past = pa.concat_tables([MARKERS.empty_table(), *self.markers.values()]).filter(of_producer).sort_by("offset")
        return past.num_rows > 0 and not past["commit"][0].as_py()

    def deciding(self, inputs: Collection[Segment]) -> tuple[Marker, ...]:
        """The markers outside ``inputs`` that decide records in ``inputs``, in offset order.

        Records of levels 2 and 3 need no marker, because a cleaning has removed the aborted records. Past the last
        input, the first marker of each producer is enough, so the result is small.
        """
        landed = [segment for segment in inputs if segment.transactional and segment.level < RUN]
        taken = {segment.path for segment in inputs}
        outside = [markers for path, markers in self.markers.items() if path not in taken]
        if not landed or not outside:
            return ()
        first, last = min(one.base_offset for one in landed), max(one.last_offset for one in landed)
        markers = pa.concat_tables(outside).filter(pc.field("offset") > first).sort_by("offset")
        between, past = markers.filter(pc.field("offset") <= last), markers.filter(pc.field("offset") > last)
        nearest = past.group_by("producer_id", use_threads=False).aggregate([("offset", "first"), ("commit", "first")])
        nearest = nearest.select(["producer_id", "offset_first", "commit_first"]).rename_columns(MARKERS.names)
        rows = pa.concat_tables([between, nearest.cast(MARKERS)]).to_pylist()
        return tuple(sorted({Marker(**row) for row in rows}, key=lambda one: (one.offset, one.producer_id)))


NO_TRANSACTIONS = Transactions()


def markers_of(control: pa.Table) -> pa.Table:
    """The markers among ``control`` records (columns producer_id, offset, key); other control records are left out."""
    kinds = pc.binary_slice(control["key"], 2, 4)
    known = pc.or_(pc.equal(kinds, _COMMIT), pc.equal(kinds, _ABORT))
    columns = [control["producer_id"], control["offset"], pc.equal(kinds, _COMMIT)]
    return pa.table(columns, schema=MARKERS).filter(known)


def last_of(markers: Iterable[pa.Table]) -> pa.Table:
    """The last marker of every producer: columns ``producer_id`` and ``offset_max``."""
    together = pa.concat_tables([MARKERS.empty_table(), *markers])
    return together.group_by("producer_id").aggregate([("offset", "max")])


def first_undecided(records: pa.Table, last: pa.Table) -> Undecided | None:
    """The first of ``records`` (schema ``RECORDS``) past the ``last`` marker of its producer; None if all are decided.

    A record without a producer is never decided.
    """
    joined = records.join(last, "producer_id", join_type="left outer")
    still_open = joined.filter(pc.field("offset") > pc.coalesce(pc.field("offset_max"), pc.scalar(-1)))
    if not still_open.num_rows:
        return None
    first = still_open.sort_by("offset").slice(0, 1).to_pylist()[0]
    return Undecided(first["offset"], first["producer_id"])


def transactions_of(
    table: Table, segments: Segments, only: Collection[TopicPartition] = ()
) -> Mapping[TopicPartition, Transactions]:
    """The transactions of each topic partition that may hold undecided records, by topic partition.

    If ``only`` is not empty, all other topic partitions are left out. Reads the snapshot of ``segments``.
    """
    if not records.has_transactions(table):
        return {}
    by_partition = {where: segments[where] for where in _may_be_undecided_in(segments) if not only or where in only}
    # If equality deletes hold up a segment, its topic partition is blocked whatever its transactions are.
    wanted = {where: own for where, own in by_partition.items() if not any(one.holding_deletes for one in own)}
    if not wanted:
        return {}
    paths = {segment.path for own in wanted.values() for segment in own}
    reader = _Reader(table, segments.snapshot_id, paths)
    with ThreadPoolExecutor(READERS) as readers:
        return dict(zip(wanted, readers.map(partial(_transactions, reader), wanted.values()), strict=True))


def _may_be_undecided_in(segments: Segments) -> Iterator[TopicPartition]:
    held = np.flatnonzero(segments.fact("transactional") & (segments.fact("level") < RUN))
    places = np.unique(np.searchsorted(segments.starts, held, side="right") - 1)
    return (segments.owners[place] for place in places.tolist())


def _transactions(reader: "_Reader", own: Iterable[Segment]) -> Transactions:
    # A cleaning takes no undecided record, so all records of levels 2 and 3 are decided.
    landed = [segment for segment in own if segment.transactional and segment.level < RUN]
    start = min(segment.base_offset for segment in landed)
    try:
        # A marker at a lower offset than all records that may be undecided decides none of them.
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
        reached = {entry.data_file.file_path: deletes for entry, deletes in entries if deletes}
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
        """The ``columns`` of those records that readers see and in which the column ``flag`` is true."""
        names = [flag, *columns]
        visible = self._hidden.visible(self._sources[segment.path], names)
        found = [batch.filter(batch.column(flag)) for batch in visible]
        return pa.Table.from_batches(found, self._files.arrow_schema(names)).select(list(columns))
