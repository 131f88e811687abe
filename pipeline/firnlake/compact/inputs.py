"""A task's view of one plan: its segments as files to read, the meaning of their columns, and partitions to write."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema

from firnlake.compact.transactions import COLUMNS as TRANSACTION_COLUMNS
from firnlake.compact.transactions import TransactionRecords
from firnlake.errors import RefusedError
from firnlake.iceberg.branches import REMOVED
from firnlake.iceberg.data_files import DataFiles, OpenFile, Source
from firnlake.iceberg.delete_files import HiddenRecords
from firnlake.iceberg.deletes import DeleteFile, FileDeletes
from firnlake.iceberg.keys import Flags, Longs, keys_of
from firnlake.job.plan import Plan
from firnlake.table.columns import ColumnRoles, position
from firnlake.table.policy import Samples
from firnlake.table.segment import Segment
from firnlake.table.topic_partition import TopicPartition


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
    key_bytes: Mapping[str, int] = field(default_factory=dict)
    """Size of the keys in the file, by path, as far as manifests state it."""
    samples: Samples = "keys"
    threads: int = 1
    """Number of threads with which a task sorts the plan's keys."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        files: DataFiles,
        columns: ColumnRoles,
        listed: Mapping[str, DataFile],
        deletes: Mapping[str, FileDeletes],
        samples: Samples,
        threads: int,
    ) -> "PlanInputs":
        """The inputs of ``plan`` among the ``listed`` data files of its job, with their row-level ``deletes``; both
        mappings are by path."""
        segments = (*plan.inputs, *(replace(one, level=REMOVED) for one in plan.removed_tombstones))
        sources = {one.path: Source.of(listed[one.path]) for one in segments}
        sizes = {path: columns.key_bytes_in(listed[path], files.schema) for path in sources}
        key_bytes = {path: size for path, size in sizes.items() if size is not None}
        reaching = {path: deletes[path] for path in sources if path in deletes}
        return cls(plan, files, columns, segments, sources, reaching, key_bytes, samples, threads)

    def only(self, segments: Iterable[Segment]) -> "PlanInputs":
        """The same plan restricted to ``segments``, which keeps the pickled task small."""
        own = tuple(segments)
        return replace(
            self,
            plan=self.plan.model_copy(update={"inputs": own, "removed_tombstones": ()}),
            segments=own,
            sources={one.path: self.sources[one.path] for one in own},
            deletes={one.path: self.deletes[one.path] for one in own if one.path in self.deletes},
            key_bytes={},
        )

    @cached_property
    def _hidden(self) -> HiddenRecords:
        return HiddenRecords(self.files, self.deletes)

    def deletes_of(self, segment: Segment) -> tuple[DeleteFile, ...]:
        """The delete files that reach ``segment``."""
        return self.deletes[segment.path].files if segment.path in self.deletes else ()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the flags of hidden records, because each task reads the deletes of its own segments."""
        return {name: held for name, held in vars(self).items() if name != "_hidden"}

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

    def batches(self, segment: Segment, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The records of ``segment`` that readers see, in file order. Places of records count only these records."""
        return _seen(self.files.batches(self.sources[segment.path], columns), self.hidden(segment), 0)

    def of_row_group(
        self, segment: Segment, file: OpenFile, group: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """The records that readers see of one row group of ``file``, which is the open file of ``segment``."""
        return _seen(file.batches(columns, [group]), self.hidden(segment), file.first_record(group))

    def visible_in(self, segment: Segment, file: OpenFile, group: int) -> int:
        """Number of records in a row group that readers see."""
        hidden, rows = self.hidden(segment), int(file.file.metadata.row_group(group).num_rows)
        if hidden is None:
            return rows
        start = file.first_record(group)
        return rows - int(np.count_nonzero(hidden[start : start + rows]))

    @property
    def bytes(self) -> int:
        """File bytes to read."""
        return sum(source.bytes for source in self.sources.values())

    @property
    def copies(self) -> bool:
        """True if the plan copies its records unchanged, so that it needs no survey (C13)."""
        return self.plan.lane.traits.copies

    def narrow(self, segment: Segment, *, with_keys: bool = True) -> "NarrowSegment":
        """The keys, offsets and transaction columns of ``segment``."""
        return NarrowSegment.joined(list(self.narrow_batches(segment, with_keys=with_keys)), segment, self)

    def narrow_batches(self, segment: Segment, *, with_keys: bool = True) -> Iterator["NarrowSegment"]:
        """Like ``narrow``, batch by batch."""
        names = [*(self.columns.key if with_keys else ()), self.columns.offset]
        if self.plan.transactional:
            names += TRANSACTION_COLUMNS
        for batch in self.batches(segment, list(dict.fromkeys(names))):
            transactions = TransactionRecords.of(batch, segment.level) if self.plan.transactional else None
            keys = [keys_of(batch, self.columns.key)] if with_keys else []
            yield NarrowSegment(keys, self.offsets(batch, segment), transactions)

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


@dataclass(frozen=True)
class NarrowSegment:
    """Keys, offsets and transaction states of a segment's records, or of some of them."""

    keys: Sequence[pa.Array]
    offsets: Longs
    transactions: TransactionRecords | None

    @classmethod
    def joined(cls, parts: Sequence["NarrowSegment"], segment: Segment, inputs: PlanInputs) -> "NarrowSegment":
        """Join batches of one segment."""
        transactions = None
        if inputs.plan.transactional:
            held = [part.transactions for part in parts if part.transactions is not None]
            transactions = TransactionRecords.joined(held, segment.level)
        offsets = np.concatenate([np.empty(0, dtype=np.int64), *(part.offsets for part in parts)])
        return cls([key for part in parts for key in part.keys], offsets, transactions)

    @property
    def keyless(self) -> int:
        """Number of records without a key."""
        return sum(key.null_count for key in self.keys)


def _seen(batches: Iterator[pa.RecordBatch], hidden: Flags | None, first: int) -> Iterator[pa.RecordBatch]:
    """The records of ``batches``, which begin at place ``first`` of a file, without the ``hidden`` ones."""
    if hidden is None:
        yield from batches
        return
    for batch in batches:
        own = hidden[first : first + batch.num_rows]
        first += batch.num_rows
        if not own.all():
            yield batch.filter(pa.array(~own)) if own.any() else batch


def key_type(inputs: PlanInputs) -> pa.DataType:
    """The Arrow type of the plan's keys."""
    if len(inputs.columns.key) > 1:
        return pa.large_binary()
    return inputs.files.arrow_schema(inputs.columns.key).field(0).type


def without(keys: pa.Array, excluded: pa.Array) -> pa.Array:
    """``keys`` with NULL where ``excluded``: such records do not take part in the comparison."""
    return pc.if_else(excluded, pa.scalar(None, keys.type), keys)


@dataclass(frozen=True)
class Partitions:
    """The partition spec of the results; picklable."""

    schema: Schema = field(repr=False)
    spec: PartitionSpec
    columns: ColumnRoles

    def split(
        self, records: pa.RecordBatch, topic_partition: TopicPartition, level: int
    ) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
        """Split ``records``, all of one topic partition and level, by partition; its values are in the spec's order."""
        known = {self.columns.topic: topic_partition.topic, self.columns.partition: topic_partition.partition}
        known[self.columns.level] = level
        fixed = {position(self.schema, self.spec, name): value for name, value in known.items() if name}
        values: list[Any] = [fixed.get(place) for place in range(len(self.spec.fields))]
        others = [place for place in range(len(self.spec.fields)) if place not in fixed]
        if not others:
            yield tuple(values), records
            return
        for group, own in _groups(records, [self._transformed(records, self.spec.fields[place]) for place in others]):
            for place, value in zip(others, group, strict=True):
                values[place] = value
            yield tuple(values), own

    def _transformed(self, records: pa.RecordBatch, part: PartitionField) -> pa.Array:
        """The partition value of every record in manifest form: dates as days, times and timestamps as microseconds."""
        source = self.schema.find_field(part.source_id)
        held = _as_stored(records.column(source.name))
        encoded = pc.dictionary_encode(held, null_encoding="encode")
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
    number = np.zeros(records.num_rows, dtype=np.int64)
    for column in values:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        number = number * len(encoded.dictionary) + encoded.indices.to_numpy()
        _, number = np.unique(number, return_inverse=True)
    _, first = np.unique(number, return_index=True)
    for place in np.sort(first).tolist():
        chosen = number == number[place]
        group = tuple(column[place].as_py() for column in values)
        yield group, records if chosen.all() else records.filter(pa.array(chosen))
