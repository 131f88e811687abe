"""What one manifest entry tells of its data file: a segment, a stray, or nothing."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

from pipeline.lake.columns import Columns
from pipeline.lake.records import TRANSACTION_COLUMNS, has_transactions
from pipeline.lake.topic_partition import TopicPartition
from pipeline.segments.footers import Footers
from pipeline.segments.segment import LANDED, LEVELS, RUN, Segment, Stray

VERSION = 1
"""Of what is remembered of manifests (``segments/cache.py``): to be raised when the same entry gives other facts."""

REWRITE = "rewrite it under the present partitioning: rewrite_data_files with rewrite-all"


_FALSE = b"\x00"
"""The bound of a column that is false in every record (Iceberg spec, "Binary single-value serialization")."""


class Facts:
    """Turns manifest entries of one table into segments and strays.

    What it tells depends on the entry, on the columns that Firn looks at, and on the entry's partition spec: nothing
    that a later commit changes. When the file came in, and row-level deletes, are the caller's to add.
    """

    def __init__(self, table: Table, identifier: str) -> None:
        self._columns = Columns.of(table, identifier)
        self._specs = table.specs()
        self._fields = {field.name: field for field in table.schema().fields}
        # Optional columns (C10); a table that lacks them has no transactions, nor has one of typed columns: a marker is
        # told by the bytes of its key.
        transactional = has_transactions(table) and not self._columns.adopted
        self._optional = frozenset(TRANSACTION_COLUMNS if transactional else ())
        self._footers = Footers(table)

    def of(self, entry: ManifestEntry) -> Segment | Stray | None:
        """The segment, or the stray, that ``entry`` lists; None for a file that is neither and holds no record."""
        file, columns = self._complete(entry.data_file), self._columns
        topic = self._single(file, columns.topic) if columns.topic else columns.topic_name
        partition = self._single(file, columns.partition) if columns.partition else 0
        if topic is None or partition is None:
            return self._stray(file, topic, partition) if file.record_count else None
        offsets, times = self._bounds(file, columns.offset), self._times(file)
        # A file that no partition field keeps to one level has landed, as far as Firn can know.
        level = next(self._identities(file, columns.level), None) or LANDED
        return Segment(
            path=file.file_path,
            topic_partition=TopicPartition(topic, partition),
            level=level,
            base_offset=offsets[0] if offsets else -1,
            last_offset=offsets[1] if offsets else -1,
            records=file.record_count,
            bytes=file.file_size_in_bytes,
            tombstones=self._tombstones(file),
            # At least so many: in a composite key NULLs of different columns may be of the same records.
            null_keys=max(self._nulls(file, name) or 0 for name in columns.key),
            oldest_ms=times[0] if times else 0,
            newest_ms=times[1] if times else 0,
            sequence_number=entry.sequence_number or 0,
            row_deletes=0,
            keys=self._keys(file, level),
            stamped=self._stamped(file),
            first_horizon_ms=self._horizon(file.lower_bounds),
            last_horizon_ms=self._horizon(file.upper_bounds),
            transactional=self._may_be_true(file, "is_transactional"),
            control=self._may_be_true(file, "is_control"),
            problem=next(self._problems(file, level, partition), None) if file.record_count else None,
        )

    @property
    def times_of_commits(self) -> bool:
        """Whether the table has no timestamps of its own."""
        return self._columns.timestamp is None

    def unread(self, path: str) -> bool:
        """Whether the footer of ``path`` was needed and could not be read: looking again may tell more."""
        return path in self._footers.unread

    def version(self, spec_id: int) -> str:
        """What tells facts of entries of one partition spec apart from those under other columns or another mapping."""
        columns = self._columns
        names = {columns.offset, columns.timestamp, columns.topic, columns.partition, columns.tombstone_null}
        names |= {*columns.key, columns.level, columns.delete_horizon, *self._optional}
        fields = sorted(repr(self._fields.get(name)) for name in names if name)
        parts = [str(VERSION), repr(columns), *fields, repr(self._specs.get(spec_id)), repr(sorted(self._optional))]
        parts.append(repr(self._footers.names))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def _complete(self, file: DataFile) -> DataFile:
        """``file`` with what decisions rest on, from its footer where the manifest does not tell it."""
        if not file.record_count:
            return file
        columns = self._columns
        ranged = [name for name in (columns.offset, columns.timestamp) if name]
        bounds = [name for name in ranged if self._bounds(file, name) is None and not self._nulls(file, name)]
        counted = [name for name in (*columns.key, columns.tombstone_null) if name]
        counts = [name for name in counted if self._nulls(file, name) is None]
        if not bounds and not counts:
            return file
        return self._footers.complete(file, self._ids(bounds), self._ids(counts))

    def _ids(self, names: list[str]) -> list[int]:
        return [self._fields[name].field_id for name in names]

    def _keys(self, file: DataFile, level: int) -> int | None:
        """Distinct keys: a cleaned segment holds one record per key, and equal bounds leave room for one key."""
        nulls = [self._nulls(file, name) for name in self._columns.key]
        if None in nulls:
            return None
        keyed = file.record_count - max(number or 0 for number in nulls)
        if level >= RUN or not keyed:
            return keyed
        # A bound that was cut short is never equal to the other: the upper one is rounded up (Iceberg spec).
        bounds = [(self._of(file.lower_bounds, name), self._of(file.upper_bounds, name)) for name in self._columns.key]
        return 1 if all(lower is not None and lower == upper for lower, upper in bounds) else None

    def _may_be_true(self, file: DataFile, column: str) -> bool:
        """Whether a record of ``file`` may be so marked; certain only by bounds, or when all are NULL."""
        if column not in self._optional or not file.record_count:
            return False
        upper = self._of(file.upper_bounds, column)
        if upper is not None:
            return upper != _FALSE
        return self._nulls(file, column) != file.record_count

    def _stamped(self, file: DataFile) -> int:
        nulls = self._nulls(file, self._columns.delete_horizon)
        return 0 if nulls is None else file.record_count - nulls

    def _horizon(self, bounds: Mapping[int, bytes] | None) -> int | None:
        """A delete horizon in milliseconds, rounded up: a tombstone must not look past it too early."""
        bound = self._bound(bounds, self._columns.delete_horizon)
        return None if bound is None else -(-int(bound) // 1000)

    def _problems(self, file: DataFile, level: int, partition: int) -> Iterator[str]:
        """What is missing or wrong in the metadata of a file with records, each with what is allowed (C26)."""
        columns = self._columns
        if level not in LEVELS:
            yield f"has level {level}; allowed: NULL, {', '.join(str(known) for known in LEVELS)}"
        if not any(True for _ in self._identities(file, columns.level)) and self._range(file, columns.level):
            yield (
                f"was written under partition spec {file.spec_id}, which keeps no levels apart, and has some in column "
                f"{columns.level}; allowed: NULL, or partitioned by it ({REWRITE})"
            )
        if partition < 0:
            yield f"has partition {partition}; allowed: 0 or more"
        for column in filter(None, (columns.offset, columns.timestamp)):
            bounds = self._bounds(file, column)
            if bounds is None:
                yield (
                    f"has no bounds for column {column}, or NULLs in it{self._unread(file)}; allowed: "
                    f"write.metadata.metrics.column.{column}=full when it is written, and no NULLs"
                )
            elif column == columns.offset and bounds[0] < 0:
                yield f"has offset {bounds[0]}; allowed: 0 or more"
        for column in filter(None, (*columns.key, columns.tombstone_null)):
            if self._nulls(file, column) is None:
                yield (
                    f"has no null count for column {column}{self._unread(file)}; allowed: "
                    f"write.metadata.metrics.column.{column} not `none` when it is written"
                )

    def _unread(self, file: DataFile) -> str:
        reason = self._footers.unread.get(file.file_path)
        return f" (its footer can't be read: {reason})" if reason else ""

    def _stray(self, file: DataFile, topic: str | None, partition: int | None) -> Stray:
        columns = self._columns
        split = [name for name in (columns.topic, columns.partition) if name]
        if not all(any(True for _ in self._identities(file, name)) for name in split):
            problem = (
                f"was written under partition spec {file.spec_id} and may hold several topic partitions; allowed: "
                f"partitioned by {', '.join(split)} ({REWRITE})"
            )
        else:
            problem = f"has topic {topic}, partition {partition}; allowed: both set for every record"
        offsets = self._bounds(file, columns.offset)
        return Stray(
            path=file.file_path,
            problem=problem,
            topics=self._range(file, columns.topic) if columns.topic else (topic, topic),
            partitions=self._range(file, columns.partition) if columns.partition else (partition, partition),
            base_offset=max(offsets[0], 0) if offsets else 0,
        )

    def _times(self, file: DataFile) -> tuple[int, int] | None:
        """Oldest and newest timestamp, epoch milliseconds; None when unknown, or told by the commit."""
        column = self._columns.timestamp
        bounds = self._bounds(file, column) if column else None
        if bounds is None or column is None or isinstance(self._fields[column].field_type, LongType):
            return bounds
        return bounds[0] // 1000, bounds[1] // 1000

    def _tombstones(self, file: DataFile) -> int | None:
        """How many records are tombstones; None when only the records themselves tell."""
        if self._columns.tombstone is None:
            return 0
        column = self._columns.tombstone_null
        return (self._nulls(file, column) or 0) if column else None

    def _single(self, file: DataFile, column: str) -> Any:
        """The value that ``column`` has in every record of ``file``; None when that is not certain, or it is NULL."""
        for value in self._identities(file, column):
            return value
        values = self._range(file, column)
        return values[0] if values and values[0] == values[1] and self._nulls(file, column) == 0 else None

    def _range(self, file: DataFile, column: str) -> tuple[Any, Any] | None:
        """Between which values ``column`` lies in ``file``; None when it is NULL in every record."""
        for value in self._identities(file, column):
            return None if value is None else (value, value)
        if self._nulls(file, column) == file.record_count:
            return None
        # Bounds of text may be cut short, and are bounds all the same.
        return self._bound(file.lower_bounds, column), self._bound(file.upper_bounds, column)

    def _identities(self, file: DataFile, column: str) -> Iterator[Any]:
        """The value of ``column`` where the file's own partition spec has it as it is; nothing otherwise."""
        spec = self._specs.get(file.spec_id)
        for field, value in zip(spec.fields if spec else (), partition_values(file), strict=False):
            if field.source_id == self._fields[column].field_id and isinstance(field.transform, IdentityTransform):
                yield value

    def _bounds(self, file: DataFile, column: str) -> tuple[int, int] | None:
        """Lowest and highest value, never cut short by Iceberg; None when unknown, or a record has NULL there."""
        lower, upper = self._bound(file.lower_bounds, column), self._bound(file.upper_bounds, column)
        return None if lower is None or upper is None or self._nulls(file, column) else (int(lower), int(upper))

    def _bound(self, bounds: Mapping[int, bytes] | None, column: str) -> Any:
        """A bound of an integer, time or text (Iceberg spec, "Binary single-value serialization")."""
        field = self._fields[column]
        found = bounds.get(field.field_id) if bounds else None
        if found is None:
            return None
        # An int's bound stays short when its column becomes a long: the length is not the type's to say.
        return (
            found.decode() if isinstance(field.field_type, StringType) else int.from_bytes(found, "little", signed=True)
        )

    def _of(self, bounds: Mapping[int, bytes] | None, column: str) -> bytes | None:
        return bounds.get(self._fields[column].field_id) if bounds else None

    def _nulls(self, file: DataFile, column: str) -> int | None:
        """How many records have NULL in ``column``; None when unknown."""
        field = self._fields[column]
        if field.required:
            return 0
        if file.null_value_counts and field.field_id in file.null_value_counts:
            return file.null_value_counts[field.field_id]
        # Sizes are kept whatever the metrics mode: a column without one came after the file, and is NULL in all of it.
        return file.record_count if file.column_sizes and field.field_id not in file.column_sizes else None


def partition_values(file: DataFile) -> tuple[Any, ...]:
    """Partition values in the order of the spec's fields."""
    return tuple(file.partition[position] for position in range(len(file.partition)))
