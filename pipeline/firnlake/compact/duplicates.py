"""Duplicate offsets: an at-least-once writer repeats records after a restart (C1, C20).

One of several identical records is kept. Two different records at one offset are refused, because nothing tells which
of them the log holds. If no offset is duplicated, only the offset column is read.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Final

import numpy as np
import pyarrow as pa

from firnlake.compact.inputs import PlanInputs
from firnlake.compact.keep_or_drop import NO_HORIZON
from firnlake.errors import RefusedError
from firnlake.iceberg.files import SHOWS_RECORDS
from firnlake.iceberg.keys import Flags, Longs, joined
from firnlake.job.plan import Plan
from firnlake.table.columns import ColumnRoles
from firnlake.table.policy import Samples
from firnlake.table.segment import RUN, Segment
from firnlake_expectations.wording import digest

MOST_OFFSETS: Final = 100
"""Number of offsets with different records that one error names."""
SHOWN_BYTES: Final = 60
"""Maximum size, in bytes, of a key or value in a message."""


@dataclass(frozen=True)
class _Copy:
    """One of several records at an offset: its location, its cleaning level, and a digest of its contents."""

    segment: int
    row: int
    level: int
    horizon: int
    content: bytes

    @property
    def rank(self) -> tuple[int, int]:
        """Rank among copies; the most cleaned copy stays, because it may carry a delete horizon."""
        return self.level, self.horizon


def repeatable_from(plan: Plan) -> int | None:
    """The lowest offset that may be duplicated in the plan's inputs; None if no offset can be.

    A landed or merged segment may repeat an offset within itself. Runs and tails hold each offset once, so they matter
    only if they overlap with another input.
    """
    starts = []
    end = -1
    for segment in sorted(plan.inputs, key=lambda segment: segment.base_offset):
        if segment.records and (segment.level < RUN or segment.copies > 1 or segment.base_offset <= end):
            starts.append(segment.base_offset)
        end = max(end, segment.last_offset)
    return min(starts, default=None)


def repeated(inputs: PlanInputs, segments: Sequence[Segment], offsets: Sequence[Longs]) -> list[Flags | None]:
    """For each of ``segments``, flags of the records that are extra copies of another record; None if it has none.

    Raises RefusedError if two different records have the same offset.
    """
    twice = _twice(inputs.plan, offsets)
    if not len(twice):
        return [None] * len(segments)
    best: dict[int, _Copy] = {}
    conflicts: dict[int, tuple[_Copy, _Copy]] = {}
    drop: list[Flags | None] = [None] * len(segments)
    for number, (segment, own) in enumerate(zip(segments, offsets, strict=True)):
        suspects = np.isin(own, twice)
        if not suspects.any():
            continue
        flags = np.zeros(len(own), dtype=np.bool_)
        drop[number] = flags
        for offset, copy in _copies(inputs, segment, number, suspects):
            other = best.get(offset)
            if other is None:
                best[offset] = copy
                continue
            if other.content != copy.content:
                conflicts.setdefault(offset, (other, copy))
                if len(conflicts) == MOST_OFFSETS:
                    raise _contradiction(inputs, segments, conflicts)
                continue
            kept, dropped = (copy, other) if copy.rank > other.rank else (other, copy)
            best[offset] = kept
            marked = drop[dropped.segment]
            assert marked is not None  # its segment held a suspect
            marked[dropped.row] = True
    if conflicts:
        raise _contradiction(inputs, segments, conflicts)
    return drop


def _twice(plan: Plan, offsets: Sequence[Longs]) -> Longs:
    """The offsets that occur more than once."""
    start = repeatable_from(plan)
    none = np.empty(0, dtype=np.int64)
    if start is None:
        return none
    every = np.concatenate([none, *offsets])
    if bool((every[1:] > every[:-1]).all()):
        return none
    ordered = np.sort(every[every >= start])
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def _copies(inputs: PlanInputs, segment: Segment, number: int, suspects: Flags) -> Iterator[tuple[int, _Copy]]:
    """The suspects of ``segment`` by offset."""
    columns = inputs.columns
    start = 0
    for batch in inputs.batches(segment):
        rows = np.flatnonzero(suspects[start : start + batch.num_rows])
        if len(rows):
            taken = batch.take(pa.array(rows))
            horizons = taken.column(columns.delete_horizon).cast(pa.int64()).fill_null(NO_HORIZON).to_pylist()
            own = inputs.offsets(taken, segment).tolist()
            contents = _contents_of(_own_columns(columns, taken.schema), taken)
            fields = zip(own, rows.tolist(), horizons, contents, strict=True)
            for offset, row, horizon, content in fields:
                yield offset, _Copy(number, start + row, segment.level, horizon, content)
        start += batch.num_rows


def _contradiction(
    inputs: PlanInputs, segments: Sequence[Segment], conflicts: Mapping[int, Sequence[_Copy]]
) -> RefusedError:
    """The error for different records at the same offset; it shows the first ones, as far as samples may be shown."""
    plan, offset = inputs.plan, min(conflicts)
    rows = [_row(inputs, segments[copy.segment], copy.row) for copy in conflicts[offset]]
    places = [one.path for one in plan.inputs if one.base_offset <= offset <= one.last_offset]
    # Records of one key may look the same as far as samples may be shown.
    shown = " and ".join(dict.fromkeys(filter(None, _described(inputs.columns, rows, inputs.samples))))
    who = "which" if shown else "they"
    differ = f"{who} differ in {', '.join(_differing(rows, inputs.samples))}"
    perhaps = ", and perhaps more" if len(conflicts) == MOST_OFFSETS else ""
    also = f" (also at {_ranges(conflicts.keys() - {offset})}{perhaps})" if len(conflicts) > 1 else ""
    return RefusedError(
        f"table {plan.table}: offset {offset} of {plan.topic_partition} holds different records{also}: "
        f"{', '.join(filter(None, (shown, differ)))}; {SHOWS_RECORDS}, or identical copies; the records are in "
        f"{'; and in '.join(places)}; to delete the wrong one, with any engine: {_deletion(inputs, offset)}"
    )


def _ranges(offsets: Iterable[int]) -> str:
    """The ``offsets`` in words: ``3-7, 12``."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        first = ranges.pop()[0] if ranges and ranges[-1][1] == offset - 1 else offset
        ranges.append((first, offset))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _deletion(inputs: PlanInputs, offset: int) -> str:
    """The SQL statement that deletes a record at ``offset``, but for the condition that tells it from the others."""
    columns, where = inputs.columns, inputs.plan.topic_partition
    topic = where.topic.replace("'", "''")
    conditions = [f"{columns.topic} = '{topic}'"] if columns.topic else []
    conditions += [f"{columns.partition} = {where.partition}"] if columns.partition else []
    conditions += [f"{columns.offset} = {offset}", "<the wrong value>"]
    return f"DELETE FROM {inputs.plan.table} WHERE {' AND '.join(conditions)}"  # noqa: S608  # not run


def _row(inputs: PlanInputs, segment: Segment, row: int) -> pa.RecordBatch:
    """The record in ``row`` of ``segment``, in its own columns."""
    start = 0
    for batch in inputs.batches(segment):
        if row < start + batch.num_rows:
            return batch.slice(row - start, 1).select(_own_columns(inputs.columns, batch.schema))
        start += batch.num_rows
    raise AssertionError(f"{segment.path} no longer has row {row}")


def _contents_of(names: Sequence[str], batch: pa.RecordBatch) -> Iterator[bytes]:
    """SHA-256 of each record of ``batch``, over all content of the columns ``names`` that a cleaning must preserve."""
    flat = [name for name in names if not pa.types.is_nested(batch.schema.field(name).type)]
    nested = [batch.column(name).to_pylist() for name in names if name not in flat]
    valid = [batch.column(name).is_valid().cast(pa.int8()) for name in flat]
    filled = [_filled(batch.column(name)) for name in flat]
    contents = joined([*valid, *filled]).to_pylist() if flat else [b""] * batch.num_rows
    for row, content in enumerate(contents):
        beside = repr([column[row] for column in nested]).encode()
        yield hashlib.sha256(len(content).to_bytes(8, "little") + content + beside).digest()


def _filled(values: pa.Array) -> pa.Array:
    """``values`` with NULL as zero or empty; a separate column records which were NULL."""
    if not values.null_count:
        return values
    kind = values.type
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return values.fill_null(pa.scalar(b"" if pa.types.is_large_binary(kind) else "", kind))
    if pa.types.is_fixed_size_binary(kind):
        return values.fill_null(pa.scalar(bytes(kind.byte_width), kind))
    if pa.types.is_boolean(kind):
        return values.fill_null(pa.scalar(False))  # noqa: FBT003  # the value, not a switch
    return values.fill_null(pa.scalar(0, kind))


def _own_columns(columns: ColumnRoles, schema: pa.Schema) -> list[str]:
    """The record's own columns, which stay unchanged (C1): all columns except those that Firn writes."""
    return [name for name in schema.names if name not in (columns.level, columns.delete_horizon)]


def _described(columns: ColumnRoles, rows: Sequence[pa.RecordBatch], samples: Samples) -> list[str]:
    """A text for each of the different records in ``rows``, empty if ``samples`` allows to show nothing."""
    if samples == "none":
        return [""] * len(rows)
    return [_whole(row) if samples == "full" else f"(key={_key(row, columns.key)})" for row in rows]


def _differing(rows: Sequence[pa.RecordBatch], samples: Samples) -> Iterator[str]:
    """The columns in which the records in ``rows`` differ, with their values if ``samples`` allows to show them.

    Contents are compared, as where the difference was found: values may be equal whose bits are not (0.0 and -0.0).
    """
    for name in rows[0].schema.names:
        if len({next(_contents_of([name], row)) for row in rows}) > 1:
            yield f"{name} ({' and '.join(_shown(row, name) for row in rows)})" if samples == "full" else name


def _key(row: pa.RecordBatch, columns: Sequence[str]) -> str:
    parts = [row.column(name)[0].as_py() for name in columns]
    if None in parts:
        return "NULL"
    return digest([part if isinstance(part, bytes) else str(part).encode() for part in parts])


def _whole(row: pa.RecordBatch) -> str:
    names = (name for name in row.schema.names if row.column(name)[0].is_valid)
    return f"({', '.join(f'{name}={_shown(row, name)}' for name in names)})"


def _shown(row: pa.RecordBatch, name: str) -> str:
    """A value in one piece of text; different values have different texts."""
    value = row.column(name)[0].as_py()
    if isinstance(value, float) and isnan(value):
        return f"nan (0x{struct.pack('>d', value).hex()})"
    if isinstance(value, bytes):
        content, text = value, repr(value[:SHOWN_BYTES])[1:]
    else:
        content = ("NULL" if value is None else repr(value) if isinstance(value, str) else str(value)).encode()
        text = content[:SHOWN_BYTES].decode(errors="ignore")
    return text if len(content) <= SHOWN_BYTES else f"{text}… ({len(content)} bytes, {digest([content])})"
