"""Read the segments of a table's current snapshot from its manifests, without a JVM and without listing a bucket."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import PrimitiveType

from pipeline.lake.records import TRANSACTION_COLUMNS
from pipeline.segments.commits import commits
from pipeline.segments.manifests import Manifests
from pipeline.segments.segment import LANDED, LEVELS, RUN, Segment, Segments, Stray, TopicPartition

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


def read(table: Table, identifier: str, manifests: Manifests | None = None) -> Segments:
    """The segments of ``table``'s current snapshot; none for a table without a snapshot.

    What decisions rest on and a file's metadata does not tell becomes the segment's ``problem``, which blocks its topic
    partition only (C20); a file whose topic partition it does not tell is a stray.
    """
    snapshot = table.current_snapshot()
    facts = _Facts(table)
    segments: dict[tuple[str, TopicPartition, int], Segment] = {}
    strays: dict[str, Stray] = {}
    for entry, row_deletes in read_entries(table, manifests):
        found = facts.of(entry, row_deletes)
        if isinstance(found, Stray):
            strays[found.path] = found
        elif found is not None:
            key = (found.path, found.topic_partition, found.level)
            segments[key] = _copied(segments[key], found) if key in segments else found
    return Segments.of(
        identifier,
        str(table.metadata.table_uuid),
        snapshot.snapshot_id if snapshot else None,
        _unambiguous(list(segments.values())),
        strays.values(),
    )


def _unambiguous(segments: list[Segment]) -> Iterator[Segment]:
    """``segments``, with a problem for each file that is listed under several topic partitions or levels."""
    times = Counter(segment.path for segment in segments)
    for segment in segments:
        if times[segment.path] == 1:
            yield segment
        else:
            yield replace(segment, problem="is listed under other partition values as well; allowed: one")


def _copied(first: Segment, again: Segment) -> Segment:
    """One segment of a file that the table lists more than once, as some sinks do after a lost answer.

    Its copies are never taken apart: one without the other would be other records than readers see.
    """
    return replace(
        first,
        records=first.records + again.records,
        bytes=first.bytes + again.bytes,
        tombstones=first.tombstones + again.tombstones,
        null_keys=first.null_keys + again.null_keys,
        stamped=first.stamped + again.stamped,
        sequence_number=min(first.sequence_number, again.sequence_number),
        row_deletes=max(first.row_deletes, again.row_deletes),
        copies=first.copies + again.copies,
    )


def read_entries(table: Table, manifests: Manifests | None = None) -> Iterator[tuple[ManifestEntry, int]]:
    """Every live data file of the current snapshot, with how many row-level delete files may apply to it.

    ``manifests`` remembers what was read of earlier snapshots.
    """
    snapshot = table.current_snapshot()
    found = snapshot.manifests(table.io) if snapshot else []
    known = manifests or Manifests(table.io)
    deletes = _RowDeletes(known.live(manifest for manifest in found if manifest.content == ManifestContent.DELETES))
    for entry in known.live(manifest for manifest in found if manifest.content == ManifestContent.DATA):
        yield entry, deletes.applying_to(entry)


_FALSE = b"\x00"
"""The bound of a column that is false in every record (Iceberg spec, "Binary single-value serialization")."""


class _RowDeletes:
    """Which row-level deletes may apply to a data file (Iceberg spec, "Scan planning").

    Partition and sequence number decide; a delete file that names other data files in its bounds is counted too,
    because a false alarm costs a wait and a missed delete would bring deleted rows back.
    """

    def __init__(self, found: Iterator[ManifestEntry]) -> None:
        self._by_partition: dict[tuple[int, tuple[Any, ...]], list[tuple[DataFileContent, int]]] = defaultdict(list)
        self._everywhere: list[tuple[DataFileContent, int]] = []
        for entry in found:
            delete = (entry.data_file.content, entry.sequence_number or 0)
            values = _values(entry.data_file)
            if values:
                self._by_partition[(entry.data_file.spec_id, values)].append(delete)
            else:
                self._everywhere.append(delete)

    def applying_to(self, entry: ManifestEntry) -> int:
        own = self._by_partition.get((entry.data_file.spec_id, _values(entry.data_file)), [])
        number = entry.sequence_number or 0
        return sum(
            number < deleted or (number == deleted and content == DataFileContent.POSITION_DELETES)
            for content, deleted in [*own, *self._everywhere]
        )


class _Facts:
    """Turns manifest entries of one table into segments and strays."""

    def __init__(self, table: Table) -> None:
        self._spec_id = table.spec().spec_id
        self._specs = table.specs()
        schema: Schema = table.schema()
        columns = ("topic", "partition", "level", "key", "value", "offset", "timestamp", "delete_horizon")
        self._ids = {name: schema.find_field(name).field_id for name in columns}
        self._types: dict[str, PrimitiveType] = {
            name: kind for name in columns if isinstance(kind := schema.find_field(name).field_type, PrimitiveType)
        }
        # Optional columns (C10); a table that lacks them has no transactions.
        self._optional = {field.name: field.field_id for field in schema.fields if field.name in TRANSACTION_COLUMNS}
        self._commits = commits(table)

    def of(self, entry: ManifestEntry, row_deletes: int) -> Segment | Stray | None:
        """The segment, or the stray, that ``entry`` lists; None for a file that is neither and holds no record."""
        file = entry.data_file
        topic, partition = self._single(file, "topic"), self._single(file, "partition")
        if topic is None or partition is None:
            return self._stray(file, topic, partition) if file.record_count else None
        offsets, times = self._bounds(file, "offset"), self._bounds(file, "timestamp")
        level = self._single(file, "level") or LANDED
        # A manifest entry names the snapshot that added the file, also after manifests were rewritten (Iceberg spec).
        commit = self._commits.get(entry.snapshot_id or 0)
        return Segment(
            path=file.file_path,
            topic_partition=TopicPartition(topic, partition),
            level=level,
            base_offset=offsets[0] if offsets else -1,
            last_offset=offsets[1] if offsets else -1,
            records=file.record_count,
            bytes=file.file_size_in_bytes,
            tombstones=self._nulls(file, "value") or 0,
            null_keys=self._nulls(file, "key") or 0,
            oldest_ms=times[0] // 1000 if times else 0,
            newest_ms=times[1] // 1000 if times else 0,
            sequence_number=entry.sequence_number or 0,
            row_deletes=row_deletes,
            committed_ms=commit.at_ms if commit else None,
            by_firn=commit is not None and commit.by_firn,
            keys=self._keys(file, level),
            stamped=self._stamped(file),
            first_horizon_ms=self._horizon(file.lower_bounds),
            last_horizon_ms=self._horizon(file.upper_bounds),
            transactional=self._may_be_true(file, "is_transactional"),
            control=self._may_be_true(file, "is_control"),
            problem=next(self._problems(file, level, partition), None) if file.record_count else None,
        )

    def _keys(self, file: DataFile, level: int) -> int | None:
        """Distinct keys: a cleaned segment holds one record per key, and equal bounds leave room for one key."""
        nulls = self._nulls(file, "key")
        if nulls is None:
            return None
        keyed = file.record_count - nulls
        if level >= RUN or not keyed:
            return keyed
        lower, upper = self._bound(file.lower_bounds, "key"), self._bound(file.upper_bounds, "key")
        # A bound that was cut short is never equal to the other: the upper one is rounded up (Iceberg spec).
        return 1 if lower is not None and lower == upper else None

    def _may_be_true(self, file: DataFile, column: str) -> bool:
        """Whether a record of ``file`` may be so marked; certain only by bounds, or when all are NULL."""
        identifier = self._optional.get(column)
        if identifier is None or not file.record_count:
            return False
        upper = file.upper_bounds.get(identifier) if file.upper_bounds else None
        if upper is not None:
            return upper != _FALSE
        nulls = file.null_value_counts.get(identifier) if file.null_value_counts else None
        return nulls != file.record_count

    def _stamped(self, file: DataFile) -> int:
        nulls = self._nulls(file, "delete_horizon")
        return 0 if nulls is None else file.record_count - nulls

    def _horizon(self, bounds: Mapping[int, bytes] | None) -> int | None:
        """A delete horizon in milliseconds, rounded up: a tombstone must not look past it too early."""
        bound = self._bound(bounds, "delete_horizon")
        return None if bound is None else -(-int(bound) // 1000)

    def _problems(self, file: DataFile, level: int, partition: int) -> Iterator[str]:
        """What is missing or wrong in the metadata of a file with records, each with what is allowed (C26)."""
        if file.spec_id != self._spec_id:
            yield self._other_spec(file)
        if level not in LEVELS:
            yield f"has level {level}; allowed: NULL, {', '.join(str(known) for known in LEVELS)}"
        if partition < 0:
            yield f"has partition {partition}; allowed: 0 or more"
        for column in ("offset", "timestamp"):
            bounds = self._bounds(file, column)
            if bounds is None:
                yield (
                    f"has no bounds for column {column}, or NULLs in it; allowed: "
                    f"write.metadata.metrics.column.{column}=full when it is written, and no NULLs"
                )
            elif column == "offset" and bounds[0] < 0:
                yield f"has offset {bounds[0]}; allowed: 0 or more"
        for column in ("key", "value"):
            if self._nulls(file, column) is None:
                yield (
                    f"has no null count for column {column}; allowed: write.metadata.metrics.column.{column} not "
                    "`none` when it is written"
                )

    def _other_spec(self, file: DataFile) -> str:
        return (
            f"was written under partition spec {file.spec_id}; allowed: spec {self._spec_id} (identity of topic, "
            "partition, level)"
        )

    def _stray(self, file: DataFile, topic: str | None, partition: int | None) -> Stray:
        if file.spec_id != self._spec_id:
            problem = self._other_spec(file)
        else:
            problem = f"has topic {topic}, partition {partition}; allowed: both set for every record"
        offsets = self._bounds(file, "offset")
        return Stray(
            path=file.file_path,
            problem=problem,
            topics=self._range(file, "topic"),
            partitions=self._range(file, "partition"),
            base_offset=max(offsets[0], 0) if offsets else 0,
        )

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
        for field, value in zip(spec.fields if spec else (), _values(file), strict=False):
            if field.source_id == self._ids[column] and isinstance(field.transform, IdentityTransform):
                yield value

    def _bounds(self, file: DataFile, column: str) -> tuple[int, int] | None:
        """Lowest and highest value, never cut short by Iceberg; None when unknown, or a record has NULL there."""
        lower, upper = self._bound(file.lower_bounds, column), self._bound(file.upper_bounds, column)
        return None if lower is None or upper is None or self._nulls(file, column) else (int(lower), int(upper))

    def _bound(self, bounds: Mapping[int, bytes] | None, column: str) -> Any:
        found = bounds.get(self._ids[column]) if bounds else None
        return None if found is None else from_bytes(self._types[column], found)

    def _nulls(self, file: DataFile, column: str) -> int | None:
        return file.null_value_counts.get(self._ids[column]) if file.null_value_counts else None


def _values(file: DataFile) -> tuple[Any, ...]:
    """Partition values in the order of the spec's fields."""
    return tuple(file.partition[position] for position in range(len(file.partition)))
