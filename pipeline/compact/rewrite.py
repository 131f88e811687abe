"""Rewrite: the segments of one output are read batch by batch, and what the rules keep is written.

Memory is bounded by batches and row groups. Every file has a fresh name, so that a task that is tried twice, even at
the same time, overwrites nothing.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from expectations.fingerprint import Fingerprint
from pipeline.compact.ahead import ahead
from pipeline.compact.inputs import InputSegment, PlanInputs
from pipeline.compact.latest_per_key import Flags, Longs
from pipeline.compact.marks import Marks
from pipeline.compact.outcome import NO_HORIZON, WRITTEN, Outcome, Parameters, Records, horizons, outcomes
from pipeline.compact.partitions import Partitions
from pipeline.lake.condition import mask
from pipeline.lake.data_files import BATCH_BYTES
from pipeline.lake.parquet_writer import ParquetFileWriter, WriteOptions, WrittenFile
from pipeline.sense import Lane
from pipeline.stage.stage import BURIED, QUARANTINED

_MICROSECONDS = 1000


@dataclass(frozen=True)
class Target:
    """Where and how the results of a job are written; picklable."""

    folder: str
    options: WriteOptions = field(repr=False)
    partitions: Partitions


@dataclass(frozen=True)
class Rewritten:
    """What became of the records of one output: its files, record counts by Outcome, and the judge's fingerprint of the
    records written, taken as they were read."""

    files: Sequence[WrittenFile]
    counts: Counter[Outcome]
    fingerprint: int


def rewrite(inputs: PlanInputs, segments: Sequence[tuple[InputSegment, Marks | None]], target: Target) -> Rewritten:
    """Write what is left of ``segments``, neighbours of one plan; without marks they are copied (lane merge, C13)."""
    plan, columns = inputs.plan, inputs.columns
    parameters = Parameters.of(plan, _MICROSECONDS)
    names = [field.name for field in target.options.schema.fields]
    kept_columns = [name for name in names if name not in (columns.level, columns.delete_horizon)]
    counts: Counter[Outcome] = Counter()
    fingerprint = _Sum(Fingerprint(kept_columns))
    with _Writers(inputs, target) as writers:
        for segment, marks, batch, start in ahead(_read(inputs, segments)):
            judged = _copied(batch) if marks is None else _cleaned(inputs, segment, marks, batch, start, parameters)
            counts.update(_counted(judged.outcomes))
            for level, chosen in _destinations(judged.outcomes, plan.level_out):
                records = batch if chosen.all() else batch.filter(pa.array(chosen))
                fingerprint.add(records)
                horizons_of = None if judged.horizons is None else judged.horizons[chosen]
                writers.write(_stamped(inputs, records, level, horizons_of), level)
        files = writers.close()
    return Rewritten(files, counts, fingerprint.total())


@dataclass(frozen=True)
class _Judged:
    """The outcome of every record of a batch, and the horizons it carries; None: those that it has."""

    outcomes: np.ndarray[tuple[int], np.dtype[np.uint8]]
    horizons: Longs | None


def _read(
    inputs: PlanInputs, segments: Iterable[tuple[InputSegment, Marks | None]]
) -> Iterator[tuple[InputSegment, Marks | None, pa.RecordBatch, int]]:
    """The batches of every segment and at which of its records each begins; a merge reads every copy that is listed."""
    for segment, marks in segments:
        for _ in range(segment.facts.copies if inputs.plan.lane is Lane.MERGE else 1):
            start = 0
            for batch in inputs.files.batches(segment.source):
                yield segment, marks, batch, start
                start += batch.num_rows


def _copied(batch: pa.RecordBatch) -> _Judged:
    return _Judged(np.full(batch.num_rows, Outcome.KEPT, dtype=np.uint8), None)


def _cleaned(
    inputs: PlanInputs, segment: InputSegment, marks: Marks, batch: pa.RecordBatch, start: int, plan: Parameters
) -> _Judged:
    records = records_of(inputs, segment, marks, batch, start)
    return _Judged(outcomes(records, plan), horizons(records, plan))


def records_of(inputs: PlanInputs, segment: InputSegment, marks: Marks, batch: pa.RecordBatch, start: int) -> Records:
    """The records of ``batch``, which begin at record ``start`` of ``segment``, as the rules see them."""
    columns, rows = inputs.columns, batch.num_rows

    def of(flags: Flags | None) -> Flags | None:
        return None if flags is None else flags[start : start + rows]

    keyless = np.zeros(rows, dtype=np.bool_)
    for name in columns.key:
        if batch.column(name).null_count:
            keyless |= batch.column(name).is_null().to_numpy(zero_copy_only=False)
    tombstone = np.zeros(rows, dtype=np.bool_)
    if columns.is_tombstone is not None:
        tombstone = mask(columns.is_tombstone.expression, batch).to_numpy(zero_copy_only=False)
    held = batch.column(columns.delete_horizon).cast(pa.int64()).fill_null(NO_HORIZON)
    newest, has_older = of(marks.newest), of(marks.has_older)
    return Records(
        offset=inputs.offsets(batch, segment),
        keyless=keyless,
        newest=np.ones(rows, dtype=np.bool_) if newest is None else newest,
        has_older=np.zeros(rows, dtype=np.bool_) if has_older is None else has_older,
        tombstone=tombstone,
        horizon=held.to_numpy(zero_copy_only=False),
        level=segment.level,
        control=of(marks.control),
        aborted=of(marks.aborted),
        ended=of(marks.ended),
        repeated=of(marks.repeated),
        removed_before=segment.removed_before,
    )


def _counted(found: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> dict[Outcome, int]:
    counts = np.bincount(found, minlength=len(Outcome))
    return {one: int(counts[one]) for one in Outcome if counts[one]}


def _destinations(found: np.ndarray[tuple[int], np.dtype[np.uint8]], level_out: int) -> Iterator[tuple[int, Flags]]:
    """The level that each written outcome goes to, with the records of it."""
    levels = {Outcome.QUARANTINED: QUARANTINED, Outcome.TOMBSTONE_REMOVED: BURIED}
    for level in (level_out, QUARANTINED, BURIED):
        chosen = np.zeros(len(found), dtype=np.bool_)
        for one in WRITTEN:
            if levels.get(one, level_out) == level:
                chosen |= found == one
        if chosen.any():
            yield level, chosen


def _stamped(inputs: PlanInputs, records: pa.RecordBatch, level: int, held: Longs | None) -> pa.RecordBatch:
    """``records`` at ``level``, with the delete horizons ``held`` (epoch microseconds), or with their own."""
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


class _Sum:
    """Sums up the fingerprint of records, many small batches at a time: each call of the judge's function costs some
    milliseconds."""

    def __init__(self, fingerprint: Fingerprint) -> None:
        self._fingerprint = fingerprint
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._total = 0

    def add(self, records: pa.RecordBatch) -> None:
        self._held.append(records)
        self._bytes += records.nbytes
        if self._bytes >= BATCH_BYTES // 2:
            self._sum_up()

    def total(self) -> int:
        self._sum_up()
        return self._total

    def _sum_up(self) -> None:
        if self._held:
            self._total += self._fingerprint.of(pa.Table.from_batches(self._held))
        self._held, self._bytes = [], 0


class _Writers:
    """The open files of one output: one for each Iceberg partition that its records belong to, levels included.

    A file that reaches the target size is closed, and the next one begun (C18).
    """

    def __init__(self, inputs: PlanInputs, target: Target) -> None:
        self._inputs = inputs
        self._target = target
        self._open: dict[tuple[object, ...], ParquetFileWriter] = {}
        self._done: list[WrittenFile] = []

    def __enter__(self) -> "_Writers":
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._open.values():
            writer.abandon()

    def write(self, records: pa.RecordBatch, level: int) -> None:
        plan = self._inputs.plan
        for partition, own in self._target.partitions.split(records, plan.topic_partition, level):
            writer = self._open.get(partition)
            if writer is None:
                path = f"{self._target.folder}/{uuid.uuid4()}.parquet"
                output = self._inputs.files.io(path).new_output(path)
                writer = self._open[partition] = ParquetFileWriter(output, self._target.options, partition)
            writer.write(own)
            if writer.bytes >= plan.segment_bytes:
                self._done.append(self._open.pop(partition).close())

    def close(self) -> list[WrittenFile]:
        """End all files; in the order in which they were begun."""
        while self._open:
            partition = next(iter(self._open))
            self._done.append(self._open[partition].close())
            del self._open[partition]
        return self._done
