"""A task's view of one plan: its segments as files to read, and the meaning of their columns; records by partition."""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, IntegerType, LongType, StringType

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import REMOVED
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.deletes import DeleteFile, FileDeletes, HiddenRecords
from firnlake.iceberg.keys import Flags, Longs
from firnlake.job.inputs import CheckedInputs
from firnlake.job.plan import Plan
from firnlake.table.columns import ColumnRoles, position
from firnlake.table.policy import Samples
from firnlake.table.segment import TAIL, Segment


@dataclass(frozen=True)
class PlanInputs:
    """A plan with its segments in offset order, followed by the segments of tombstones that earlier cleanings removed
    (C9), whose level is ``REMOVED``; picklable."""

    plan: Plan
    files: DataFiles = field(repr=False)
    columns: ColumnRoles
    segments: tuple[Segment, ...]
    sources: Mapping[str, Source]
    """The file of each segment, by path. Its bytes and records are those of one copy, and include hidden records."""
    deletes: Mapping[str, FileDeletes] = field(default_factory=dict)
    """Row-level deletes that the plan takes into account, by path of the segment."""
    key_bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Bounds (both inclusive) of the keys of each segment of the tail, by path, as far as manifests state them."""
    samples: Samples = "keys"
    threads: int = 1
    """Number of threads with which a task sorts the plan's keys."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        table: Table,
        columns: ColumnRoles,
        checked: CheckedInputs,
        samples: Samples,
        threads: int,
    ) -> "PlanInputs":
        """The inputs of ``plan``, as they were ``checked``."""
        files = DataFiles.of(table, f"table {plan.table}, {plan.topic_partition}")
        listed = {file.file_path: file for file in checked.files[plan.id]}
        segments = (*plan.inputs, *(replace(one, level=REMOVED) for one in plan.removed_tombstones))
        sources = {one.path: Source.of(listed[one.path]) for one in segments}
        reaching = {path: checked.deletes[path] for path in sources if path in checked.deletes}
        bounds = {one.path: _key_bounds(listed[one.path], files, columns) for one in plan.inputs if one.level == TAIL}
        key_bounds = {path: own for path, own in bounds.items() if own is not None}
        return cls(plan, files, columns, segments, sources, reaching, key_bounds, samples, threads)

    def only(self, segments: Iterable[Segment]) -> "PlanInputs":
        """The same plan restricted to ``segments``, which keeps the pickled task small."""
        own = tuple(segments)
        return replace(
            self,
            plan=self.plan.model_copy(update={"inputs": own, "removed_tombstones": ()}),
            segments=own,
            sources={one.path: self.sources[one.path] for one in own},
            deletes={one.path: self.deletes[one.path] for one in own if one.path in self.deletes},
            key_bounds={},
        )

    @cached_property
    def _hidden(self) -> HiddenRecords:
        return HiddenRecords(self.files, self.deletes)

    def deletes_of(self, segment: Segment) -> tuple[DeleteFile, ...]:
        """The delete files that reach ``segment``."""
        return self.deletes[segment.path].files if segment.path in self.deletes else ()

    def hidden(self, segment: Segment) -> Flags | None:
        """Flags of the records in the file that row-level deletes hide (C27); None if no delete applies to the file."""
        return self._hidden.of(self.sources[segment.path])

    def hidden_by_values(self, segment: Segment) -> Flags:
        """Flags of the records in the file that equality deletes hide, but no position delete hides."""
        return self._hidden.by_values_only(self.sources[segment.path])

    def visible(self, segment: Segment) -> int:
        """Number of records of ``segment`` that readers see."""
        hidden = self.hidden(segment)
        return self.sources[segment.path].records - (0 if hidden is None else int(np.count_nonzero(hidden)))

    def batches(self, segment: Segment, columns: Sequence[str] | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The records of ``segment`` that readers see, in file order, each batch with the place of its first record.
        Places count only these records."""
        place = 0
        for batch in self._hidden.visible(self.sources[segment.path], columns):
            yield place, batch
            place += batch.num_rows

    @property
    def bytes(self) -> int:
        """File bytes to read."""
        return sum(source.bytes for source in self.sources.values())

    def offsets(self, batch: pa.RecordBatch, segment: Segment) -> Longs:
        """The offset of every record of ``batch``; every record must have one."""
        held = batch.column(self.columns.offset)
        if held.null_count:
            raise RefusedError(
                f"table {self.plan.table}: records without an offset in segment {segment.path} of "
                f"{self.plan.topic_partition}: {held.null_count}; allowed: an offset in every record"
            )
        numbers: Longs = held.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return numbers


def _key_bounds(file: DataFile, files: DataFiles, columns: ColumnRoles) -> tuple[Any, Any] | None:
    key = files.schema.find_field(columns.key[0])
    lower, upper = (file.lower_bounds or {}).get(key.field_id), (file.upper_bounds or {}).get(key.field_id)
    kind = key.field_type
    if len(columns.key) > 1 or not isinstance(kind, BinaryType | StringType | IntegerType | LongType):
        return None
    try:
        return None if lower is None or upper is None else (from_bytes(kind, lower), from_bytes(kind, upper))
    except (ValueError, struct.error):  # by a writer that put something else there
        return None


def by_partition(
    records: pa.RecordBatch, schema: Schema, spec: PartitionSpec, known: Mapping[str | None, Any]
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """``records`` of ``schema`` by partition, whose values are in the order of ``spec``. All records have the ``known``
    values, by column; a column that is None is left out."""
    fixed = {position(schema, spec, name): value for name, value in known.items() if name}
    values: list[Any] = [fixed.get(place) for place in range(len(spec.fields))]
    others = [place for place in range(len(spec.fields)) if place not in fixed]
    if not others:
        yield tuple(values), records
        return
    for group, own in _groups(records, [_transformed(records, schema, spec.fields[place]) for place in others]):
        for place, value in zip(others, group, strict=True):
            values[place] = value
        yield tuple(values), own


def _transformed(records: pa.RecordBatch, schema: Schema, part: PartitionField) -> pa.Array:
    """The partition value of every record in manifest form: dates as days, times and timestamps as microseconds."""
    source = schema.find_field(part.source_id)
    encoded = pc.dictionary_encode(_as_stored(records.column(source.name)), null_encoding="encode")
    transform = part.transform.transform(source.field_type)
    try:
        known = pa.array([transform(value) for value in encoded.dictionary.to_pylist()])
    except (ArithmeticError, ValueError) as error:  # a time outside Python's calendar
        raise ValueError(f"column {source.name} has a value without a {part.transform}: {error}") from error
    return known.take(encoded.indices)


def _as_stored(values: pa.Array) -> pa.Array:
    """Convert dates, times and timestamps to the integers that Iceberg's transforms take."""
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) or pa.types.is_time(values.type) else values


def _groups(records: pa.RecordBatch, values: list[pa.Array]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """``records`` by the tuple of their ``values``, in the order of first occurrence."""
    names = [str(place) for place in range(len(values))]
    rows = pa.table([*values, np.arange(records.num_rows)], [*names, "row"])
    groups = rows.group_by(names, use_threads=False).aggregate([("row", "list"), ("row", "min")]).sort_by("row_min")
    for *group, chosen in zip(*(groups[name].to_pylist() for name in names), groups["row_list"], strict=True):
        yield tuple(group), records.take(chosen.values) if len(groups) > 1 else records
