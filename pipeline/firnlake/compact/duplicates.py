"""Duplicate offsets: an at-least-once writer repeats records after a restart (C1, C20).

One of several identical records is kept. Two different records at one offset are refused, because nothing tells which
of them the log holds. If no offset is duplicated, only the offset column is read.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyiceberg.types import UUIDType

from firnlake.compact.inputs import PlanInputs
from firnlake.compact.keep_or_drop import NO_HORIZON
from firnlake.errors import RefusedError
from firnlake.iceberg.files import SHOWS_RECORDS
from firnlake.iceberg.keys import Flags, Longs, rows_of
from firnlake.table.segment import Segment
from firnlake_expectations.wording import digest, shown_key

MOST_OFFSETS: Final = 20
"""Number of offsets with different records that one error names."""
SHOWN_BYTES: Final = 60
"""Maximum size, in bytes, of a key or value in a message."""


class _Copy(NamedTuple):
    """One of several records at an offset, in the order of ranks: the most cleaned copy is the first, and stays,
    because it may carry a delete horizon."""

    offset: int
    minus_level: int
    minus_horizon: int
    segment: int
    row: int
    content: bytes


def repeated(inputs: PlanInputs, segments: Sequence[Segment], offsets: Sequence[Longs]) -> Flags:
    """Flags of the records of ``segments`` that are extra copies of another record; ``offsets`` are by segment.

    Raises RefusedError if two different records have the same offset.
    """
    every = np.concatenate([np.empty(0, dtype=np.int64), *offsets])
    extra = np.zeros(len(every), dtype=np.bool_)
    if bool((every[1:] > every[:-1]).all()):
        return extra
    ordered = np.sort(every)
    extra = np.isin(every, ordered[1:][ordered[1:] == ordered[:-1]])
    if not extra.any():
        return extra
    flags = np.split(extra, np.cumsum([len(own) for own in offsets])[:-1])  # views of `extra`
    copies = sorted(
        copy for number in range(len(segments)) for copy in _copies(inputs, segments, number, flags[number])
    )
    conflicts: dict[int, tuple[_Copy, _Copy]] = {}
    for offset, (first, *others) in groupby(copies, key=lambda copy: copy.offset):
        flags[first.segment][first.row] = False
        other = next((one for one in others if one.content != first.content), None)
        if other and len(conflicts) < MOST_OFFSETS:
            conflicts[offset] = first, other
    if conflicts:
        raise _contradiction(inputs, segments, conflicts)
    return extra


def _copies(inputs: PlanInputs, segments: Sequence[Segment], number: int, suspects: Flags) -> Iterator[_Copy]:
    """The suspects of a segment."""
    columns, segment = inputs.columns, segments[number]
    for start, batch in inputs.batches(segment) if suspects.any() else ():
        rows = np.flatnonzero(suspects[start : start + batch.num_rows])
        if len(rows):
            taken = batch.take(pa.array(rows))
            horizons = taken.column(columns.delete_horizon).cast(pa.int64()).fill_null(NO_HORIZON).to_pylist()
            offsets, contents = inputs.offsets(taken, segment).tolist(), _contents(_own(inputs, taken))
            fields = zip(offsets, horizons, (rows + start).tolist(), contents, strict=True)
            for offset, horizon, row, content in fields:
                yield _Copy(offset, -segment.level, -horizon, number, row, content)


def _contradiction(
    inputs: PlanInputs, segments: Sequence[Segment], conflicts: Mapping[int, Sequence[_Copy]]
) -> RefusedError:
    """The error for different records at the same offset; it shows the first ones, as far as samples may be shown."""
    plan, offset, columns = inputs.plan, min(conflicts), inputs.columns
    one, other = (_row(inputs, segments[copy.segment], copy.row) for copy in conflicts[offset])
    perhaps = ", and perhaps more" if len(conflicts) == MOST_OFFSETS else ""
    others = ", ".join(map(str, sorted(conflicts.keys() - {offset})))
    paths = [segment.path for segment in plan.inputs if segment.base_offset <= offset <= segment.last_offset]
    # Contents are compared, as where the difference was found: values may be equal whose bits are not (0.0 and -0.0).
    names = [
        name for name in one.schema.names if [*_contents(one.select([name]))] != [*_contents(other.select([name]))]
    ]
    if inputs.samples == "full":
        names = [f"{name} ({_shown(one, name)} and {_shown(other, name)})" for name in names]
    # Both records may have the same key.
    keys = " and ".join(dict.fromkeys(f"(key={_key(inputs, row)})" for row in (one, other)))
    topic = "'" + plan.topic.replace("'", "''") + "'"
    where = {columns.topic: topic, columns.partition: plan.partition, columns.offset: offset}
    conditions = " AND ".join(f"{name} = {value}" for name, value in where.items() if name)
    deletion = f"DELETE FROM {plan.table} WHERE {conditions} AND <the wrong value>"  # noqa: S608  # not run
    return RefusedError(
        f"table {plan.table}: offset {offset} of {plan.topic_partition} holds different records"
        f"{f' (also at {others}{perhaps})' if others else ''}: "
        f"{'they' if inputs.samples == 'none' else f'{keys}, which'} differ in {', '.join(names)}; "
        f"{SHOWS_RECORDS}, or identical copies; the records are in {'; and in '.join(paths)}; to delete the wrong one, "
        f"with any engine: {deletion}"
    )


def _row(inputs: PlanInputs, segment: Segment, row: int) -> pa.RecordBatch:
    """The record in ``row`` of ``segment``, in its own columns, which stay unchanged (C1)."""
    for start, batch in inputs.batches(segment):
        if row < start + batch.num_rows:
            return _own(inputs, batch).slice(row - start, 1)
    raise AssertionError(f"{segment.path} no longer has row {row}")


def _own(inputs: PlanInputs, batch: pa.RecordBatch) -> pa.RecordBatch:
    """All columns of ``batch`` but those that Firn writes."""
    written = (inputs.columns.level, inputs.columns.delete_horizon)
    return batch.select([name for name in batch.schema.names if name not in written])


def _contents(batch: pa.RecordBatch) -> Iterator[bytes]:
    """SHA-256 of each record of ``batch``, over all content of its columns."""
    flat = [field.name for field in batch.schema if not pa.types.is_nested(field.type)]
    nested = [batch.column(name).to_pylist() for name in batch.schema.names if name not in flat]
    contents = rows_of(batch.select(flat)).to_pylist() if flat else [b""] * batch.num_rows
    for row, content in enumerate(contents):
        beside = repr([column[row] for column in nested]).encode()
        yield hashlib.sha256(len(content).to_bytes(8, "little") + content + beside).digest()


def _key(inputs: PlanInputs, row: pa.RecordBatch) -> str:
    """The key of a record as samples show it."""
    parts = {name: row.column(name)[0].as_py() for name in inputs.columns.key}
    uuids = tuple(inputs.files.schema.find_type(name) == UUIDType() for name in parts)
    return shown_key(None if None in parts.values() else parts, inputs.samples, uuids) or "NULL"


def _shown(row: pa.RecordBatch, name: str) -> str:
    """A value in one piece of text."""
    value = row.column(name)[0].as_py()
    if isinstance(value, bytes):
        content, text = value, repr(value[:SHOWN_BYTES])[1:]
    else:
        content = ("NULL" if value is None else repr(value) if isinstance(value, str) else str(value)).encode()
        text = content[:SHOWN_BYTES].decode(errors="ignore")
    return text if len(content) <= SHOWN_BYTES else f"{text}… ({len(content)} bytes, {digest([content])})"
