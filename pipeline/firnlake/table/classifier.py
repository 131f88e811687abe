"""Classifies a data file of a table as a segment, or as a stray, by what metadata says about its columns.

A manifest lacks bounds, counts and, since Iceberg 1.6, sizes if the table's properties say so
(``write.metadata.metrics.column.offset=none``), if only the first columns of a wide table have metrics
(``write.metadata.metrics.max-inferred-column-defaults``), or if files were added without being read. Then the footer of
the Parquet file is read, which has these metrics per row group, unless the writer also left them out of it.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BooleanType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from firnlake.clock import CALENDAR
from firnlake.iceberg import manifests
from firnlake.iceberg.data_files import name_mapping, partition_values
from firnlake.iceberg.deletes import place
from firnlake.iceberg.files import Stored, store
from firnlake.iceberg.parquet import names_by_id
from firnlake.table.columns import ColumnRoles
from firnlake.table.records import has_transactions
from firnlake.table.segment import LANDED, LEVELS, RUN, Segment, UnassignedFile
from firnlake.table.segments import SCHEMA
from firnlake.table.topic_partition import TopicPartition

VERSION = 8
"""Version of cached facts (``ManifestCache``); raise this number when the code derives a fact in another way."""

_REWRITE = "rewrite it under the current partition spec: rewrite_data_files with rewrite-all"
_MOST: Final = 1 << 50
"""Sizes in bytes, and numbers of records, are less."""


class Classifier:
    """Classifies the listed files of one table.

    The result depends only on the file's manifest entry, its footer, and the table's columns and partition specs, so it
    can be cached (see ``version``). The caller adds what depends on snapshots and row-level deletes.
    """

    def __init__(self, table: Table, identifier: str) -> None:
        self.roles = roles = ColumnRoles.of(table, identifier)
        self._flags = ("is_transactional", "is_control") if has_transactions(table) else ()
        ranged = (roles.offset, roles.timestamp, roles.topic, roles.partition, roles.level, roles.delete_horizon)
        self._ranged = frozenset(filter(None, (*ranged, *self._flags)))
        self._counted = tuple(filter(None, (*roles.key, roles.tombstone_null)))
        read = dict.fromkeys((*self._ranged, *self._counted))
        fields = {field.name: field for field in table.schema().fields}
        self._columns = {name: ColumnMetrics.of(fields[name], table.specs()) for name in read}
        self._table, self._mapping = table, name_mapping(table)
        ids = {one.schema_id: {field.field_id for field in one.fields} for one in table.metadata.schemas}
        self._ids_at = {one.snapshot_id: ids[one.schema_id] for one in table.metadata.snapshots if one.schema_id in ids}
        """Field ids of the columns that the table had, by the snapshot that was made then."""
        facts = (VERSION, SCHEMA.names, roles, table.schema(), sorted(table.specs().items()), self._mapping)
        self.version = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
        """Changes with everything about the table on which a classification depends."""
        self.unread: dict[str, str] = {}
        """Files whose footer, or time of writing, was needed and could not be read, and why; a later read may succeed.
        """

    def of(self, file: "ListedFile") -> Segment | UnassignedFile | None:
        """Classify ``file`` as a segment, or as a stray if its topic partition is unknown; None for an empty stray."""
        if impossible := _impossible(file):
            file = file._replace(size=0, records=1)
        file, values = self._known(file)
        roles = self.roles
        topic = values[roles.topic].single if roles.topic else roles.topic_name
        partition = values[roles.partition].single if roles.partition else 0
        if topic is None or partition is None:
            return self._stray(file, values, topic, partition) if file.records else None
        offsets, times = values[roles.offset].bounds, self._times(values)
        nulls = [values[name].nulls for name in roles.key]
        # A file without a partition field for the level counts as landed, unless the table has no such field.
        told = values[roles.level].fixed or not roles.levels_apart
        level = (values[roles.level].single if told else None) or LANDED
        horizons = values[roles.delete_horizon]
        flagged = {name for name in self._flags if _may_be_true(values[name])}
        problems = self._problems(file, values, level, partition) if file.records else iter(())
        return Segment(
            path=file.path,
            topic_partition=TopicPartition(topic, partition),
            level=level,
            base_offset=offsets[0] if offsets else -1,
            last_offset=offsets[1] if offsets else -1,
            records=file.records,
            bytes=file.size,
            data_bytes=file.data_bytes if 0 < file.data_bytes <= file.size else file.size,
            tombstones=self._tombstones(values),
            # A lower bound, because NULLs in different columns of a composite key may be in the same records.
            null_keys=max(number or 0 for number in nulls),
            oldest_ms=times[0] if times else 0,
            newest_ms=times[1] if times else 0,
            sequence_number=file.added_by,
            written_ms=self._written_ms(file) if file.records and times and times[0] < 0 else None,
            keys=_keys(file.records, level, [values[name] for name in roles.key]),
            stamped=0 if horizons.nulls is None else file.records - horizons.nulls,
            first_horizon_ms=_rounded_up(horizons.low),
            last_horizon_ms=_rounded_up(horizons.high),
            transactional="is_transactional" in flagged,
            control="is_control" in flagged,
            problem=impossible or next(problems, None),
            snapshot_id=file.snapshot_id,
            place=file.place,
            data_sequence_number=file.sequence_number,
        )

    def _known(self, file: "ListedFile") -> "tuple[ListedFile, dict[str, Values]]":
        """The values of each column; if the manifest lacks some, those in the footer."""
        values = {name: column.values(file) for name, column in self._columns.items()}
        if not file.records:
            return file, values
        # Of a column that only counts, bounds are not needed.
        asked = {name for name, one in values.items() if one.is_open and (name in self._ranged or one.nulls is None)}
        # A column that the table did not have when the file was added is NULL in all of it, if ids tell columns apart.
        had = self._ids_at.get(file.snapshot_id) if asked and self._mapping is None and file.snapshot_id else None
        later = {name for name in asked if had is not None and self._columns[name].id not in had}
        values |= dict.fromkeys(later, Values(file.records, file.records))
        if asked := asked - later:
            try:
                told, data_bytes = footer(self._table.io, self._mapping, file, [self._columns[name] for name in asked])
            except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one file
                self.unread[file.path] = (str(error).splitlines() or [type(error).__name__])[0]
            else:
                return file._replace(data_bytes=data_bytes), values | told
        return file, values

    def _problems(
        self, file: "ListedFile", values: "Mapping[str, Values]", level: int, partition: int
    ) -> Iterator[str]:
        """Yield a message for each piece of metadata that is missing or wrong in a file with records (C26)."""
        roles = self.roles
        ranged = [name for name in (roles.offset, roles.timestamp, roles.level, roles.delete_horizon) if name]
        yield from (values[name].wrong for name in ranged if values[name].wrong)
        if level not in LEVELS:
            yield f"has level {level}; allowed: NULL, {', '.join(str(known) for known in LEVELS)}"
        levels = values[roles.level]
        if levels.is_open:
            yield self._unbounded(file, roles.level)
        if not roles.levels_apart and levels.single is None and not levels.all_null:
            yield (
                f"may have several levels by the metrics of column {roles.level}; allowed: NULL or the same level in "
                f"every record, written with write.metadata.metrics.column.{roles.level}=full"
            )
        if roles.levels_apart and not levels.fixed and not levels.all_null:
            yield (
                f"was written under partition spec {file.spec_id}, which does not separate levels, but holds levels "
                f"in column {roles.level}; allowed: NULL, or a file partitioned by this column ({_REWRITE})"
            )
        if partition < 0:
            yield f"has partition {partition}; allowed: 0 or more"
        for name in filter(None, (roles.offset, roles.timestamp)):
            if values[name].bounds is None and values[name].nulls:
                yield f"has NULLs in column {name} ({values[name].nulls:,} of {file.records:,}); allowed: none"
            elif values[name].bounds is None:
                yield self._unbounded(file, name)
        if beyond := next((time for time in self._times(values) or () if time not in CALENDAR), None):
            yield (
                f"has times in column {roles.timestamp} that are in no calendar ({beyond} ms since the epoch); "
                "allowed: times of the years 1 to 9999"
            )
        if (offsets := values[roles.offset].bounds) and offsets[0] < 0:
            yield f"has offset {offsets[0]}; allowed: 0 or more"
        for name in self._counted:
            if values[name].nulls is None:
                yield (
                    f"has no null count for column {name}{self._why_unread(file)}; allowed: a file written with "
                    f"write.metadata.metrics.column.{name} other than `none`"
                )

    def _unbounded(self, file: "ListedFile", name: str) -> str:
        return (
            f"has no bounds for column {name}{self._why_unread(file)}; allowed: a file written with "
            f"write.metadata.metrics.column.{name}=full"
        )

    def _why_unread(self, file: "ListedFile") -> str:
        reason = self.unread.get(file.path)
        return f" (its footer can't be read: {reason})" if reason else ""

    def _stray(
        self, file: "ListedFile", values: "Mapping[str, Values]", topic: str | None, partition: int | None
    ) -> UnassignedFile:
        roles = self.roles
        split = [name for name in (roles.topic, roles.partition) if name]
        if wrong := next((values[name].wrong for name in split if values[name].wrong), None):
            problem = wrong
        elif not all(values[name].fixed for name in split):
            problem = (
                f"was written under partition spec {file.spec_id} and may hold several topic partitions; allowed: a "
                f"file partitioned by {', '.join(split)} ({_REWRITE})"
            )
        else:
            problem = f"has topic {topic}, partition {partition}; allowed: a topic and a partition in every record"
        offsets = values[roles.offset].bounds
        return UnassignedFile(
            path=file.path,
            problem=problem,
            topics=values[roles.topic].range if roles.topic else (topic, topic),
            partitions=values[roles.partition].range if roles.partition else (partition, partition),
            base_offset=max(offsets[0], 0) if offsets else 0,
            place=file.place,
            data_sequence_number=file.sequence_number,
        )

    def _times(self, values: "Mapping[str, Values]") -> tuple[int, int] | None:
        """Oldest and newest timestamp, epoch milliseconds; None when unknown, or if records have no timestamps."""
        name = self.roles.timestamp
        bounds = values[name].bounds if name else None
        if bounds is None or name is None or isinstance(self._columns[name].kind, LongType):
            return bounds
        return bounds[0] // 1000, bounds[1] // 1000

    def _written_ms(self, file: "ListedFile") -> int | None:
        """Time of writing as the store reports it, epoch milliseconds; None when the store reports no time."""
        files, path = store(self._table, file.path)
        try:
            written_ms = Stored.of(files.get_file_info(path)).written_ms
        except OSError:
            written_ms = None
        if written_ms is None:
            self.unread[file.path] = "its store tells no time"
        return written_ms

    def _tombstones(self, values: "Mapping[str, Values]") -> int | None:
        """Number of tombstones; None when only reading the records can tell."""
        if self.roles.is_tombstone is None:
            return 0
        name = self.roles.tombstone_null
        return (values[name].nulls or 0) if name else None


def _impossible(file: "ListedFile") -> str | None:
    """A message if the size of ``file``, or its number of records, is none of a file; None otherwise."""
    for name, figure in (("file_size_in_bytes", file.size), ("record_count", file.records)):
        if not 0 <= figure < _MOST:
            return f"has {name} {figure} in its manifest; allowed: 0 or more, less than 2^50"
    return None


def _keys(records: int, level: int, columns: "Sequence[Values]") -> int | None:
    """Number of distinct keys; None if unknown. A cleaned file has one record per key. Equal bounds mean 1 key."""
    if any(column.nulls is None for column in columns):
        return None
    keyed = records - max(column.nulls or 0 for column in columns)
    if level >= RUN or not keyed:
        return keyed
    # Truncated bounds are never equal, because the upper bound is rounded up (Iceberg spec).
    return 1 if all(column.low is not None and column.low == column.high for column in columns) else None


def _rounded_up(micros: int | None) -> int | None:
    """A delete horizon in milliseconds, rounded up so that no tombstone passes it too early."""
    return None if micros is None else -(-micros // 1000)


def _may_be_true(flag: "Values") -> bool:
    return not flag.all_null and flag.high is not False


_FIELDS: Final = (0, 1, 3, 4, 100, 101, 102, 103, 104, 108, 110, 125, 128)
"""Field ids (Iceberg spec, "Manifests"): status, id of the snapshot, data and file sequence number; path, format,
partition, number of records, bytes, column sizes, null counts, lower and upper bounds."""


class ListedFile(NamedTuple):
    """One live data file as a manifest lists it. Metrics are by field id; bounds are serialized (Iceberg spec)."""

    spec_id: int
    snapshot_id: int | None
    """Id of the snapshot that added the file, even after manifests were rewritten."""
    sequence_number: int
    """Data sequence number, which decides which row-level deletes apply."""
    added_by: int
    """File sequence number: the sequence number of the commit that added the file."""
    path: str
    format: str
    """File format in the writer's spelling, such as ``PARQUET``."""
    partition: tuple[Any, ...]
    """Partition values in the order of the spec's fields."""
    records: int
    size: int
    """Size of the file in bytes."""
    data_bytes: int
    """Bytes of all columns; 0 if unknown."""
    nulls: Mapping[int, int]
    lower: Mapping[int, bytes]
    upper: Mapping[int, bytes]

    @classmethod
    def of(cls, entry: ManifestEntry) -> "ListedFile":
        """The file of ``entry``, as read by PyIceberg."""
        file, number = entry.data_file, entry.sequence_number or 0
        return cls(
            file.spec_id,
            entry.snapshot_id,
            number,
            entry.file_sequence_number or number,
            file.file_path,
            file.file_format,
            partition_values(file),
            file.record_count,
            file.file_size_in_bytes,
            sum((file.column_sizes or {}).values()),
            file.null_value_counts or {},
            file.lower_bounds or {},
            file.upper_bounds or {},
        )

    @property
    def place(self) -> str:
        """The file's partition spec and values as text; they decide which delete files may reach it (``place``)."""
        return place(self.spec_id, self.partition)


def listed_files(content: bytes, manifest: ManifestFile) -> Iterator[ListedFile]:
    """Yield the live files in the ``content`` of ``manifest``, which is its whole file; raises RefusedError when it is
    damaged."""
    with manifests.undamaged(f"manifest {manifest.manifest_path}"):
        for status, snapshot, number, added, path, form, partition, *figures in manifests.records(content, _FIELDS):
            if status == ManifestEntryStatus.DELETED:
                continue
            records, size, column_sizes, nulls, lower, upper = figures
            # New entries inherit the snapshot and the number of their manifest's commit (Iceberg spec, "Sequence Number
            # Inheritance"). In a manifest of format version 1, all entries do, and the number is 0.
            data_number = manifest.sequence_number if number is None else number
            inherited = manifest.sequence_number if status == ManifestEntryStatus.ADDED else data_number
            yield ListedFile(
                manifest.partition_spec_id,
                manifest.added_snapshot_id if snapshot is None else snapshot,
                data_number,
                inherited if added is None else added,
                path,
                form,
                tuple(partition),
                records,
                size,
                sum((column_sizes or {}).values()),
                nulls or {},
                lower or {},
                upper or {},
            )


class Values(NamedTuple):
    """What metadata says about the values of a column in a file."""

    records: int
    nulls: int | None
    """Number of records with NULL; None when unknown."""
    low: Any = None
    """A lower bound of the values, or None. A bound of text may be truncated, and is still a bound."""
    high: Any = None
    fixed: bool = False
    """True when the file is partitioned by the column, so all its records have the same value."""
    wrong: str = ""
    """A message if the manifest has bounds that make no sense, and so do not count."""

    @property
    def all_null(self) -> bool:
        return self.nulls == self.records

    @property
    def single(self) -> Any:
        """The value if it is the same in all records; None if it may differ or be NULL."""
        return self.low if self.nulls == 0 and self.low == self.high else None

    @property
    def range(self) -> tuple[Any, Any] | None:
        """The bounds, each None when unknown; None when every record has NULL."""
        return None if self.all_null else (self.low, self.high)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Lowest and highest integer or time, which Iceberg never truncates; None if unknown or if a value is NULL."""
        return None if self.low is None or self.high is None or self.nulls else (self.low, self.high)

    @property
    def is_open(self) -> bool:
        """True when the metrics leave open which values the column has."""
        bounded = (self.low is not None and self.high is not None) or self.wrong
        return self.nulls is None or not (bounded or self.all_null)


_LENGTHS: Final = (4, 8)
"""Lengths in bytes of a serialized integer or time."""


def _number(bound: bytes) -> int | None:
    # When an int column becomes a long, old bounds keep 4 bytes, so decode by length, not by type.
    return int.from_bytes(bound, "little", signed=True) if len(bound) in _LENGTHS else None


def _text(bound: bytes) -> str | None:
    try:
        return bound.decode()
    except UnicodeDecodeError:
        return None


def _flag(bound: bytes) -> bool:
    return bound != b"\x00"


_DECODERS: Final[Mapping[type[IcebergType], Callable[[bytes], Any]]] = {
    IntegerType: _number,
    LongType: _number,
    TimestampType: _number,
    TimestamptzType: _number,
    StringType: _text,
    BooleanType: _flag,
}
"""By type of a column, what decodes a bound (Iceberg spec, "Binary single-value serialization"); None if it can't be
decoded. Bounds of other types, such as binary keys, are only compared, as bytes."""
_PER_MICROSECOND: Final = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
"""Factor and divisor, by unit, that turn a timestamp into Iceberg's microseconds."""


@dataclass(frozen=True)
class ColumnMetrics:
    """A column of a table, as metadata tells about it."""

    name: str
    id: int
    kind: IcebergType
    required: bool
    decoded: Callable[[bytes], Any]
    """Decodes a bound of the column; None if it can't be decoded."""
    places: Mapping[int, int]
    """Position of the column's identity field among a file's partition values, by id of the partition spec."""

    @classmethod
    def of(cls, field: NestedField, specs: Mapping[int, PartitionSpec]) -> "ColumnMetrics":
        """The column ``field`` of a table that is, or was, partitioned by ``specs``."""
        places = {
            spec_id: number
            for spec_id, spec in specs.items()
            for number, part in enumerate(spec.fields)
            if part.source_id == field.field_id and isinstance(part.transform, IdentityTransform)
        }
        kind = field.field_type
        return cls(field.name, field.field_id, kind, field.required, _DECODERS.get(type(kind), bytes), places)

    def values(self, file: ListedFile) -> Values:
        """What the manifest says about this column in ``file``."""
        if (number := self.places.get(file.spec_id)) is not None:
            value = file.partition[number]
            return Values(file.records, file.records if value is None else 0, value, value, fixed=True)
        nulls = file.nulls.get(self.id)
        if nulls is None or not 0 <= nulls <= file.records:
            nulls = 0 if self.required else None
        lower, upper = file.lower.get(self.id), file.upper.get(self.id)
        low = None if lower is None else self.decoded(lower)
        high = None if upper is None else self.decoded(upper)
        undecodable = (low is None and lower is not None) or (high is None and upper is not None)
        if undecodable or (low is not None and high is not None and low > high):
            return Values(file.records, nulls, wrong=self._wrong(lower, upper))
        return Values(file.records, nulls, low, high)

    def _wrong(self, lower: bytes | None, upper: bytes | None) -> str:
        shown = []
        for name, bound in (("lower", lower), ("upper", upper)):
            if bound is not None:
                value = self.decoded(bound)
                shown.append(f"the {name} bound {f'0x{bound[:16].hex()}' if value is None else repr(value)}")
        kind = "text in UTF-8" if self.decoded is _text else "numbers of 4 or 8 bytes"
        return f"has {' and '.join(shown)} of column {self.name} in its manifest; allowed: {kind}, the lower one first"


def footer(
    io: FileIO, mapping: NameMapping | None, file: ListedFile, columns: Sequence[ColumnMetrics]
) -> tuple[dict[str, Values], int]:
    """What the footer of ``file`` says about those of ``columns`` that it knows, by name; and the bytes of all columns.

    Without field ids in the file, the table's name ``mapping`` finds them. Raises any error of a file that is gone, is
    no Parquet, or is not the file that was listed.
    """
    if file.format.upper() != FileFormat.PARQUET.value:
        raise ValueError(f"it is of format {file.format}")
    with io.new_input(file.path).open() as stream:
        metadata = pq.read_metadata(stream)
    if metadata.num_rows != file.records:
        raise ValueError(f"it is of {metadata.num_rows} records, not {file.records}")
    schema = metadata.schema.to_arrow_schema()
    names = names_by_id(schema, mapping)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    leaves = range(metadata.num_columns)
    places = {metadata.schema.column(number).path: number for number in leaves}
    values: dict[str, Values] = {}
    for column in columns:
        name = names.get(column.id)
        if name is None and names:
            # A column that the file lacks was added later and is NULL everywhere.
            values[column.name] = Values(file.records, file.records)
        elif name in places:  # a nested column consists of several columns, and has no metrics itself
            chunks = [group.column(places[name]) for group in groups]
            if told := _told(file.records, chunks, schema.field(name).type):
                values[column.name] = told
    return values, sum(group.column(number).total_compressed_size for group in groups for number in leaves)


def _told(records: int, chunks: Sequence[pq.ColumnChunkMetaData], kind: pa.DataType) -> Values | None:
    """The values in the ``chunks`` of a column; None if a row group has no count of NULLs."""
    if not all(chunk.is_stats_set and chunk.statistics.has_null_count for chunk in chunks):
        return None
    nulls = sum(chunk.statistics.null_count for chunk in chunks)
    # Only a row group in which every value is NULL may lack bounds.
    filled = [chunk.statistics for chunk in chunks if chunk.statistics.null_count != chunk.num_values]
    if not filled or not all(one.has_min_max for one in filled):
        return Values(records, nulls)
    low, high = min(one.min_raw for one in filled), max(one.max_raw for one in filled)
    if pa.types.is_string(kind):
        return Values(records, nulls, low.decode(), high.decode())
    if pa.types.is_timestamp(kind) and filled[0].physical_type == "INT64":
        times, per = _PER_MICROSECOND[kind.unit]
        return Values(records, nulls, low * times // per, high * times // per)
    is_plain = pa.types.is_signed_integer(kind) or pa.types.is_boolean(kind)
    return Values(records, nulls, low, high) if is_plain else Values(records, nulls)
