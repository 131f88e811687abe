"""Find the records of aborted transactions, and the markers of transactions that have no records left (C10).

Kafka's CleanedTransactionMetadata does the same with the transaction index while it reads the log in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firnlake.iceberg.keys import Flags, Longs
from firnlake.table.segment import RUN
from firnlake.table.transactions import Marker

COLUMNS: Final = ("is_control", "is_transactional", "producer_id")
_NO_PRODUCER: Final = np.iinfo(np.int64).min
_NONE, _ABORT, _COMMIT = -1, 0, 1
_KINDS: Final = {_ABORT: b"\x00\x00", _COMMIT: b"\x00\x01"}
"""Control record types, which follow two bytes of version in the key (Kafka's ControlRecordType)."""


@dataclass(frozen=True)
class TransactionRecords:
    """The transaction columns of one segment's records; ``ends`` is _COMMIT or _ABORT for a marker."""

    control: Flags
    transactional: Flags
    producer: Longs
    ends: NDArray[np.int8]
    level: int

    @classmethod
    def of(cls, batch: pa.RecordBatch, level: int) -> "TransactionRecords":
        """Read the columns COLUMNS and ``key`` of a batch."""
        control, transactional = (_flags(batch.column(name)) for name in COLUMNS[:2])
        producer = pc.fill_null(batch.column(COLUMNS[2]), _NO_PRODUCER).to_numpy(zero_copy_only=False)
        ends = np.full(batch.num_rows, _NONE, dtype=np.int8)
        if control.any():
            kinds = pc.binary_slice(batch.column("key"), 2, 4)
            for kind, text in _KINDS.items():
                ends[control & _flags(pc.equal(kinds, text))] = kind
        return cls(control, transactional, producer, ends, level)

    @classmethod
    def joined(cls, parts: Sequence["TransactionRecords"], level: int) -> "TransactionRecords":
        """Join several batches of a segment."""
        none = np.empty(0, dtype=np.bool_)
        return cls(
            control=np.concatenate([none, *(part.control for part in parts)]),
            transactional=np.concatenate([none, *(part.transactional for part in parts)]),
            producer=np.concatenate([np.empty(0, dtype=np.int64), *(part.producer for part in parts)]),
            ends=np.concatenate([np.empty(0, dtype=np.int8), *(part.ends for part in parts)]),
            level=level,
        )


@dataclass(frozen=True)
class _Events:
    """Records and markers of transactions, at offsets ``at``. ``read`` flags records, ``landed`` those below level 2.

    Levels 2 and 3 hold committed records only, and the markers of these may already be removed.
    """

    producer: Longs
    at: Longs
    ends: NDArray[np.int8]
    landed: Flags
    read: Flags


def aborted_and_ended(
    segments: Sequence[TransactionRecords], offsets: Sequence[Longs], markers: Sequence[Marker]
) -> tuple[list[Flags], list[Flags]]:
    """Two flags per record of ``segments``: it belongs to an aborted transaction; it is a marker that has ended.

    A marker has ended when no record of its transaction is in ``segments``. ``markers`` are the markers outside the
    inputs that end transactions with records inside.
    """
    inside = [one.control | one.transactional for one in segments]
    sizes = [int(np.count_nonzero(flags)) for flags in inside]
    events = _joined(
        [
            _Events(one.producer[of], at[of], one.ends[of], ~one.control[of] & (one.level < RUN), ~one.control[of])
            for one, at, of in zip(segments, offsets, inside, strict=True)
        ]
        + [_outside(markers)]
    )
    found_aborted, found_ended = _judged(events)
    ends = np.cumsum(sizes)
    aborted: list[Flags] = []
    ended: list[Flags] = []
    for flags, size, end in zip(inside, sizes, ends, strict=True):
        for result, parts in ((aborted, found_aborted), (ended, found_ended)):
            own = np.zeros(len(flags), dtype=np.bool_)
            own[flags] = parts[end - size : end]
            result.append(own)
    return aborted, ended


def _judged(events: _Events) -> tuple[Flags, Flags]:
    is_marker = events.ends != _NONE
    # At its own offset, a marker is sorted last. Copies of a marker count as one marker.
    order = np.lexsort((is_marker, events.at, events.producer))
    producer, at = events.producer[order], events.at[order]
    marker, ends, read = is_marker[order], events.ends[order], events.read[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (producer[1:] != producer[:-1]) | (at[1:] != at[:-1]) | (marker[1:] != marker[:-1])
    place = np.cumsum(new) - 1
    first = np.flatnonzero(new)
    group_producer, group_marker, group_read = producer[first], marker[first], read[first]
    places = np.arange(len(first))
    # The next marker after each event, and the last marker and record before it, of the same producer.
    following = _next(places, np.flatnonzero(group_marker), group_producer)
    last_marker = _previous(places, np.flatnonzero(group_marker), group_producer)
    last_record = _previous(places, np.flatnonzero(group_read), group_producer)
    end = np.where(following >= 0, ends[first][following], _NONE)
    seen = last_record > last_marker
    aborted, ended = np.zeros((2, len(order)), dtype=np.bool_)
    aborted[order] = events.landed[order] & (end == _ABORT)[place]
    ended[order] = marker & ~seen[place]
    return aborted, ended


def _next(places: NDArray[np.intp], wanted: NDArray[np.intp], producer: Longs) -> NDArray[np.intp]:
    """For each of ``places``, the first later one of ``wanted`` with the same producer; -1 if there is none."""
    if not len(wanted):
        return np.full(len(places), -1)
    at = np.searchsorted(wanted, places, side="right")
    following = wanted[np.minimum(at, len(wanted) - 1)]
    return np.where((at < len(wanted)) & (producer[following] == producer), following, -1)


def _previous(places: NDArray[np.intp], wanted: NDArray[np.intp], producer: Longs) -> NDArray[np.intp]:
    """For each of ``places``, the last earlier one of ``wanted`` with the same producer; -1 if there is none."""
    if not len(wanted):
        return np.full(len(places), -1)
    at = np.searchsorted(wanted, places, side="left") - 1
    preceding = wanted[np.maximum(at, 0)]
    return np.where((at >= 0) & (producer[preceding] == producer), preceding, -1)


def _outside(markers: Sequence[Marker]) -> _Events:
    no = np.zeros(len(markers), dtype=np.bool_)
    return _Events(
        np.array([one.producer_id for one in markers], dtype=np.int64),
        np.array([one.offset for one in markers], dtype=np.int64),
        np.array([_COMMIT if one.commit else _ABORT for one in markers], dtype=np.int8),
        no,
        no,
    )


def _joined(parts: Sequence[_Events]) -> _Events:
    names = ("producer", "at", "ends", "landed", "read")
    return _Events(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _flags(values: pa.Array) -> Flags:
    flags: Flags = pc.fill_null(values, fill_value=False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return flags
