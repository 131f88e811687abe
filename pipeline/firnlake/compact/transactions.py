"""Find the records of aborted transactions, and the markers of transactions that have no records left (C10).

Kafka's CleanedTransactionMetadata does the same with the transaction index while it reads the log in order.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firnlake.iceberg.keys import Flags
from firnlake.table.segment import RUN
from firnlake.table.transactions import Marker

COLUMNS: Final = ("is_control", "is_transactional", "producer_id", "key")
SCHEMA: Final = pa.schema(
    [("control", pa.bool_()), ("transactional", pa.bool_()), ("producer", pa.int64()), ("ends", pa.int8())]
)
"""``ends`` is COMMIT or ABORT for a marker, and NONE for any other record."""
NONE, ABORT, COMMIT = -1, 0, 1
_NO_PRODUCER: Final = np.iinfo(np.int64).min
_KINDS: Final = (b"\x00\x00", b"\x00\x01")
"""The control record types of ABORT and COMMIT, which follow two bytes of version in the key (Kafka's
ControlRecordType)."""


def columns_of(batch: pa.RecordBatch) -> list[pa.Array]:
    """The columns of SCHEMA from COLUMNS of ``batch``."""
    control, transactional = (pc.fill_null(batch.column(name), fill_value=False) for name in COLUMNS[:2])
    kinds = pc.binary_slice(batch.column("key"), 2, 4)
    ends = pc.if_else(control, pc.index_in(kinds, value_set=pa.array(_KINDS, kinds.type)), None)
    producer = pc.fill_null(batch.column("producer_id"), _NO_PRODUCER)
    return [control, transactional, producer, pc.fill_null(ends, NONE).cast(pa.int8())]


def states(records: pa.Table, levels: NDArray[Any], markers: Sequence[Marker]) -> tuple[Flags, Flags, Flags]:
    """Flags of control records, of records of aborted transactions, and of markers that have ended.

    The records, with the columns of SCHEMA and ``offset``, are all of a plan, and have these ``levels``. The first
    marker of its producer past a record decides the record. A marker has ended when it decides no record. ``markers``
    are those outside the inputs that decide records inside. Levels 2 and 3 hold committed records only, whose markers
    may already be removed.
    """
    control, transactional = records["control"].to_numpy(), records["transactional"].to_numpy()
    inside = np.flatnonzero((records["ends"].to_numpy() != NONE) | (transactional & ~control))

    def events(name: str, outside: Sequence[int]) -> NDArray[np.int64]:
        return np.concatenate([records[name].to_numpy()[inside], np.array(outside, dtype=np.int64)])

    producer = events("producer", [one.producer_id for one in markers])
    at = events("offset", [one.offset for one in markers])
    ends = events("ends", [COMMIT if one.commit else ABORT for one in markers])
    landed = np.append(levels[inside] < RUN, np.zeros(len(markers), dtype=np.bool_))
    order = np.lexsort((ends != NONE, at, producer))  # at its own offset, a marker is the last
    producer, at, ends = producer[order], at[order], ends[order]
    is_marker = ends != NONE
    # The first marker past each record; the number of records if there is none.
    places = np.append(np.flatnonzero(is_marker), len(order))
    following = places[np.searchsorted(places, np.arange(len(order)))]
    decided = ~is_marker & (following < len(order))
    decided[decided] = producer[following[decided]] == producer[decided]
    # Copies of a marker count as one.
    is_new = (producer[1:] != producer[:-1]) | (at[1:] != at[:-1]) | (is_marker[1:] != is_marker[:-1])
    number = np.cumsum(np.append(np.zeros(min(1, len(order)), dtype=np.bool_), is_new))
    deciding = np.zeros(len(order), dtype=np.bool_)
    deciding[number[following[decided]]] = True
    is_aborted, has_ended = np.zeros((2, len(order)), dtype=np.bool_)
    is_aborted[order[decided]] = (ends[following[decided]] == ABORT) & landed[order[decided]]
    has_ended[order] = is_marker & ~deciding[number]
    aborted, ended = np.zeros((2, len(records)), dtype=np.bool_)
    aborted[inside], ended[inside] = is_aborted[: len(inside)], has_ended[: len(inside)]
    return control, aborted, ended
