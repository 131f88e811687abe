"""Classifies the data files of a manifest as segments, or as strays, by what metadata says about their columns.

A manifest lacks bounds, counts and, since Iceberg 1.6, sizes if the table's properties say so
(``write.metadata.metrics.column.offset=none``), if only the first columns of a wide table have metrics
(``write.metadata.metrics.max-inferred-column-defaults``), or if files were added without being read. Bounds that make
no sense count as missing, too. Then the footer of the Parquet file is read, which has these metrics per row group,
unless the writer also left them out of it.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import FileFormat, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
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
from firnlake.iceberg.data_files import name_mapping, names_by_id, partition_values
from firnlake.iceberg.deletes import place
from firnlake.iceberg.files import Stored, store
from firnlake.table.columns import ColumnRoles, position
from firnlake.table.records import has_transactions
from firnlake.table.segment import LANDED, LEVELS, SCHEMA, Segment, TopicPartition, UnassignedFile, rows_of

VERSION = 12
"""Version of cached facts (``ManifestCache``); raise this number when the code derives a fact in another way."""

_REWRITE: Final = "rewrite it under the current partition spec: rewrite_data_files with rewrite-all"

_MOST: Final = 1 << 50
"""Sizes in bytes, and numbers of records, are less."""

_FIELDS: Final = (0, 1, 3, 4, 100, 101, 102, 103, 104, 108, 110, 125, 128)
"""Field ids (Iceberg spec, "Manifests"): status, id of the snapshot, data and file sequence number; path, format,
partition, number of records, bytes, column sizes, null counts, lower and upper bounds."""


class ListedFile(NamedTuple):
    """A live data file as a manifest lists it. Metrics are by field id; bounds are serialized (Iceberg spec)."""

    spec_id: int
    snapshot_id: int | None
    """Id of the snapshot that added the file, even after manifests were rewritten."""
    number: int
    """Data sequence number, which decides which row-level deletes apply."""
    added_by: int
    """File sequence number: the sequence number of the commit that added the file."""
    path: str
    format: str
    """File format in the writer's spelling, such as ``PARQUET``."""
    partition: Sequence[Any]
    """Partition values in the order of the spec's fields."""
    records: int
    size: int
    """In bytes."""
    column_sizes: Mapping[int, int] | None
    nulls: Mapping[int, int] | None
    lower: Mapping[int, bytes] | None
    upper: Mapping[int, bytes] | None

    @classmethod
    def in_manifest(cls, content: bytes, manifest: ManifestFile) -> list["ListedFile"]:
        """The files in the ``content`` of ``manifest``, its whole file; raises RefusedError when it is damaged."""
        with manifests.undamaged(f"manifest {manifest.manifest_path}"):
            return list(cls._inheriting(manifests.records(content, _FIELDS), manifest))

    @classmethod
    def of(cls, entry: ManifestEntry) -> "ListedFile":
        """The file of ``entry``, as read by PyIceberg."""
        file = entry.data_file
        return cls(
            file.spec_id,
            entry.snapshot_id,
            entry.sequence_number or 0,
            entry.file_sequence_number or entry.sequence_number or 0,
            file.file_path,
            file.file_format,
            partition_values(file),
            file.record_count,
            file.file_size_in_bytes,
            file.column_sizes,
            file.null_value_counts,
            file.lower_bounds,
            file.upper_bounds,
        )

    @property
    def place(self) -> str:
        """The partition spec and values as text; they decide which delete files may reach the file."""
        return place(self.spec_id, tuple(self.partition))

    @classmethod
    def _inheriting(cls, records: Iterable[Sequence[Any]], manifest: ManifestFile) -> Iterator["ListedFile"]:
        for status, snapshot, number, added, *file in records:
            if status != ManifestEntryStatus.DELETED:
                # New entries inherit the snapshot and the number of their manifest's commit (Iceberg spec, "Sequence
                # Number Inheritance"). In a manifest of format version 1, all entries do, and the number is 0.
                data_number = manifest.sequence_number if number is None else number
                inherited = manifest.sequence_number if status == ManifestEntryStatus.ADDED else data_number
                commit = manifest.added_snapshot_id if snapshot is None else snapshot
                by = inherited if added is None else added
                yield cls(manifest.partition_spec_id, commit, data_number, by, *file)


@dataclass(slots=True)
class Values:
    """What metadata says about the values of a column in a file with so many ``records``."""

    records: int
    nulls: int
    """Number of records with NULL; -1 when unknown."""
    low: Any = None
    """A lower bound of the values, or None. A bound of text may be truncated, and is still a bound."""
    high: Any = None
    fixed: bool = False
    """True if the file is partitioned by the column, so all its records have the same value."""

    @property
    def all_null(self) -> bool:
        return self.nulls == self.records

    @property
    def bounded(self) -> bool:
        return self.low is not None and self.high is not None

    @property
    def single(self) -> bool:
        """True if the value is the same in all records."""
        return self.nulls == 0 and self.bounded and bool(self.low == self.high)

    @property
    def ranged(self) -> bool:
        """True if the bounds are the lowest and the highest integer or time, which Iceberg never truncates, and no
        value is NULL."""
        return self.bounded and self.nulls <= 0

    @property
    def is_open(self) -> bool:
        """True if the metrics leave open which values the column has."""
        return self.nulls < 0 or not (self.bounded or self.all_null)

    @property
    def range(self) -> tuple[Any, Any] | None:
        """The bounds, each None when unknown; None when every record has NULL."""
        return None if self.all_null else (self.low, self.high)


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


def _values(field: NestedField, places: Mapping[int, int | None], file: ListedFile, records: int) -> Values:
    """What the manifest says about the column ``field`` in ``file``; ``places`` has the position of its value among
    partition values, by partition spec."""
    spot = places.get(file.spec_id)
    if spot is not None:
        value = file.partition[spot]
        return Values(records, records if value is None else 0, value, value, fixed=True)
    nulls = -1 if file.nulls is None else file.nulls.get(field.field_id, -1)
    if not 0 <= nulls <= records:
        nulls = 0 if field.required else -1
    low, high = _bound(field, file.lower), _bound(field, file.upper)
    if low is not None and high is not None and low > high:
        low = high = None
    return Values(records, nulls, low, high)


def _bound(field: NestedField, bounds: Mapping[int, bytes] | None) -> Any:
    bound = None if bounds is None else bounds.get(field.field_id)
    return None if bound is None else _DECODERS.get(type(field.field_type), bytes)(bound)


@dataclass(frozen=True)
class ManifestContents:
    """What one or more manifests say: segments as ``rows`` of ``SCHEMA``, and strays. Facts that depend on other
    manifests, on snapshots or on row-level deletes have their defaults."""

    rows: pa.Table
    strays: tuple[UnassignedFile, ...] = ()

    @classmethod
    def together(cls, every: Iterable["ManifestContents"]) -> "ManifestContents":
        """Concatenate ``every`` in order."""
        parts = list(every)
        rows = pa.concat_tables([SCHEMA.empty_table(), *(part.rows for part in parts)])
        return cls(rows, tuple(stray for part in parts for stray in part.strays))


class Classifier:
    """Classifies the listed files of one table.

    The result depends only on the files' manifest entries, their footers, and the table's columns and partition specs,
    so it can be cached (see ``version``). The caller adds what depends on snapshots and row-level deletes.
    """

    def __init__(self, table: Table, identifier: str) -> None:
        self.roles = roles = ColumnRoles.of(table, identifier)
        flags = {"transactional": "is_transactional", "control": "is_control"}
        self._flags = flags if has_transactions(table) else {}
        ranged = (roles.offset, roles.timestamp, roles.topic, roles.partition, roles.level, roles.delete_horizon)
        self._ranged = frozenset(filter(None, (*ranged, *self._flags.values())))
        self._counted = tuple(filter(None, (*roles.key, roles.tombstone_null)))
        read = dict.fromkeys((*self._ranged, *self._counted))
        schema, specs = table.schema(), table.specs()
        self._fields = {name: schema.find_field(name) for name in read}
        self._places = {name: {one: position(schema, spec, name) for one, spec in specs.items()} for name in read}
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

    def of(self, files: Iterable[ListedFile]) -> ManifestContents:
        """Classify ``files`` as segments, or as strays if their topic partition is unknown; empty strays are left out.

        Afterwards, ``unread`` has those of ``files`` that are to be read again.
        """
        self.unread.clear()
        found = [self._classified(file) for file in files]
        segments = self._timed([one for one in found if isinstance(one, Segment)])
        return ManifestContents(rows_of(segments), tuple(one for one in found if isinstance(one, UnassignedFile)))

    def _classified(self, file: ListedFile) -> Segment | UnassignedFile | None:
        roles = self.roles
        size, records = (file.size, file.records) if _is_possible(file.size) and _is_possible(file.records) else (0, 1)
        values = {name: _values(field, self._places[name], file, records) for name, field in self._fields.items()}
        data_bytes = sum((file.column_sizes or {}).values())
        if records:
            data_bytes = self._read_footer(file, values, data_bytes)
        topic, partition = (values[name] if name else None for name in (roles.topic, roles.partition))
        number = partition.low if partition and partition.single else 0
        if not all(one.single for one in (topic, partition) if one):
            return self._stray(file, values) if records else None
        in_level, offsets, horizons = values[roles.level], values[roles.offset], values[roles.delete_horizon]
        level = in_level.low if self._is_one_level(in_level) else LANDED
        times = self._times(values)
        flagged = ((fact, values[name]) for fact, name in self._flags.items())
        return Segment(
            path=file.path,
            topic_partition=TopicPartition(topic.low if topic else roles.topic_name, number),
            level=level,
            base_offset=offsets.low if offsets.ranged else -1,
            last_offset=offsets.high if offsets.ranged else -1,
            records=records,
            bytes=size,
            data_bytes=data_bytes if 0 < data_bytes <= size else size,
            tombstones=self._tombstones(values),
            # A lower bound, because NULLs in different columns of a composite key may be in the same records.
            null_keys=max(0, *(values[name].nulls for name in roles.key)),
            oldest_ms=times[0],
            newest_ms=times[1],
            sequence_number=file.added_by,
            stamped=0 if horizons.nulls < 0 else records - horizons.nulls,
            first_horizon_ms=_rounded_up(horizons.low),
            last_horizon_ms=_rounded_up(horizons.high),
            problem=next(self._problems(file, values, level, number, times), None) if records else None,
            snapshot_id=file.snapshot_id,
            place=file.place,
            data_sequence_number=file.number,
            **{fact: not own.all_null and own.high is not False for fact, own in flagged},
        )

    def _read_footer(self, file: ListedFile, values: dict[str, Values], data_bytes: int) -> int:
        """Fill in what the manifest leaves open; returns the bytes of all columns, ``data_bytes`` unless a footer says
        them."""
        # Of a column that only counts, bounds are not needed.
        left_open = (name for name, one in values.items() if (one.is_open if name in self._ranged else one.nulls < 0))
        asked = [self._fields[name] for name in left_open]
        # A column that the table did not have when the file was added is NULL in all of it, if ids tell columns apart.
        had = self._ids_at.get(file.snapshot_id or 0) if self._mapping is None else None
        for column in asked:
            if had is not None and column.field_id not in had:
                values[column.name] = Values(file.records, file.records)
        if asked := [column for column in asked if had is None or column.field_id in had]:
            try:
                told, data_bytes = self._footer(file, asked)
            except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one file
                self.unread[file.path] = (str(error).splitlines() or [type(error).__name__])[0]
            else:
                values |= {name: Values(file.records, *own) for name, own in told.items()}
        return data_bytes

    def _footer(self, file: ListedFile, columns: Sequence[NestedField]) -> tuple[dict[str, tuple[int, Any, Any]], int]:
        """What the footer of a file says about those ``columns`` that it knows, by name, and the bytes of all columns.

        Without field ids in the file, the table's name mapping finds them. Raises any error of a file that is gone, is
        no Parquet, or is not the file that was listed.
        """
        records = file.records
        if file.format.upper() != FileFormat.PARQUET.value:
            raise ValueError(f"it is of format {file.format}")
        with self._table.io.new_input(file.path).open() as stream:
            metadata = pq.read_metadata(stream)
        if metadata.num_rows != records:
            raise ValueError(f"it is of {metadata.num_rows} records, not {records}")
        schema = metadata.schema.to_arrow_schema()
        names = names_by_id(schema, self._mapping)
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        leaves = range(metadata.num_columns)
        places = {metadata.schema.column(leaf).path: leaf for leaf in leaves}
        found: dict[str, tuple[int, Any, Any]] = {}
        for column in columns:
            name = names.get(column.field_id)
            if name is None and names:
                # A column that the file lacks was added later and is NULL everywhere.
                found[column.name] = (records, None, None)
            elif name in places:  # a nested column consists of several columns, and has no metrics itself
                chunks = [group.column(places[name]) for group in groups]
                if told := _told(chunks, schema.field(name).type):
                    found[column.name] = told
        return found, sum(group.column(leaf).total_compressed_size for group in groups for leaf in leaves)

    def _problems(
        self, file: ListedFile, values: Mapping[str, Values], level: int, partition: int, times: Iterable[int]
    ) -> Iterator[str]:
        """Yield a message for each piece of metadata that is missing or wrong (C26)."""
        roles, reason = self.roles, self.unread.get(file.path)
        unread = f" (its footer can't be read: {reason})" if reason else ""
        for name, figure in (("file_size_in_bytes", file.size), ("record_count", file.records)):
            if not _is_possible(figure):
                yield f"has {name} {figure} in its manifest; allowed: 0 or more, less than 2^50"
        if level not in LEVELS:
            yield f"has level {level}; allowed: NULL, {', '.join(str(known) for known in LEVELS)}"
        if not self._is_one_level(values[roles.level]) and not values[roles.level].all_null:
            apart = f"a file partitioned by this column ({_REWRITE})"
            measured = f"the same level in every record, written with write.metadata.metrics.column.{roles.level}=full"
            yield (
                f"may have several levels in column {roles.level}{unread}; allowed: NULL, or "
                f"{apart if roles.levels_apart else measured}"
            )
        if partition < 0:
            yield f"has partition {partition}; allowed: 0 or more"
        for name in filter(None, (roles.offset, roles.timestamp)):
            own = values[name]
            if not own.ranged and own.nulls > 0:
                yield f"has NULLs in column {name} ({own.nulls:,} of {own.records:,}); allowed: none"
            if not own.ranged:
                yield (
                    f"has no bounds for column {name}{unread}; allowed: a file written with "
                    f"write.metadata.metrics.column.{name}=full"
                )
        for time_ms in times:
            if time_ms not in CALENDAR:
                yield (
                    f"has times in column {roles.timestamp} that are in no calendar ({time_ms} ms since the epoch); "
                    "allowed: times of the years 1 to 9999"
                )
        offsets = values[roles.offset]
        if offsets.ranged and offsets.low < 0:
            yield f"has offset {offsets.low}; allowed: 0 or more"
        for name in self._counted:
            if values[name].nulls < 0:
                yield (
                    f"has no null count for column {name}{unread}; allowed: a file written with "
                    f"write.metadata.metrics.column.{name} other than `none`"
                )

    def _is_one_level(self, in_level: Values) -> bool:
        """True if all records are of one level, by the file's partition if the table is partitioned by it."""
        return in_level.single and (in_level.fixed or not self.roles.levels_apart)

    def _stray(self, file: ListedFile, values: Mapping[str, Values]) -> UnassignedFile:
        roles = self.roles
        split = {name: values[name] for name in (roles.topic, roles.partition) if name}
        if not all(own.fixed for own in split.values()):
            problem = (
                f"was written under partition spec {file.spec_id} and may hold several topic partitions; allowed: a "
                f"file partitioned by {', '.join(split)} ({_REWRITE})"
            )
        else:
            told = {name: own.low if own.single else None for name, own in split.items()}
            topic, partition = told.get(roles.topic or "", roles.topic_name), told.get(roles.partition or "", 0)
            problem = f"has topic {topic}, partition {partition}; allowed: a topic and a partition in every record"
        offsets = values[roles.offset]
        return UnassignedFile(
            path=file.path,
            problem=problem,
            topics=values[roles.topic].range if roles.topic else (roles.topic_name, roles.topic_name),
            partitions=values[roles.partition].range if roles.partition else (0, 0),
            base_offset=max(0, offsets.low) if offsets.ranged else 0,
            place=file.place,
            data_sequence_number=file.number,
        )

    def _times(self, values: Mapping[str, Values]) -> tuple[int, int]:
        """Oldest and newest timestamp, epoch milliseconds; 0 when unknown, or if records have no timestamps."""
        if self.roles.timestamp is None or not (own := values[self.roles.timestamp]).ranged:
            return 0, 0
        per_ms = 1 if isinstance(self._fields[self.roles.timestamp].field_type, LongType) else 1000
        return own.low // per_ms, own.high // per_ms

    def _timed(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        """``segments``; with the time of writing as the store reports it, where records lack timestamps."""
        untimed = (one.path for one in segments if one.records and (one.oldest_ms < 0 or self.roles.timestamp is None))
        times = dict(manifests.ahead(self._time_of, untimed))
        self.unread.update((path, "its store tells no time") for path, time_ms in times.items() if time_ms is None)
        return tuple(replace(one, written_ms=times[one.path]) if one.path in times else one for one in segments)

    def _time_of(self, location: str) -> int | None:
        files_of, path = store(self._table, location)
        try:
            return Stored.of(files_of.get_file_info(path)).written_ms
        except OSError:
            return None

    def _tombstones(self, values: Mapping[str, Values]) -> int | None:
        """Number of tombstones; None when only reading the records can tell."""
        if self.roles.is_tombstone is None:
            return 0
        name = self.roles.tombstone_null
        return max(values[name].nulls, 0) if name else None


def _is_possible(figure: int) -> bool:
    """True for a possible size in bytes, or number of records."""
    return 0 <= figure < _MOST


def _rounded_up(micros: int | None) -> int | None:
    """A delete horizon in milliseconds, rounded up so that no tombstone passes it too early."""
    return None if micros is None else -(-micros // 1000)


def _told(chunks: Sequence[pq.ColumnChunkMetaData], kind: pa.DataType) -> tuple[int, Any, Any] | None:
    """Number of NULLs, and bounds, of the values in the ``chunks`` of a column; None if a row group has no count of
    NULLs."""
    if not all(chunk.is_stats_set and chunk.statistics.has_null_count for chunk in chunks):
        return None
    nulls = sum(chunk.statistics.null_count for chunk in chunks)
    # Only a row group in which every value is NULL may lack bounds.
    filled = [chunk.statistics for chunk in chunks if chunk.statistics.null_count != chunk.num_values]
    if not filled or not all(one.has_min_max for one in filled):
        return nulls, None, None
    low, high = min(one.min_raw for one in filled), max(one.max_raw for one in filled)
    if pa.types.is_string(kind):
        return nulls, low.decode(), high.decode()
    if pa.types.is_timestamp(kind) and filled[0].physical_type == "INT64":
        times, per = _PER_MICROSECOND[kind.unit]
        return nulls, low * times // per, high * times // per
    is_plain = pa.types.is_signed_integer(kind) or pa.types.is_boolean(kind)
    return (nulls, low, high) if is_plain else (nulls, None, None)
