"""A live data file as a manifest lists it: only the fields of its entry that Firn uses.

A table of 100,000 segments has 100,000 entries, so the cost per entry decides how long the first read takes. On 2 cores
PyIceberg's own objects cost 39 µs per entry and plain lists 15: most of the difference is garbage collection, which
runs several times per manifest of 1,000 entries. Entries are therefore decoded one at a time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.typedef import StructProtocol

from pipeline.lake.row_deletes import partition_values, place

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

    Not frozen: that would triple the cost of construction.
    """

    path: str
    format: str
    """File format in the writer's spelling: ``PARQUET``."""
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
    """Id of the snapshot that added the file, also after manifests were rewritten."""
    sequence_number: int
    """Data sequence number, by which row-level deletes apply."""
    added_by: int
    """File sequence number: that of the commit that added the file."""

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
        """Place of the file, equal for a delete file and the data files it reaches; see ``place``."""
        return place(self.spec_id, self.partition)

    def told(self, nulls: Mapping[int, int], lower: Mapping[int, bytes], upper: Mapping[int, bytes]) -> "ListedFile":
        """A copy of this file with metrics added that its manifest lacks."""
        return replace(
            self, nulls={**self.nulls, **nulls}, lower={**self.lower, **lower}, upper={**self.upper, **upper}
        )


def fetch(io: FileIO, manifest: ManifestFile) -> AvroFile[StructProtocol]:
    """Read ``manifest`` whole into memory, not decoded yet."""
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
            # Entries inherit what was unknown before the commit (Iceberg spec, "Sequence Number Inheritance").
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
    # Not by truth value: PyIceberg builds a dictionary of a map on first access, and truth asks for its length.
    return _NOTHING if metrics is None else metrics


def _row(*values: Any) -> StructProtocol:
    return list(values)
