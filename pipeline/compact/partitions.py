"""The Iceberg partitions of written records: level, topic partition, and any further partition fields of the table."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema

from pipeline.lake.columns import Columns, position
from pipeline.lake.topic_partition import TopicPartition


@dataclass(frozen=True)
class Partitions:
    """The partition spec of the results; picklable."""

    schema: Schema = field(repr=False)
    spec: PartitionSpec
    columns: Columns

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
        known = pa.array([transform(value) for value in encoded.dictionary.to_pylist()])
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
