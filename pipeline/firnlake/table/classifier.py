"""Classifies the data files of a manifest as segments, or as strays, by what metadata says about their columns.

A manifest lacks bounds, counts and, since Iceberg 1.6, sizes if the table's properties say so
(``write.metadata.metrics.column.offset=none``), if only the first columns of a wide table have metrics
(``write.metadata.metrics.max-inferred-column-defaults``), or if files were added without being read. Bounds that make
no sense count as missing, too. Then the footer of the Parquet file is read, which has these metrics per row group,
unless the writer also left them out of it.

All files of a manifest are classified together: each fact is an array, because a table may have a million files.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import FileFormat, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, LongType, NestedField

from firnlake.clock import CALENDAR
from firnlake.iceberg import manifests
from firnlake.iceberg.data_files import name_mapping, names_by_id
from firnlake.iceberg.deletes import place
from firnlake.iceberg.files import Stored, store
from firnlake.table.columns import ColumnRoles, position
from firnlake.table.records import has_transactions
from firnlake.table.segment import LANDED, LEVELS, SCHEMA, Bools, Ints, Segment, UnassignedFile

VERSION = 14
"""Version of cached facts (``ManifestCache``); raise this number when the code derives a fact in another way."""

_REWRITE = "rewrite it under the current partition spec: rewrite_data_files with rewrite-all"
_MOST: Final = 1 << 50
"""Sizes in bytes, and numbers of records, are less."""

Objects: TypeAlias = NDArray[Any]
_Metrics: TypeAlias = tuple[int, Any, Any]
"""Number of NULLs in a column of a file, and bounds of its values, each None if unknown."""
_NONE: Final[Objects] = np.array(None, dtype=np.object_)

_FIELDS: Final = (0, 1, 3, 4, 100, 101, 102, 103, 104, 108, 110, 125, 128)
"""Field ids (Iceberg spec, "Manifests"): status, id of the snapshot, data and file sequence number; path, format,
partition, number of records, bytes, column sizes, null counts, lower and upper bounds."""


class Files(NamedTuple):
    """N data files of a manifest, as it lists them. Metrics are by field id; bounds are serialized (Iceberg
    spec)."""

    spec_ids: Sequence[int]
    snapshots: Sequence[int | None]
    """Ids of the snapshots that added the files, even after manifests were rewritten."""
    numbers: Sequence[int]
    """Data sequence numbers, which decide which row-level deletes apply."""
    added_by: Sequence[int]
    """File sequence numbers: the sequence numbers of the commits that added the files."""
    paths: Sequence[str]
    formats: Sequence[str]
    """File formats in the writer's spelling, such as ``PARQUET``."""
    partitions: Sequence[Sequence[Any]]
    """Partition values in the order of the spec's fields."""
    records: Sequence[int]
    sizes: Sequence[int]
    column_sizes: Sequence[Mapping[int, int] | None]
    nulls: Sequence[Mapping[int, int] | None]
    lower: Sequence[Mapping[int, bytes] | None]
    upper: Sequence[Mapping[int, bytes] | None]

    @classmethod
    def in_manifest(cls, content: bytes, manifest: ManifestFile, *, removed: bool = False) -> "Files":
        """The live files in the ``content`` of ``manifest``, its whole file, or those that its commit has ``removed``.

        Raises RefusedError when it is damaged.
        """
        with manifests.undamaged(f"manifest {manifest.manifest_path}"):
            rows = _inheriting(manifests.records(content, _FIELDS), manifest, removed)
            return cls(*(list(zip(*rows, strict=True)) or [()] * len(cls._fields)))

    def place(self, number: int) -> str:
        """A file's partition spec and values as text; they decide which delete files may reach it."""
        return place(self.spec_ids[number], tuple(self.partitions[number]))


def _inheriting(records: Iterable[Sequence[Any]], manifest: ManifestFile, removed: bool) -> Iterator[Sequence[Any]]:
    for status, snapshot, number, added, *file in records:
        if removed == (status == ManifestEntryStatus.DELETED):
            # New entries inherit the snapshot and the number of their manifest's commit (Iceberg spec, "Sequence Number
            # Inheritance"). In a manifest of format version 1, all entries do, and the number is 0.
            data_number = manifest.sequence_number if number is None else number
            inherited = manifest.sequence_number if status == ManifestEntryStatus.ADDED else data_number
            commit = manifest.added_snapshot_id if snapshot is None else snapshot
            yield manifest.partition_spec_id, commit, data_number, inherited if added is None else added, *file


@dataclass
class Values:
    """What metadata says about the values of a column in each of N files."""

    records: Ints
    nulls: Ints
    """[N] Number of records with NULL; -1 when unknown."""
    low: Objects
    """[N] A lower bound of the values, or None. A bound of text may be truncated, and is still a bound."""
    high: Objects
    fixed: Bools
    """[N] True where the file is partitioned by the column, so all its records have the same value."""

    @property
    def all_null(self) -> Bools:
        null: Bools = self.nulls == self.records
        return null

    @property
    def bounded(self) -> Bools:
        return _is_known(self.low) & _is_known(self.high)

    @property
    def single(self) -> Bools:
        """[N] True where the value is the same in all records."""
        single: Bools = (self.nulls == 0) & self.bounded & (self.low == self.high)
        return single

    @property
    def ranged(self) -> Bools:
        """[N] True where the bounds are the lowest and the highest integer or time, which Iceberg never truncates, and
        no value is NULL."""
        return self.bounded & (self.nulls <= 0)

    @property
    def is_open(self) -> Bools:
        """[N] True where the metrics leave open which values the column has."""
        return (self.nulls < 0) | ~(self.bounded | self.all_null)

    def range(self, otherwise: int) -> tuple[Ints, Ints]:
        """[N] The lowest and the highest integer or time, each ``otherwise`` where it is unknown."""
        return _ints(self.low, self.ranged, otherwise), _ints(self.high, self.ranged, otherwise)

    def bounds(self, number: int) -> tuple[Any, Any] | None:
        """The bounds in a file, each None when unknown; None when every record has NULL."""
        return None if self.all_null[number] else (self.low[number], self.high[number])


def _is_known(values: Objects) -> Bools:
    known: Bools = np.not_equal(values, _NONE)
    return known


def _objects(values: Sequence[Any]) -> Objects:
    array: Objects = np.empty(len(values), dtype=np.object_)
    array[:] = values
    return array


def _ints(values: Objects, known: Bools, otherwise: int) -> Ints:
    numbers: Ints = np.where(known, values, otherwise).astype(np.int64)
    return numbers


def _decoded(kind: IcebergType, bounds: Iterable[bytes | None]) -> Iterator[Any]:
    """The values of serialized ``bounds`` of type ``kind``; None where there is none, or where it makes no sense."""
    decode: Callable[[IcebergType, bytes], Any] = from_bytes.dispatch(type(kind))
    for bound in bounds:
        try:
            yield None if bound is None else decode(kind, bound)
        except (TypeError, ValueError, struct.error):
            yield None


_PER_MICROSECOND: Final = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
"""Factor and divisor, by unit, that turn a timestamp into Iceberg's microseconds."""


def _values(field: NestedField, places: Mapping[int, int | None], files: Files, records: Ints) -> Values:
    """What the manifest says about the column ``field`` in ``files``; ``places`` has the position of its value among
    partition values, by partition spec."""
    spots = [places.get(spec_id) for spec_id in files.spec_ids]
    value_of = [None if spot is None else own[spot] for own, spot in zip(files.partitions, spots, strict=True)]
    fixed, value = _is_known(_objects(spots)), _objects(value_of)
    nulls = np.where(_is_known(value), 0, records)
    if fixed.all():
        return Values(records, nulls, value, value.copy(), fixed)
    unknown = 0 if field.required else -1
    counts = [-1 if own is None else own.get(field.field_id, -1) for own in files.nulls]
    told = [count if 0 <= count <= most else unknown for count, most in zip(counts, records.tolist(), strict=True)]
    low, high = (
        list(_decoded(field.field_type, (None if own is None else own.get(field.field_id) for own in bounds)))
        for bounds in (files.lower, files.upper)
    )
    for number, (least, most) in enumerate(zip(low, high, strict=True)):
        if least is not None and most is not None and least > most:
            low[number] = high[number] = None
    low_values, high_values = (np.where(fixed, value, _objects(bounds)) for bounds in (low, high))
    return Values(records, np.where(fixed, nulls, told), low_values, high_values, fixed)


def _constant(value: Any, records: Ints) -> Values:
    """The values of a column that the table lacks, with the same ``value`` in every record; None means NULL."""
    values, nulls = np.full(len(records), value, np.object_), records if value is None else np.zeros_like(records)
    return Values(records, nulls, values, values, np.ones(len(records), np.bool_))


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
        in_ms = roles.timestamp and isinstance(self._fields[roles.timestamp].field_type, LongType)
        self._per_ms = 1 if in_ms else 1000
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

    def of(self, files: Files, are_there: bool = True) -> ManifestContents:
        """Classify ``files`` as segments, or as strays if their topic partition is unknown; empty strays are left out.

        Unless they ``are_there``, only the manifest tells of them. Afterwards, ``unread`` has those that are to be read
        again.
        """
        self.unread.clear()
        roles, sizes, records = self.roles, _in_range(files.sizes), _in_range(files.records)
        broken = np.maximum(sizes, records) == _MOST
        sizes, records = np.where(broken, 0, sizes), np.where(broken, 1, records)
        data_bytes = _in_range([0 if own is None else sum(own.values()) for own in files.column_sizes])
        values = {name: _values(field, self._places[name], files, records) for name, field in self._fields.items()}
        if are_there:
            self._read_footers(files, values, data_bytes)
        topic = values[roles.topic] if roles.topic else _constant(roles.topic_name, records)
        partition = values[roles.partition] if roles.partition else _constant(0, records)
        timestamps = values[roles.timestamp] if roles.timestamp else _constant(None, records)
        known = topic.single & partition.single
        in_level, offsets, horizons = values[roles.level], values[roles.offset], values[roles.delete_horizon]
        levels = _ints(in_level.low, self._is_one_level(in_level), LANDED)
        partitions = _ints(partition.low, known, 0)
        oldest, newest = (times // self._per_ms for times in timestamps.range(0))
        untimed = are_there & known & (records > 0) & ((oldest < 0) | (roles.timestamp is None))
        first, last = offsets.range(-1)
        facts: dict[str, Any] = {
            "topic": topic.low,
            "partition": partitions,
            "path": files.paths,
            "level": levels,
            "base_offset": first,
            "last_offset": last,
            "records": records,
            "bytes": sizes,
            "data_bytes": np.where((data_bytes > 0) & (data_bytes <= sizes), data_bytes, sizes),
            "tombstones": self._tombstones(values),
            # A lower bound, because NULLs in different columns of a composite key may be in the same records.
            "null_keys": np.maximum(0, np.maximum.reduce([values[name].nulls for name in roles.key])),
            "oldest_ms": oldest,
            "newest_ms": newest,
            "sequence_number": files.added_by,
            "written_ms": self._written_ms(files, untimed),
            "stamped": np.where(horizons.nulls < 0, 0, records - horizons.nulls),
            "first_horizon_ms": _rounded_up(horizons.low),
            "last_horizon_ms": _rounded_up(horizons.high),
            "problem": _objects([None] * len(records)),
            "snapshot_id": files.snapshots,
            "place": list(map(files.place, range(len(records)))),
            "data_sequence_number": files.numbers,
        }
        for fact, name in self._flags.items():
            facts[fact] = ~values[name].all_null & np.not_equal(values[name].high, False)  # noqa: FBT003  # the value
        for number, problem in self._problems(files, values, levels, partitions, (oldest, newest)):
            if records[number] and facts["problem"][number] is None:
                facts["problem"][number] = problem
        defaults = {one.name: [one.default] * len(records) for one in fields(Segment)}
        rows = pa.table([pa.array((defaults | facts)[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
        unknown = _where(~known & (records > 0))
        strays = tuple(self._stray(files, topic, partition, max(0, int(first[one])), one) for one in unknown)
        return ManifestContents(rows.filter(pa.array(known)), strays)

    def _read_footers(self, files: Files, values: Mapping[str, Values], data_bytes: Ints) -> None:
        """Fill in what the manifest leaves open."""
        # Of a column that only counts, bounds are not needed.
        left_open = {name: one.is_open if name in self._ranged else one.nulls < 0 for name, one in values.items()}
        for number in _where(np.logical_or.reduce([*left_open.values()]) & (values[self.roles.offset].records > 0)):
            asked = [self._fields[name] for name, flags in left_open.items() if flags[number]]
            # A column that the table did not have when the file was added is NULL in all of it, if ids tell columns
            # apart.
            had = self._ids_at.get(files.snapshots[number] or 0) if self._mapping is None else None
            absent = [column for column in asked if had is not None and column.field_id not in had]
            told: dict[str, _Metrics] = {column.name: (files.records[number], None, None) for column in absent}
            if len(absent) < len(asked):
                try:
                    found, data_bytes[number] = self._footer(files, number, [one for one in asked if one not in absent])
                    told |= found
                except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one file
                    self.unread[files.paths[number]] = (str(error).splitlines() or [type(error).__name__])[0]
            for name, own in told.items():
                values[name].nulls[number], values[name].low[number], values[name].high[number] = own

    def _footer(self, files: Files, number: int, columns: Sequence[NestedField]) -> tuple[dict[str, _Metrics], int]:
        """What the footer of a file says about those ``columns`` that it knows, by name, and the bytes of all columns.

        Without field ids in the file, the table's name mapping finds them. Raises any error of a file that is gone, is
        no Parquet, or is not the file that was listed.
        """
        records = files.records[number]
        if files.formats[number].upper() != FileFormat.PARQUET.value:
            raise ValueError(f"it is of format {files.formats[number]}")
        with self._table.io.new_input(files.paths[number]).open() as stream:
            metadata = pq.read_metadata(stream)
        if metadata.num_rows != records:
            raise ValueError(f"it is of {metadata.num_rows} records, not {records}")
        schema = metadata.schema.to_arrow_schema()
        names = names_by_id(schema, self._mapping)
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        leaves = range(metadata.num_columns)
        places = {metadata.schema.column(leaf).path: leaf for leaf in leaves}
        found: dict[str, _Metrics] = {}
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
        self, files: Files, values: Mapping[str, Values], levels: Ints, partitions: Ints, times: Iterable[Ints]
    ) -> Iterator[tuple[int, str]]:
        """Yield the number of a file, and a message, for each piece of metadata that is missing or wrong (C26)."""
        roles = self.roles
        for name, figures in (("file_size_in_bytes", files.sizes), ("record_count", files.records)):
            for number in _where(_in_range(figures) == _MOST):
                yield number, f"has {name} {figures[number]} in its manifest; allowed: 0 or more, less than 2^50"
        for number in _where(~np.isin(levels, LEVELS)):
            yield number, f"has level {levels[number]}; allowed: NULL, {', '.join(str(known) for known in LEVELS)}"
        in_level = values[roles.level]
        for number in _where(~self._is_one_level(in_level) & ~in_level.all_null):
            apart = f"a file partitioned by this column ({_REWRITE})"
            measured = f"the same level in every record, written with write.metadata.metrics.column.{roles.level}=full"
            problem = (
                f"may have several levels in column {roles.level}{self._why_unread(files, number)}; allowed: NULL, or "
                f"{apart if roles.levels_apart else measured}"
            )
            yield number, problem
        for number in _where(partitions < 0):
            yield number, f"has partition {partitions[number]}; allowed: 0 or more"
        ranged = [name for name in (roles.offset, roles.timestamp) if name]
        for name in ranged:
            own = values[name]
            for number in _where(~own.ranged & (own.nulls > 0)):
                nulls = f"{own.nulls[number]:,} of {own.records[number]:,}"
                yield number, f"has NULLs in column {name} ({nulls}); allowed: none"
        for name, missing, mode, flags in (
            *((name, "bounds", "=full", ~values[name].ranged) for name in ranged),
            *((name, "null count", " other than `none`", values[name].nulls < 0) for name in self._counted),
        ):
            for number in _where(flags):
                problem = (
                    f"has no {missing} for column {name}{self._why_unread(files, number)}; allowed: a file written "
                    f"with write.metadata.metrics.column.{name}{mode}"
                )
                yield number, problem
        for found in times:
            for number in _where((found < CALENDAR.start) | (found >= CALENDAR.stop)):
                problem = (
                    f"has times in column {roles.timestamp} that are in no calendar ({found[number]} ms since the "
                    "epoch); allowed: times of the years 1 to 9999"
                )
                yield number, problem
        first, _ = values[roles.offset].range(0)
        for number in _where(first < 0):
            yield number, f"has offset {first[number]}; allowed: 0 or more"

    def _is_one_level(self, in_level: Values) -> Bools:
        """[N] True where all records are of one level, by the file's partition if the table is partitioned by it."""
        return in_level.single & in_level.fixed if self.roles.levels_apart else in_level.single

    def _why_unread(self, files: Files, number: int) -> str:
        reason = self.unread.get(files.paths[number])
        return f" (its footer can't be read: {reason})" if reason else ""

    def _stray(self, files: Files, topic: Values, partition: Values, base_offset: int, number: int) -> UnassignedFile:
        if topic.fixed[number] and partition.fixed[number]:
            found = f"topic {topic.low[number]}, partition {partition.low[number]}"
            problem = f"has {found}; allowed: a topic and a partition in every record"
        else:
            names = ", ".join(filter(None, (self.roles.topic, self.roles.partition)))
            problem = (
                f"was written under partition spec {files.spec_ids[number]} and may hold several topic partitions; "
                f"allowed: a file partitioned by {names} ({_REWRITE})"
            )
        return UnassignedFile(
            path=files.paths[number],
            problem=problem,
            topics=topic.bounds(number),
            partitions=partition.bounds(number),
            base_offset=base_offset,
            place=files.place(number),
            data_sequence_number=files.numbers[number],
        )

    def _written_ms(self, files: Files, untimed: Bools) -> Objects:
        """[N] Time of writing of the ``untimed`` files as the store reports it, epoch milliseconds; None when the store
        reports no time."""
        times = _objects([None] * len(untimed))
        for number, written_ms in manifests.ahead(lambda one: self._time_of(files.paths[one]), _where(untimed)):
            times[number] = written_ms
            if written_ms is None:
                self.unread[files.paths[number]] = "its store tells no time"
        return times

    def _time_of(self, location: str) -> int | None:
        files_of, path = store(self._table, location)
        try:
            return Stored.of(files_of, files_of.get_file_info(path)).written_ms
        except OSError:
            return None

    def _tombstones(self, values: Mapping[str, Values]) -> Ints | Objects:
        """[N] Number of tombstones; None when only reading the records can tell."""
        records, name = values[self.roles.offset].records, self.roles.tombstone_null
        if self.roles.is_tombstone is None:
            return np.zeros_like(records)
        return np.maximum(values[name].nulls, 0) if name else _objects([None] * len(records))


def _where(flags: Bools) -> list[int]:
    """The numbers of the files for which a flag is set."""
    numbers: list[int] = np.flatnonzero(flags).tolist()
    return numbers


def _in_range(figures: Sequence[int]) -> Ints:
    """``figures``, each 2^50 if it is less than 0, or more than that."""
    return np.array([figure if 0 <= figure < _MOST else _MOST for figure in figures], np.int64)


def _rounded_up(micros: Objects) -> list[int | None]:
    """Delete horizons in milliseconds, rounded up so that no tombstone passes them too early."""
    return [None if one is None else -(-one // 1000) for one in micros]


def _told(chunks: Sequence[pq.ColumnChunkMetaData], kind: pa.DataType) -> _Metrics | None:
    """What the ``chunks`` of a column say; None if a row group has no count of NULLs."""
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
