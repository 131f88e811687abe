"""Duplicate offsets: an at-least-once writer repeats records after a restart (C1, C20).

One of several identical records is kept. Two different records at one offset are refused, because nothing tells which
of them the log holds. If no offset is duplicated, only the offset column is read.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from firnlake.compact.inputs import InputSegment, PlanInputs
from firnlake.compact.keep_or_drop import NO_HORIZON
from firnlake.errors import RefusedError
from firnlake.iceberg.keys import Flags, Longs
from firnlake.job.failures import SHOWS_RECORDS
from firnlake.job.plan import Plan
from firnlake.table.record_contents import MOST_OFFSETS, contents_of, described, differing, own_columns
from firnlake.table.segment import RUN


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


def repeated(inputs: PlanInputs, segments: Sequence[InputSegment], offsets: Sequence[Longs]) -> list[Flags | None]:
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


def _copies(inputs: PlanInputs, segment: InputSegment, number: int, suspects: Flags) -> Iterator[tuple[int, _Copy]]:
    """The suspects of ``segment`` by offset."""
    columns = inputs.columns
    start = 0
    for batch in inputs.batches(segment):
        rows = np.flatnonzero(suspects[start : start + batch.num_rows])
        if len(rows):
            taken = batch.take(pa.array(rows))
            horizons = taken.column(columns.delete_horizon).cast(pa.int64()).fill_null(NO_HORIZON).to_pylist()
            own = inputs.offsets(taken, segment).tolist()
            fields = zip(own, rows.tolist(), horizons, contents_of(columns, taken), strict=True)
            for offset, row, horizon, content in fields:
                yield offset, _Copy(number, start + row, segment.level, horizon, content)
        start += batch.num_rows


def _contradiction(
    inputs: PlanInputs, segments: Sequence[InputSegment], conflicts: Mapping[int, Sequence[_Copy]]
) -> RefusedError:
    """The error for different records at the same offset; it shows the first ones, as far as samples may be shown."""
    plan, offset, last = inputs.plan, min(conflicts), max(conflicts)
    records = [_record(inputs, segments[copy.segment], copy.row) for copy in conflicts[offset]]
    places = [one.path for one in plan.inputs if one.base_offset <= offset <= one.last_offset]
    # Records of one key may look the same as far as samples may be shown.
    shown = " and ".join(dict.fromkeys(filter(None, described(inputs.columns, records, inputs.samples))))
    who = "which" if shown else "they"
    differ = "" if inputs.samples == "full" else f"{who} differ in {', '.join(differing(records))}"
    least = "at least " if len(conflicts) == MOST_OFFSETS else ""
    others = f"does offset {last}" if len(conflicts) == 2 else f"do {least}{len(conflicts) - 1:,} more up to {last}"
    more = f", and so {others}" if last > offset else ""
    named = f"{offset}-{min(last, offset + MOST_OFFSETS - 1)}" if last > offset else str(offset)
    mend = shlex.join(["firn", "mend", plan.table, "--partition", str(plan.topic_partition), "--offset", named])
    return RefusedError(
        f"table {plan.table}: offset {offset} of {plan.topic_partition} holds different records{more}: "
        f"{', '.join(filter(None, (shown, differ)))}; {SHOWS_RECORDS}, or identical copies; the records are in "
        f"{'; and in '.join(places)}; to inspect them and choose what to take out: {mend}"
    )


def _record(inputs: PlanInputs, segment: InputSegment, row: int) -> Mapping[str, Any]:
    start = 0
    for batch in inputs.batches(segment):
        if row < start + batch.num_rows:
            record: Mapping[str, Any] = batch.slice(row - start, 1).to_pylist()[0]
            return {name: record[name] for name in own_columns(inputs.columns, batch.schema)}
        start += batch.num_rows
    raise AssertionError(f"{segment.path} no longer has row {row}")
