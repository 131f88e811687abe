"""Rewrite: read the segments of one output batch by batch, and write the records that the rules keep.

Another thread fetches and decodes the next batch while a task works on the current one.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.utils.bin_packing import PackingIterator

from firnlake.compact.inputs import PlanInputs, by_partition
from firnlake.compact.keep_or_drop import NO_HORIZON, WRITTEN, Outcome, Parameters, Records, horizons, outcomes
from firnlake.compact.marks import Marks
from firnlake.iceberg.branches import QUARANTINED, REMOVED
from firnlake.iceberg.files import UNREAD, job_of
from firnlake.iceberg.keys import Flags, Longs
from firnlake.iceberg.parquet import ParquetFileWriter, WriteOptions
from firnlake.job.change import Change
from firnlake.job.plan import Plan
from firnlake.table.history import Counts
from firnlake.table.segment import RUN, TAIL, Segment
from firnlake_expectations.fingerprint import fingerprint

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[T]:
    """``items`` in order, each prefetched while the previous item is used; an error is raised in place of its item."""
    source = iter(items)
    end = object()
    with ThreadPoolExecutor(1, "firn-ahead") as reader:
        coming = reader.submit(next, source, end)
        while True:
            item = coming.result()
            if item is end:
                return
            coming = reader.submit(next, source, end)
            yield item  # type: ignore[misc]  # all but the end are items


_MICROSECONDS = 1000
_SMALL: Final = 8 << 20
"""Size, in bytes, up to which batches are combined."""


@dataclass(frozen=True)
class Target:
    """Location and format of the results of a job; picklable."""

    folder: str
    options: WriteOptions = field(repr=False)
    spec: PartitionSpec


def rewrite(inputs: PlanInputs, segments: Sequence[tuple[Segment, Marks | None]], target: Target) -> Change:
    """Write the records that remain of ``segments``, neighbours in one plan; a copying lane has no marks.

    The fingerprint is the judge's; it covers the written records, in the form in which they were read.
    """
    plan, columns = inputs.plan, inputs.columns
    parameters = Parameters.of(plan, _MICROSECONDS)
    names = [field.name for field in target.options.schema.fields]
    kept_columns = [name for name in names if name not in (columns.level, columns.delete_horizon)]
    counts = np.zeros(len(Outcome), dtype=np.int64)
    total = 0
    with _Writers(inputs, target) as writers:
        for segment, marks, batch in ahead(_together(_read(inputs, segments))):
            decided, stamps = _decided(inputs, segment, marks, batch, parameters)
            counts += np.bincount(decided, minlength=len(Outcome))
            written = []
            for level, chosen in _destinations(decided, _level_out(plan, segment)):
                records = batch if chosen.all() else batch.filter(pa.array(chosen))
                written.append(records)
                writers.write(_stamped(inputs, records, level, None if stamps is None else stamps[chosen]), level)
            # Once per batch, because each call of the judge takes milliseconds.
            total += fingerprint(pa.Table.from_batches(written, batch.schema), kept_columns)
        files = writers.close()
    counts[Outcome.DELETED] = sum(inputs.sources[one.path].records - inputs.visible(one) for one, _ in segments)
    return Change(
        plan=plan,
        counts=_fates(counts.tolist()),
        fingerprint=str(total),
        kept=tuple(file for level, file in files if level not in (QUARANTINED, REMOVED)),
        quarantined=tuple(file for level, file in files if level == QUARANTINED),
        removed_tombstones=tuple(file for level, file in files if level == REMOVED),
    )


def _fates(counts: Sequence[int]) -> Counts:
    """What became of as many records of each Outcome; nothing about the files that were read and written."""
    return Counts(
        superseded=counts[Outcome.SUPERSEDED] + counts[Outcome.REPEATED],
        repeated=counts[Outcome.REPEATED],
        tombstones_removed=counts[Outcome.TOMBSTONE_REMOVED],
        quarantined=counts[Outcome.QUARANTINED],
        restored=counts[Outcome.RESTORED],
        aborted=counts[Outcome.ABORTED],
        markers_removed=counts[Outcome.MARKER_REMOVED],
        erased=counts[Outcome.ERASED],
        deleted=counts[Outcome.DELETED],
    )


Outcomes: TypeAlias = NDArray[np.uint8]
_Read: TypeAlias = tuple[Segment, Marks, pa.RecordBatch]
"""Records of a segment with their marks."""


def _read(inputs: PlanInputs, segments: Iterable[tuple[Segment, Marks | None]]) -> Iterator[_Read]:
    """The batches of every segment; a copying lane reads a segment as often as the table lists it."""
    for segment, marks in segments:
        for _ in range(segment.copies if inputs.plan.lane.traits.copies else 1):
            for start, batch in inputs.batches(segment):
                yield segment, marks.part(start, len(batch)) if marks else Marks.of(len(batch)), batch


def _together(read: Iterable[_Read]) -> Iterator[_Read]:
    """``read`` with small neighbouring batches combined if the rules treat them alike, to save calls."""
    for _, alike in groupby(read, lambda one: one[0].level):
        for held in PackingIterator(alike, _SMALL, lookback=1, weight_func=lambda one: one[2].nbytes):
            segments, marks, batches = zip(*held, strict=True)
            yield segments[0], Marks.joined(marks), pa.concat_batches(batches) if len(batches) > 1 else batches[0]


def _decided(
    inputs: PlanInputs, segment: Segment, marks: Marks, batch: pa.RecordBatch, parameters: Parameters
) -> tuple[Outcomes, Longs | None]:
    """The outcome of every record of ``batch``, and the delete horizons to write; None keeps the records' own."""
    if not inputs.plan.lane.traits.cleans:
        return np.where(marks.flags("taken_out"), np.uint8(Outcome.ERASED), np.uint8(Outcome.KEPT)), None
    records = _records(inputs, segment, marks, batch)
    return outcomes(records, parameters), horizons(records, parameters)


def _level_out(plan: Plan, segment: Segment) -> int:
    """The level of the records that stay of ``segment``. A lane without a level keeps the segment's, but writes a tail
    as a run unless Firn wrote the tail and the table lists it once: only then each key is in it once."""
    if (level := plan.lane.traits.level_out) is not None:
        return level
    known = segment.copies == 1 and job_of(segment.path) is not None
    return segment.level if segment.level != TAIL or known else RUN


def _records(inputs: PlanInputs, segment: Segment, marks: Marks, batch: pa.RecordBatch) -> Records:
    """The records of ``batch`` in the rules' form; they belong to ``segment``, or to other segments of its level."""
    columns, rows = inputs.columns, batch.num_rows
    keyless = np.zeros(rows, dtype=np.bool_)
    for name in columns.key:
        if batch.column(name).null_count:
            keyless |= batch.column(name).is_null().to_numpy(zero_copy_only=False)
    tombstone = np.zeros(rows, dtype=np.bool_)
    if columns.is_tombstone is not None:
        tombstone = columns.is_tombstone.mask(batch).to_numpy(zero_copy_only=False)
    held = batch.column(columns.delete_horizon).cast(pa.int64()).fill_null(NO_HORIZON)
    return Records(
        offset=inputs.offsets(batch, segment),
        keyless=keyless,
        newest=marks.flags("newest"),
        has_older=marks.flags("has_older"),
        tombstone=tombstone,
        horizon=held.to_numpy(zero_copy_only=False),
        level=segment.level,
        control=marks.flags("control"),
        aborted=marks.flags("aborted"),
        ended=marks.flags("ended"),
        repeated=marks.flags("repeated"),
        removed_before=segment.level == REMOVED,
    )


def _destinations(decided: Outcomes, level_out: int) -> Iterator[tuple[int, Flags]]:
    """The target level of each outcome that is written, with flags of the records that have this outcome."""
    levels = {Outcome.QUARANTINED: QUARANTINED, Outcome.TOMBSTONE_REMOVED: REMOVED}
    for level in dict.fromkeys((level_out, QUARANTINED, REMOVED)):
        chosen = np.isin(decided, [one for one in WRITTEN if levels.get(one, level_out) == level])
        if chosen.any():
            yield level, chosen


def _stamped(inputs: PlanInputs, records: pa.RecordBatch, level: int, held: Longs | None) -> pa.RecordBatch:
    """``records`` at ``level``, with the delete horizons ``held`` (epoch microseconds); None keeps the records' own."""
    columns = inputs.columns
    for name, values in (
        (columns.level, pa.repeat(pa.scalar(level, pa.int32()), records.num_rows)),
        (columns.delete_horizon, None if held is None else pa.array(held, mask=held == NO_HORIZON)),
    ):
        if values is not None:
            place = records.schema.get_field_index(name)
            records = records.set_column(
                place, records.schema.field(place), values.cast(records.schema.field(place).type)
            )
    return records


class _Writers:
    """The open files of one output: one per level and Iceberg partition of its records.

    A file that reaches the target size is closed, and the next file is begun (C18).
    """

    def __init__(self, inputs: PlanInputs, target: Target) -> None:
        self._inputs = inputs
        self._target = target
        self._open: dict[tuple[int, tuple[object, ...]], ParquetFileWriter] = {}
        self._done: list[tuple[int, DataFile]] = []

    def __enter__(self) -> "_Writers":
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._open.values():
            writer.abandon()

    def write(self, records: pa.RecordBatch, level: int) -> None:
        """Write ``records`` at ``level``, each to the file of its Iceberg partition."""
        plan, columns, target = self._inputs.plan, self._inputs.columns, self._target
        known = {columns.topic: plan.topic, columns.partition: plan.partition, columns.level: level}
        for partition, own in by_partition(records, target.options.schema, target.spec, known):
            # Even if the table is not partitioned by level, a file holds records of one level only.
            writer = self._open.get((level, partition))
            if writer is None:
                path = f"{target.folder}/{UNREAD if plan.unread else ''}{uuid.uuid4()}.parquet"
                output = self._inputs.files.io(path).new_output(path)
                writer = ParquetFileWriter(output, target.options, target.spec.spec_id, partition)
                self._open[level, partition] = writer
            writer.write(own)
            if writer.bytes >= plan.segment_bytes:
                self._done.append((level, self._open.pop((level, partition)).close()))

    def close(self) -> list[tuple[int, DataFile]]:
        """Close all files; returns them in order of creation, with their levels."""
        self._done += ((level, writer.close()) for (level, _), writer in self._open.items())
        return self._done
