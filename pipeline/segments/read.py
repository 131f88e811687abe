"""Read the segments of a table's current snapshot from its manifests, without a JVM and without listing a bucket."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from pipeline.errors import RefusedError
from pipeline.segments.manifests import Manifests
from pipeline.segments.segment import Segment, Segments, TopicPartition

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


def read(table: Table, identifier: str, manifests: Manifests | None = None) -> Segments:
    """The segments of ``table``'s current snapshot; none for a table without a snapshot.

    Raises RefusedError for a data file that was not written under the table's partitioning, or lacks the offset or
    timestamp bounds that every decision rests on, naming the property that restores them.
    """
    snapshot = table.current_snapshot()
    facts = _Facts(identifier, table)
    return Segments.of(
        identifier,
        str(table.metadata.table_uuid),
        snapshot.snapshot_id if snapshot else None,
        (facts.segment(entry, row_deletes) for entry, row_deletes in read_entries(table, manifests)),
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
    """Turns manifest entries of one table into segments."""

    def __init__(self, identifier: str, table: Table) -> None:
        self._identifier = identifier
        self._spec_id = table.spec().spec_id
        schema: Schema = table.schema()
        self._ids = {name: schema.find_field(name).field_id for name in ("key", "value", "offset", "timestamp")}
        self._types: dict[str, PrimitiveType] = {
            name: kind
            for name in ("offset", "timestamp")
            if isinstance(kind := schema.find_field(name).field_type, PrimitiveType)
        }
        self._names = tuple(field.name for field in table.spec().fields)

    def segment(self, entry: ManifestEntry, row_deletes: int) -> Segment:
        file = entry.data_file
        if file.spec_id != self._spec_id:
            raise RefusedError(
                f"table {self._identifier}: segment {file.file_path} was written under partition spec "
                f"{file.spec_id}; allowed: "
                f"spec {self._spec_id} (identity of topic, partition, level)"
            )
        partition = dict(zip(self._names, _values(file), strict=True))
        if partition["topic"] is None or partition["partition"] is None:
            raise RefusedError(
                f"table {self._identifier}: segment {file.file_path} has topic {partition['topic']}, partition "
                f"{partition['partition']}; allowed: both set for every record"
            )
        offsets = self._bounds(file, "offset") if file.record_count else (-1, -1)
        times = self._bounds(file, "timestamp") if file.record_count else (0, 0)
        return Segment(
            path=file.file_path,
            topic_partition=TopicPartition(partition["topic"], partition["partition"]),
            level=partition["level"] or 0,
            base_offset=offsets[0],
            last_offset=offsets[1],
            records=file.record_count,
            bytes=file.file_size_in_bytes,
            tombstones=self._nulls(file, "value"),
            null_keys=self._nulls(file, "key"),
            oldest_ms=times[0] // 1000,
            newest_ms=times[1] // 1000,
            sequence_number=entry.sequence_number or 0,
            row_deletes=row_deletes,
        )

    def _bounds(self, file: DataFile, column: str) -> tuple[int, int]:
        """Lowest and highest value; exact for integers and timestamps, which Iceberg never truncates."""
        lower = self._of(file.lower_bounds, column)
        upper = self._of(file.upper_bounds, column)
        if lower is None or upper is None or self._nulls(file, column):
            raise RefusedError(
                f"table {self._identifier}: segment {file.file_path} has no bounds for column {column}, or NULLs "
                "in it; allowed: "
                f"write.metadata.metrics.column.{column}=full when it is written, and no NULLs"
            )
        kind = self._types[column]
        return int(from_bytes(kind, lower)), int(from_bytes(kind, upper))

    def _nulls(self, file: DataFile, column: str) -> int:
        counts: Mapping[int, int] | None = file.null_value_counts
        if not file.record_count:
            return 0
        found = self._of(counts, column)
        if found is None:
            raise RefusedError(
                f"table {self._identifier}: segment {file.file_path} has no null count for column {column}; allowed: "
                f"write.metadata.metrics.column.{column} not `none` when it is written"
            )
        return int(found)

    def _of(self, metrics: Mapping[int, Any] | None, column: str) -> Any:
        return metrics.get(self._ids[column]) if metrics else None


def _values(file: DataFile) -> tuple[Any, ...]:
    """Partition values in the order of the spec's fields."""
    return tuple(file.partition[position] for position in range(len(file.partition)))
