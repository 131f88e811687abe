"""The undecided transactions of a topic partition, and the markers that decide the inputs of a plan (C10).

A transactional record is decided by the first marker of its producer past it, whatever the marker's epoch: a producer
that was fenced off has its transaction aborted under the next one. The offset of the first undecided record is Kafka's
last stable offset (KIP-98). Pure: rows in, decisions out.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.segments import Segment
from pipeline.segments.segment import RUN

MARKERS = pa.schema([("producer_id", pa.int64()), ("offset", pa.int64()), ("commit", pa.bool_())])
RECORDS = pa.schema([("producer_id", pa.int64()), ("offset", pa.int64())])

_COMMIT, _ABORT = b"\x00\x01", b"\x00\x00"
"""Type of a control record, after two bytes of version in its key (Kafka's ControlRecordType)."""


class Marker(NamedTuple):
    """The control record at ``offset`` that ends a transaction of ``producer_id``."""

    producer_id: int
    offset: int
    commit: bool


class Undecided(NamedTuple):
    """The oldest record of which nobody knows whether it was committed. A record may lack its producer."""

    offset: int
    producer_id: int | None

    def __str__(self) -> str:
        """Its name in messages."""
        return f"transaction of producer {self.producer_id} undecided since offset {self.offset}"


@dataclass(frozen=True)
class Transactions:
    """The transactions of a topic partition, as read; by default there are none."""

    undecided: Undecided | None = None
    markers: Mapping[str, pa.Table] = field(default_factory=dict)
    """Markers that may decide a record of levels 0 and 1, by the path of their segment, as ``MARKERS``."""
    problem: str | None = None
    """Why they can't be told, which blocks the topic partition (C20)."""

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """True when the first marker of ``producer_id`` past ``offset`` aborts the transaction of a record there."""
        of_producer = (pc.field("producer_id") == producer_id) & (pc.field("offset") > offset)
        past = pa.concat_tables([MARKERS.empty_table(), *self.markers.values()]).filter(of_producer).sort_by("offset")
        return past.num_rows > 0 and not past["commit"][0].as_py()

    def deciding(self, inputs: Collection[Segment]) -> tuple[Marker, ...]:
        """The markers outside ``inputs`` that decide records among them, in offset order.

        Records of levels 2 and 3 are decided: a cleaning took the aborted ones out. Past the last input the first
        marker of each producer is enough, so the answer is small.
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
        rows = [
            *zip(*(between[name].to_pylist() for name in MARKERS.names), strict=True),
            *zip(*(nearest[name].to_pylist() for name in ("producer_id", "offset_first", "commit_first")), strict=True),
        ]
        return tuple(
            sorted((Marker(*row) for row in set(rows)), key=lambda marker: (marker.offset, marker.producer_id))
        )


NO_TRANSACTIONS = Transactions()


def markers_of(control: pa.Table) -> pa.Table:
    """The markers among control records (columns producer_id, offset, key): other types of them decide nothing."""
    kinds = pc.binary_slice(control["key"], 2, 4)
    known = pc.or_(pc.equal(kinds, _COMMIT), pc.equal(kinds, _ABORT))
    columns = [control["producer_id"], control["offset"], pc.equal(kinds, _COMMIT)]
    return pa.table(columns, schema=MARKERS).filter(known)


def last_of(markers: Iterable[pa.Table]) -> pa.Table:
    """The last marker of every producer: columns ``producer_id`` and ``offset_max``."""
    together = pa.concat_tables([MARKERS.empty_table(), *markers])
    return together.group_by("producer_id").aggregate([("offset", "max")])


def first_undecided(records: pa.Table, last: pa.Table) -> Undecided | None:
    """The first of ``records`` (as ``RECORDS``) past the ``last_of`` its producer's markers; None when all are decided.

    A record without a producer is never decided.
    """
    joined = records.join(last, "producer_id", join_type="left outer")
    still_open = joined.filter(pc.field("offset") > pc.coalesce(pc.field("offset_max"), pc.scalar(-1)))
    if not still_open.num_rows:
        return None
    first = still_open.sort_by("offset").slice(0, 1).to_pylist()[0]
    return Undecided(first["offset"], first["producer_id"])
