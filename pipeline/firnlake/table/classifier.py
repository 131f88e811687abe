"""Classifies a listed data file as a segment, a stray, or nothing, by the metrics of its columns."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from firnlake.clock import CALENDAR
from firnlake.iceberg.files import Stored, Stores
from firnlake.table.columns import ColumnRoles
from firnlake.table.manifest_rows import Footers, ListedFile
from firnlake.table.records import TRANSACTION_COLUMNS, has_transactions
from firnlake.table.segment import LANDED, LEVELS, RUN, Segment, UnassignedFile
from firnlake.table.topic_partition import TopicPartition


@dataclass(frozen=True)
class ColumnMetrics:
    """A column of a table: its field id, its type, and its positions in the table's partition specs."""

    name: str
    id: int
    required: bool
    is_text: bool
    is_long: bool
    places: Mapping[int, tuple[int, ...]]
    """Positions of the column's identity fields among a file's partition values, by partition spec id."""

    @classmethod
    def of(cls, field: NestedField, specs: Mapping[int, PartitionSpec]) -> "ColumnMetrics":
        """The column ``field`` of a table that is, or was, partitioned by ``specs``."""
        places = {
            spec_id: tuple(
                place
                for place, part in enumerate(spec.fields)
                if part.source_id == field.field_id and isinstance(part.transform, IdentityTransform)
            )
            for spec_id, spec in specs.items()
        }
        kind = field.field_type
        is_text, is_long = isinstance(kind, StringType), isinstance(kind, LongType)
        return cls(field.name, field.field_id, field.required, is_text, is_long, places)

    def is_fixed(self, file: ListedFile) -> bool:
        """True when ``file`` is partitioned by the column, so all its records have the same value."""
        return bool(self.places.get(file.spec_id))

    def fixed(self, file: ListedFile) -> Any:
        """The column's value in every record, from the file's partition values; None if NULL. Requires ``is_fixed``."""
        return file.partition[self.places[file.spec_id][0]]

    def single(self, file: ListedFile) -> Any:
        """The column's value if it is the same in all records of ``file``; None if it may differ or be NULL."""
        if self.is_fixed(file):
            return self.fixed(file)
        values = self.range(file)
        return values[0] if values and values[0] == values[1] and self.nulls(file) == 0 else None

    def is_mixed(self, file: ListedFile) -> bool:
        """True unless the column is known to have the same value, or NULL, in all records of ``file``."""
        bounds = self.range(file)
        return bounds is not None and (bounds[0] is None or bounds[0] != bounds[1] or bool(self.nulls(file)))

    def range(self, file: ListedFile) -> tuple[Any, Any] | None:
        """Bounds of the column in ``file``, each None when unknown; None when the column is NULL in every record."""
        if self.is_fixed(file):
            value = self.fixed(file)
            return None if value is None else (value, value)
        if self.nulls(file) == file.records:
            return None
        # A truncated bound of a text column is still a bound.
        return self.bound(file.lower), self.bound(file.upper)

    def bounds(self, file: ListedFile) -> tuple[int, int] | None:
        """Lowest and highest integer or time, which Iceberg never truncates; None if unknown or if a value is NULL."""
        lower, upper = self.bound(file.lower), self.bound(file.upper)
        return None if lower is None or upper is None or self.nulls(file) else (int(lower), int(upper))

    def is_open(self, file: ListedFile) -> bool:
        """True when the metrics of ``file`` leave open which values the column has."""
        if self.is_fixed(file):
            return False
        nulls = self.nulls(file)
        bounded = self.id in file.lower and self.id in file.upper
        return nulls is None or (nulls < file.records and not bounded)

    def bound(self, bounds: Mapping[int, bytes]) -> Any:
        """Decode the column's bound: an integer, time or text (Iceberg spec, "Binary single-value serialization").

        None if there is none, or none that can be decoded.
        """
        value = bounds.get(self.id)
        if value is None:
            return None
        # When an int column becomes a long, old bounds keep 4 bytes, so decode by length, not by type.
        if not self.is_text:
            return int.from_bytes(value, "little", signed=True) if len(value) in _LENGTHS else None
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None

    def wrong(self, file: ListedFile) -> Iterator[str]:
        """Yield a message for each metric of the column that makes no sense, and so does not count."""
        kind = "text in UTF-8" if self.is_text else "a number of 4 or 8 bytes"
        for name, bounds in (("lower", file.lower), ("upper", file.upper)):
            if bounds.get(self.id) is not None and self.bound(bounds) is None:
                yield (
                    f"has the {name} bound 0x{bounds[self.id][:16].hex()} of column {self.name} in its manifest; "
                    f"allowed: {kind}"
                )
        lower, upper = self.bound(file.lower), self.bound(file.upper)
        if lower is not None and upper is not None and lower > upper:
            yield f"has the bounds {lower!r} and {upper!r} of column {self.name}; allowed: the lower one first"

    def nulls(self, file: ListedFile) -> int | None:
        """Number of records of ``file`` with NULL in the column; None when unknown."""
        known = file.nulls.get(self.id)
        if known is not None and 0 <= known <= file.records:
            return known
        return 0 if self.required else None


VERSION = 7
"""Version of cached facts (``segment_cache.py``); raise this number when the code derives other facts."""

_REWRITE = "rewrite it under the current partition spec: rewrite_data_files with rewrite-all"

_FALSE: Final = b"\x00"
"""Upper bound of a column that is false in every record (Iceberg spec, "Binary single-value serialization")."""

_MOST: Final = 1 << 50
"""Sizes in bytes, and numbers of records, are less."""
_LENGTHS: Final = (4, 8)
"""Lengths in bytes of a serialized integer or time."""

_Range: TypeAlias = tuple[int, int]


class Classifier:
    """Classifies the listed files of one table.

    The result depends only on the file's manifest entry, the columns that Firn reads and the entry's partition spec, so
    it can be cached (see ``version``). The caller adds the commit time and the row-level deletes.
    """

    def __init__(self, table: Table, identifier: str) -> None:
        self._names = names = ColumnRoles.of(table, identifier)
        self._specs = table.specs()
        self._fields = {field.name: field for field in table.schema().fields}
        # Optional columns (C10). A table without them has no transactions. An adopted table has none either, because
        # its columns are typed, and only the bytes of a Kafka key identify a marker.
        transactional = has_transactions(table) and not names.adopted
        self._optional = frozenset(TRANSACTION_COLUMNS if transactional else ())
        self._footers = Footers(table)
        ids = {one.schema_id: {field.field_id for field in one.fields} for one in table.metadata.schemas}
        self._columns_at: Mapping[int | None, Set[int]] = {
            one.snapshot_id: ids[one.schema_id] for one in table.metadata.snapshots if one.schema_id in ids
        }
        """Field ids of the columns that the table had, by the snapshot that was made then."""
        self._stores = Stores(table)
        self._without_time: set[str] = set()

        def column(name: str | None) -> ColumnMetrics | None:
            return ColumnMetrics.of(self._fields[name], self._specs) if name else None

        def named(name: str) -> ColumnMetrics:
            return ColumnMetrics.of(self._fields[name], self._specs)

        self._key = tuple(named(name) for name in names.key)
        self._offset, self._level, self._delete_horizon = map(named, (names.offset, names.level, names.delete_horizon))
        self._timestamp, self._topic, self._partition = map(column, (names.timestamp, names.topic, names.partition))
        self._tombstone_null = column(names.tombstone_null)
        self._is_transactional, self._is_control = (
            named(name) if name in self._optional else None for name in ("is_transactional", "is_control")
        )
        roles = (self._offset, self._timestamp, self._topic, self._partition, self._level, self._delete_horizon)
        self._ranged = tuple(filter(None, roles))
        self._flags = tuple(filter(None, (self._is_transactional, self._is_control)))
        self._counted = tuple(filter(None, (*self._key, self._tombstone_null)))

    def of(self, file: ListedFile) -> Segment | UnassignedFile | None:
        """Classify ``file`` as a segment, or as a stray if its topic partition is unknown; None for an empty stray."""
        if impossible := _impossible(file):
            file = replace(file, size=0, records=1)
        file = self._complete(file)
        topic = self._topic.single(file) if self._topic else self._names.topic_name
        partition = self._partition.single(file) if self._partition else 0
        if topic is None or partition is None:
            return self._stray(file, topic, partition) if file.records else None
        offsets, times = self._offset.bounds(file), self._times(file)
        null_keys = [column.nulls(file) for column in self._key]
        # A file without a partition field for the level counts as landed, unless the table has no such field.
        told = self._level.is_fixed(file) or not self._names.levels_apart
        level = (self._level.single(file) if told else None) or LANDED
        return Segment(
            path=file.path,
            topic_partition=TopicPartition(topic, partition),
            level=level,
            base_offset=offsets[0] if offsets else -1,
            last_offset=offsets[1] if offsets else -1,
            records=file.records,
            bytes=file.size,
            data_bytes=_data_bytes(file),
            tombstones=self._tombstones(file),
            # A lower bound, because NULLs in different columns of a composite key may be in the same records.
            null_keys=max(number or 0 for number in null_keys),
            oldest_ms=times[0] if times else 0,
            newest_ms=times[1] if times else 0,
            sequence_number=file.added_by,
            row_deletes=0,
            written_ms=self._written_ms(file) if file.records and times and times[0] < 0 else None,
            keys=self._keys(file, level, null_keys),
            stamped=self._stamped(file),
            first_horizon_ms=self._horizon(file.lower),
            last_horizon_ms=self._horizon(file.upper),
            transactional=_may_be_true(file, self._is_transactional),
            control=_may_be_true(file, self._is_control),
            problem=impossible
            or (next(self._problems(file, level, partition, offsets, times), None) if file.records else None),
        )

    @property
    def times_of_commits(self) -> bool:
        """True when the table has no timestamp column, so records take the time of their commit."""
        return self._timestamp is None

    @property
    def levels_apart(self) -> bool:
        """True when the table is partitioned by level (``ColumnRoles.levels_apart``)."""
        return self._names.levels_apart

    @property
    def unread(self) -> Set[str]:
        """Paths of files whose footer or time of writing was needed but not readable; a later read may succeed."""
        return self._footers.unread.keys() | self._without_time

    def version(self, spec_id: int) -> str:
        """Cache key of the facts about files of partition spec ``spec_id``. The key changes with the columns that Firn
        reads, the column mapping, the name mapping and the spec."""
        columns = self._names
        names = {columns.offset, columns.timestamp, columns.topic, columns.partition, columns.tombstone_null}
        names |= {*columns.key, columns.level, columns.delete_horizon, *self._optional}
        fields = sorted(repr(self._fields.get(name)) for name in names if name)
        parts = [str(VERSION), repr(columns), *fields, repr(self._specs.get(spec_id)), repr(sorted(self._optional))]
        parts.append(repr(self._footers.names))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def _complete(self, file: ListedFile) -> ListedFile:
        """``file`` with all metrics that decisions need; if the manifest lacks some, they come from the footer."""
        if not file.records:
            return file
        asked = [column.id for column in self._ranged if column.is_open(file)]
        asked += [column.id for column in self._counted if column.nulls(file) is None]
        asked += [column.id for column in self._flags if column.id not in file.upper and column.nulls(file) is None]
        if not asked:
            return file
        # A column that the table did not have when the file was added is NULL in all of it, if ids tell columns apart.
        known = self._columns_at.get(file.snapshot_id) if self._footers.names is None else None
        later = [one for one in asked if known is not None and one not in known]
        file = file.told(dict.fromkeys(later, file.records)) if later else file
        return self._footers.complete(file, asked) if (asked := [one for one in asked if one not in later]) else file

    def _keys(self, file: ListedFile, level: int, nulls: Sequence[int | None]) -> int | None:
        """Number of distinct keys; None if unknown. A cleaned file has one record per key. Equal bounds mean 1 key."""
        if None in nulls:
            return None
        keyed = file.records - max(number or 0 for number in nulls)
        if level >= RUN or not keyed:
            return keyed
        # Truncated bounds are never equal, because the upper bound is rounded up (Iceberg spec).
        bounds = [(file.lower.get(column.id), file.upper.get(column.id)) for column in self._key]
        return 1 if all(lower is not None and lower == upper for lower, upper in bounds) else None

    def _stamped(self, file: ListedFile) -> int:
        nulls = self._delete_horizon.nulls(file)
        return 0 if nulls is None else file.records - nulls

    def _horizon(self, bounds: Mapping[int, bytes]) -> int | None:
        """A delete horizon in milliseconds, rounded up so that no tombstone passes it too early."""
        bound = self._delete_horizon.bound(bounds)
        return None if bound is None else -(-int(bound) // 1000)

    def _problems(
        self, file: ListedFile, level: int, partition: int, offsets: _Range | None, times: _Range | None
    ) -> Iterator[str]:
        """Yield a message for each piece of metadata that is missing or wrong in a file with records (C26)."""
        yield from self._wrong(file, self._offset, self._timestamp, self._level, self._delete_horizon)
        if level not in LEVELS:
            yield f"has level {level}; allowed: NULL, {', '.join(str(known) for known in LEVELS)}"
        if self._level.is_open(file):
            yield self._unbounded(file, self._level)
        if not self._names.levels_apart and self._level.is_mixed(file):
            yield (
                f"may have several levels by the metrics of column {self._level.name}; allowed: NULL or the same level "
                f"in every record, written with write.metadata.metrics.column.{self._level.name}=full"
            )
        if self._names.levels_apart and not self._level.is_fixed(file) and self._level.range(file):
            yield (
                f"was written under partition spec {file.spec_id}, which does not separate levels, but holds levels "
                f"in column {self._level.name}; allowed: NULL, or a file partitioned by this column ({_REWRITE})"
            )
        if partition < 0:
            yield f"has partition {partition}; allowed: 0 or more"
        for column, bounds in ((self._offset, offsets), (self._timestamp, times)):
            if column and bounds is None and (nulls := column.nulls(file)):
                yield f"has NULLs in column {column.name} ({nulls:,} of {file.records:,}); allowed: none"
            elif column and bounds is None:
                yield self._unbounded(file, column)
        if self._timestamp and (beyond := next((time for time in times or () if time not in CALENDAR), None)):
            yield (
                f"has times in column {self._timestamp.name} that are in no calendar ({beyond} ms since the epoch); "
                "allowed: times of the years 1 to 9999"
            )
        if offsets and offsets[0] < 0:
            yield f"has offset {offsets[0]}; allowed: 0 or more"
        for column in self._counted:
            if column.nulls(file) is None:
                yield (
                    f"has no null count for column {column.name}{self._unread(file)}; allowed: a file written with "
                    f"write.metadata.metrics.column.{column.name} other than `none`"
                )

    def _wrong(self, file: ListedFile, *columns: ColumnMetrics | None) -> Iterator[str]:
        for column in columns:
            if column and not column.is_fixed(file):
                yield from column.wrong(file)

    def _unbounded(self, file: ListedFile, column: ColumnMetrics) -> str:
        return (
            f"has no bounds for column {column.name}{self._unread(file)}; allowed: a file written with "
            f"write.metadata.metrics.column.{column.name}=full"
        )

    def _unread(self, file: ListedFile) -> str:
        reason = self._footers.unread.get(file.path)
        return f" (its footer can't be read: {reason})" if reason else ""

    def _stray(self, file: ListedFile, topic: str | None, partition: int | None) -> UnassignedFile:
        split = [column for column in (self._topic, self._partition) if column]
        if wrong := next(self._wrong(file, *split), None):
            problem = wrong
        elif not all(column.is_fixed(file) for column in split):
            problem = (
                f"was written under partition spec {file.spec_id} and may hold several topic partitions; allowed: a "
                f"file partitioned by {', '.join(column.name for column in split)} ({_REWRITE})"
            )
        else:
            problem = f"has topic {topic}, partition {partition}; allowed: a topic and a partition in every record"
        offsets = self._offset.bounds(file)
        return UnassignedFile(
            path=file.path,
            problem=problem,
            topics=self._topic.range(file) if self._topic else (topic, topic),
            partitions=self._partition.range(file) if self._partition else (partition, partition),
            base_offset=max(offsets[0], 0) if offsets else 0,
            place=file.place,
            data_sequence_number=file.sequence_number,
        )

    def _times(self, file: ListedFile) -> tuple[int, int] | None:
        """Oldest and newest timestamp, epoch milliseconds; None when unknown, or if records have no timestamps."""
        column = self._timestamp
        bounds = column.bounds(file) if column else None
        if bounds is None or column is None or column.is_long:
            return bounds
        return bounds[0] // 1000, bounds[1] // 1000

    def _written_ms(self, file: ListedFile) -> int | None:
        """Time of writing as the store reports it, epoch milliseconds; None when the store reports no time."""
        files, path = self._stores.of(file.path)
        try:
            written_ms = Stored.of(files.get_file_info(path)).written_ms
        except OSError:
            written_ms = None
        if written_ms is None:
            self._without_time.add(file.path)
        return written_ms

    def _tombstones(self, file: ListedFile) -> int | None:
        """Number of tombstones; None when only reading the records can tell."""
        if self._names.is_tombstone is None:
            return 0
        return (self._tombstone_null.nulls(file) or 0) if self._tombstone_null else None


def _data_bytes(file: ListedFile) -> int:
    """Bytes of all columns of ``file``; its size if the manifest has no sizes, or sizes that the file can't have."""
    total = sum(file.column_sizes.values())
    return total if 0 < total <= file.size else file.size


def _impossible(file: ListedFile) -> str | None:
    """A message if the size of ``file``, or its number of records, is none of a file; None otherwise."""
    for name, figure in (("file_size_in_bytes", file.size), ("record_count", file.records)):
        if not 0 <= figure < _MOST:
            return f"has {name} {figure} in its manifest; allowed: 0 or more, less than 2^50"
    return None


def _may_be_true(file: ListedFile, column: ColumnMetrics | None) -> bool:
    """False when the metrics of ``column`` (an upper bound, or NULL in every record) rule out that it is ever true."""
    if column is None or not file.records:
        return False
    upper = file.upper.get(column.id)
    return upper != _FALSE if upper is not None else column.nulls(file) != file.records
