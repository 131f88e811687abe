"""A live data file as a manifest lists it: the fields that Firn uses, with metrics from the file's footer if needed.

A manifest lacks bounds, counts and, since Iceberg 1.6, sizes if the table's properties say so
(``write.metadata.metrics.column.offset=none``), if only the first columns of a wide table have metrics
(``write.metadata.metrics.max-inferred-column-defaults``), or if files were added without being read. Then Firn reads
the footer of the Parquet file, which has these metrics per row group, unless the writer also left them out of it. Data
files are immutable, so metrics from the footer are as good as those of the manifest, and are cached with them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.typedef import StructProtocol

from firnlake.iceberg.data_files import name_mapping
from firnlake.iceberg.deletes import partition_values, place

_SCHEMA: Final = MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION]
_STATUS, _SNAPSHOT, _SEQUENCE, _FILE_SEQUENCE, _FILE = (
    [field.name for field in _SCHEMA.fields].index(name)
    for name in ("status", "snapshot_id", "sequence_number", "file_sequence_number", "data_file")
)
_PATH, _FORMAT, _PARTITION, _RECORDS, _BYTES, _SIZES, _NULLS, _LOWER, _UPPER = (
    [field.name for field in DATA_FILE_TYPE[DEFAULT_READ_VERSION].fields].index(name)
    for name in (
        "file_path",
        "file_format",
        "partition",
        "record_count",
        "file_size_in_bytes",
        "column_sizes",
        "null_value_counts",
        "lower_bounds",
        "upper_bounds",
    )
)
_ENTRY_ID: Final = -1
_FILE_ID: Final = 2
_PARTITION_ID: Final = 102
_DELETED: Final = int(ManifestEntryStatus.DELETED)
_ADDED: Final = int(ManifestEntryStatus.ADDED)
_NOTHING: Final[Mapping[int, Any]] = {}


@dataclass(slots=True)
class ListedFile:
    """One data file. Metrics are by field id; bounds are serialized as in the manifest (Iceberg spec).

    The class is not frozen, because that would triple the cost of construction.
    """

    path: str
    format: str
    """File format in the writer's spelling, such as ``PARQUET``."""
    spec_id: int
    partition: tuple[Any, ...]
    """Partition values in the order of the spec's fields."""
    records: int
    size: int
    """File size in bytes."""
    column_sizes: Mapping[int, int]
    nulls: Mapping[int, int]
    lower: Mapping[int, bytes]
    upper: Mapping[int, bytes]
    snapshot_id: int | None
    """Id of the snapshot that added the file, even after manifests were rewritten."""
    sequence_number: int
    """Data sequence number, which decides which row-level deletes apply."""
    added_by: int
    """File sequence number: the sequence number of the commit that added the file."""

    @classmethod
    def of(cls, entry: ManifestEntry) -> "ListedFile":
        """The file of ``entry``, as read by PyIceberg."""
        file = entry.data_file
        return cls(
            path=file.file_path,
            format=file.file_format,
            spec_id=file.spec_id,
            partition=partition_values(file),
            records=file.record_count,
            size=file.file_size_in_bytes,
            column_sizes=_known(file.column_sizes),
            nulls=_known(file.null_value_counts),
            lower=_known(file.lower_bounds),
            upper=_known(file.upper_bounds),
            snapshot_id=entry.snapshot_id,
            sequence_number=entry.sequence_number or 0,
            added_by=entry.file_sequence_number or entry.sequence_number or 0,
        )

    @property
    def place(self) -> str:
        """The file's partition spec and values as text; they decide which delete files may reach it (``place``)."""
        return place(self.spec_id, self.partition)

    def told(
        self,
        nulls: Mapping[int, int],
        lower: Mapping[int, bytes] = _NOTHING,
        upper: Mapping[int, bytes] = _NOTHING,
        column_sizes: Mapping[int, int] = _NOTHING,
    ) -> "ListedFile":
        """A copy of this file with added metrics, which its manifest lacks."""
        return replace(
            self,
            nulls={**self.nulls, **nulls},
            lower={**self.lower, **lower},
            upper={**self.upper, **upper},
            column_sizes={**self.column_sizes, **column_sizes},
        )


def fetch(io: FileIO, manifest: ManifestFile) -> AvroFile[StructProtocol]:
    """Read the whole ``manifest`` into memory; ``decode`` decodes it later."""
    plain = {_ENTRY_ID: _row, _FILE_ID: _row, _PARTITION_ID: _row}
    with AvroFile[StructProtocol](io.new_input(manifest.manifest_path), _SCHEMA, read_types=plain) as content:
        return content


def decode(content: AvroFile[StructProtocol], manifest: ManifestFile) -> Iterator[ListedFile]:
    """Yield the live files in the ``content`` of ``manifest`` one by one."""
    spec_id, snapshot_id, number = manifest.partition_spec_id, manifest.added_snapshot_id, manifest.sequence_number
    for entry in content:
        status, sequence_number, file = entry[_STATUS], entry[_SEQUENCE], entry[_FILE]
        added = entry[_FILE_SEQUENCE]
        if status == _DELETED:
            continue
        if sequence_number is None and (status == _ADDED or not number):
            # Entries inherit the number of their manifest's commit (Iceberg spec, "Sequence Number Inheritance").
            sequence_number = number
        if added is None:
            added = number if status == _ADDED or not number else sequence_number
        added_by = entry[_SNAPSHOT]
        yield ListedFile(
            file[_PATH],
            file[_FORMAT],
            spec_id,
            tuple(file[_PARTITION]),
            file[_RECORDS],
            file[_BYTES],
            _known(file[_SIZES]),
            _known(file[_NULLS]),
            _known(file[_LOWER]),
            _known(file[_UPPER]),
            snapshot_id if added_by is None else added_by,
            sequence_number or 0,
            added or 0,
        )


def _known(metrics: Mapping[int, Any] | None) -> Mapping[int, Any]:
    # Don't test the truth value: that would ask for the length, for which PyIceberg builds the map's dictionary.
    return _NOTHING if metrics is None else metrics


def _row(*values: Any) -> StructProtocol:
    return list(values)


_FIELD_ID: Final = b"PARQUET:field_id"
_LONG_BYTES: Final = 8
_PER_MICROSECOND: Final = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
"""Factor and divisor, by unit, that turn a timestamp into Iceberg's microseconds."""


class Footers:
    """Reads footers of the Parquet data files of one table.

    ``unread`` holds, by path, the reason why a footer did not serve; a later read may succeed. ``names`` is the table's
    name mapping, which resolves columns in files without field ids.
    """

    def __init__(self, table: Table) -> None:
        self._io = table.io
        self.names = name_mapping(table)
        self.unread: dict[str, str] = {}

    def complete(self, file: ListedFile, fields: Iterable[int]) -> ListedFile:
        """``file`` with what its footer says of the columns with the ids ``fields``, and with the sizes of all columns.

        Returns ``file`` unchanged if it is not a Parquet file, or if its footer can't be read or is another file's.
        """
        try:
            if file.format.upper() != FileFormat.PARQUET.value:
                raise ValueError(f"it is of format {file.format}")  # noqa: TRY301  # a reason like any other
            metadata = pq.read_metadata(self._io.new_input(file.path).open(seekable=True))
            if metadata.num_rows != file.records:
                raise ValueError(f"it is of {metadata.num_rows} records, not {file.records}")  # noqa: TRY301  # as above
            return self._told(file, metadata, fields)
        except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one file
            self.unread[file.path] = (str(error).splitlines() or [type(error).__name__])[0]
            return file

    def _told(self, file: ListedFile, metadata: pq.FileMetaData, fields: Iterable[int]) -> ListedFile:
        ids = self._ids(metadata)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        places: dict[int, int] = {}
        sizes = dict.fromkeys(ids.values(), 0)
        for number in range(metadata.num_columns):
            path = metadata.schema.column(number).path
            if path in ids:
                places[ids[path]] = number
            if (owner := ids.get(path, ids.get(path.partition(".")[0]))) is not None:
                sizes[owner] += sum(group.column(number).total_compressed_size for group in groups)
        lower: dict[int, bytes] = {}
        upper: dict[int, bytes] = {}
        # A column that the file lacks was added later and is NULL everywhere.
        nulls = {field: metadata.num_rows for field in fields if ids and field not in sizes}
        for field in fields:
            # A nested column consists of several columns, and has no metrics itself.
            chunks = [group.column(places[field]) for group in groups] if field in places else []
            if not all(chunk.is_stats_set and chunk.statistics.has_null_count for chunk in chunks) or not chunks:
                continue
            nulls[field] = sum(chunk.statistics.null_count for chunk in chunks)
            # Only a row group in which every value is NULL may lack bounds.
            held = [chunk.statistics for chunk in chunks if chunk.statistics.null_count != chunk.num_values]
            unit = _unit(metadata, places[field])
            if unit is not None and held and all(one.has_min_max for one in held):
                lower[field] = _serialized(min(one.min_raw for one in held), *unit)
                upper[field] = _serialized(max(one.max_raw for one in held), *unit)
        return file.told(nulls, lower, upper, sizes)

    def _ids(self, metadata: pq.FileMetaData) -> Mapping[str, int]:
        """The field id of each column by name, from the file, or else from the table's name mapping (Iceberg spec).

        Empty if the file has no ids and the table has no name mapping.
        """
        fields = list(metadata.schema.to_arrow_schema())
        ids = {field.name: int(field.metadata[_FIELD_ID]) for field in fields if _FIELD_ID in (field.metadata or {})}
        if ids or self.names is None:
            return ids
        mapped = {name: one.field_id for one in self.names for name in one.names if one.field_id is not None}
        return {field.name: mapped[field.name] for field in fields if field.name in mapped}


def _unit(metadata: pq.FileMetaData, place: int) -> tuple[int, int] | None:
    """Factor and divisor that turn a column's raw integers into Iceberg's; None if no bounds of its type are needed."""
    kind = metadata.schema.to_arrow_schema().field(metadata.schema.column(place).name).type
    if pa.types.is_timestamp(kind) and metadata.schema.column(place).physical_type == "INT64":
        return _PER_MICROSECOND.get(kind.unit)
    known = pa.types.is_signed_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind)
    return (1, 1) if known else None


def _serialized(bound: int | bytes, times: int, per: int) -> bytes:
    """``bound`` as in a manifest (Iceberg spec, "Binary single-value serialization"); readers decode any length."""
    if isinstance(bound, bytes):
        return bound
    return (
        bytes([bound])
        if isinstance(bound, bool)
        else (bound * times // per).to_bytes(_LONG_BYTES, "little", signed=True)
    )
