"""Writes manifests: PyIceberg's own writer for data files, a writer for delete files, and copies of manifests as bytes.

PyIceberg's own writer marks every manifest as a data manifest, so delete files need a writer that is based on
PyIceberg's Avro files. Its types lack fields that other writers set, such as ``referenced_data_file``. A copy keeps
them, and a copy of a delete manifest remains one: it has the file header and the data file of each entry as bytes. Only
the fields in front of the data file are encoded again, with the snapshot id and the sequence numbers that the entry had
or inherited.

The layout follows the Iceberg spec, "Manifests" and "Sequence Number Inheritance", and the Avro specification, "Object
Container Files".
"""

import json
from collections.abc import Collection, Iterator, Sequence
from io import BytesIO
from typing import Final

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import AvroFileHeader, AvroOutputFile
from pyiceberg.avro.reader import StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    UNASSIGNED_SEQ,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    construct_partition_summaries,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
    write_manifest,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType

from firnlake.errors import RefusedError
from firnlake.iceberg.manifests import blocks, checked_entries, fetch, header_of, undamaged

AVRO_CODEC: Final = "deflate"
WITH_POSITIONS: Final[TableVersion] = 2
"""The format version with position delete files; version 1 has no row-level deletes, version 3 has deletion vectors."""
_EQUALITY_IDS, _EQUALITY_ID = 135, 136
"""Field ids of an entry's equality ids and of their elements."""
_REFERENCED_DATA_FILE: Final = 143
"""Field id of a delete file's only data file; other writers have the field in data manifests too, always NULL."""


def manifest_writer(target: Table, spec: PartitionSpec, location: str, snapshot_id: int) -> ManifestWriter:
    """A writer of a data manifest of ``target`` at ``location``."""
    return write_manifest(
        format_version=target.metadata.format_version,
        spec=spec,
        schema=_schema_of(target, spec),
        output_file=target.io.new_output(location),
        snapshot_id=snapshot_id,
        avro_compression=AVRO_CODEC,
    )


def keeps_every_field(target: Table, listed: ManifestFile) -> bool:
    """True if PyIceberg's writer can write every field in the entries of the data manifest ``listed``.

    It drops fields that it does not know, and the partition values of a column that is in no schema any more. Raises
    RefusedError when the manifest is damaged.
    """
    spec = target.specs()[listed.partition_spec_id]
    schema = _schema_of(target, spec)
    written = _entry_schema(spec, schema, target.metadata.format_version).field_ids
    with undamaged(listed):
        header, _ = header_of(fetch(target.io, listed.manifest_path))
        fields = header.get_schema().field_ids - {_REFERENCED_DATA_FILE}
    return fields <= written and {field.source_id for field in spec.fields} <= schema.field_ids


def added_entry(file: DataFile, snapshot_id: int, sequence_number: int | None = None) -> ManifestEntry:
    """The manifest entry that adds ``file``. Without ``sequence_number``, the file inherits the snapshot's number."""
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, sequence_number=sequence_number, data_file=file
    )


def write_deletes(
    target: Table, spec_id: int, location: str, snapshot_id: int, files: Sequence[DataFile]
) -> ManifestFile:
    """Write a manifest at ``location`` that adds the delete files ``files``, all of one partition spec. The files
    inherit the snapshot's data sequence number. Raises RefusedError unless the table has format version 2."""
    check_positions(target)
    spec = target.specs()[spec_id]
    schema = _schema_of(target, spec)
    output = target.io.new_output(location)
    with AvroOutputFile[ManifestEntry](
        output_file=output,
        file_schema=_with_integers(_entry_schema(spec, schema, WITH_POSITIONS)),
        record_schema=_with_integers(_entry_schema(spec, schema, DEFAULT_READ_VERSION)),
        schema_name="manifest_entry",
        metadata={
            "schema": schema.model_dump_json(),
            "partition-spec": json.dumps(json.loads(spec.model_dump_json())["fields"]),
            "partition-spec-id": str(spec_id),
            "format-version": str(WITH_POSITIONS),
            "content": "deletes",
            AVRO_CODEC_KEY: AVRO_CODEC,
        },
    ) as writer:
        for file in files:
            writer.write_block([added_entry(file, snapshot_id)])
        length = writer.tell()
    return ManifestFile.from_args(
        manifest_path=location,
        manifest_length=length,
        partition_spec_id=spec_id,
        content=ManifestContent.DELETES,
        sequence_number=UNASSIGNED_SEQ,
        min_sequence_number=UNASSIGNED_SEQ,
        added_snapshot_id=snapshot_id,
        added_files_count=len(files),
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=sum(file.record_count for file in files),
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=construct_partition_summaries(spec, schema, [file.partition for file in files]),
    )


def check_positions(target: Table) -> None:
    """Raise RefusedError when position delete files can't be added to ``target``."""
    version = target.metadata.format_version
    if version != WITH_POSITIONS:
        raise RefusedError(
            f"table {'.'.join(target.name())} has format version {version}, which allows no new position delete files; "
            f"allowed: {WITH_POSITIONS}"
        )


def _schema_of(target: Table, spec: PartitionSpec) -> Schema:
    """The newest schema that has all columns of ``spec``; the values of a dropped column still need a type."""
    sources = {field.source_id for field in spec.fields}
    schemas = sorted(target.schemas().values(), key=lambda schema: schema.schema_id, reverse=True)
    fitting = (schema for schema in (target.schema(), *schemas) if sources <= schema.field_ids)
    return next(fitting, target.schema())


def _entry_schema(spec: PartitionSpec, schema: Schema, version: TableVersion) -> Schema:
    """The schema of the entries that PyIceberg's writer makes in a manifest of format version ``version``."""
    return manifest_entry_schema_with_data_file(version, data_file_with_partition(spec.partition_type(schema), version))


def _with_integers(entries: Schema) -> Schema:
    """``entries`` with equality ids of type int, as in the Iceberg spec; Java's reader refuses PyIceberg's longs."""
    ids = ListType(element_id=_EQUALITY_ID, element_type=IntegerType(), element_required=True)
    *others, file = entries.fields
    assert isinstance(file.field_type, StructType)
    fields = [
        NestedField(one.field_id, one.name, ids, required=one.required) if one.field_id == _EQUALITY_IDS else one
        for one in file.field_type.fields
    ]
    return Schema(*others, NestedField(file.field_id, file.name, StructType(*fields), required=file.required))


_ENTRY_FIELDS: Final = ((0, True), (1, False), (3, False), (4, False), (2, True))
"""Field ids of an entry since format version 2, and whether the field is required: status, snapshot id, two sequence
numbers, data file (Iceberg spec)."""


def without(
    io: FileIO, listed: ManifestFile, going: Collection[str], location: str, snapshot_id: int
) -> ManifestFile | None:
    """Copy the manifest ``listed`` to ``location``. In the copy, the files at the paths ``going`` are marked as deleted
    by snapshot ``snapshot_id``, and the others as existing; files that were deleted before are left out.

    Returns None when the entries have other fields than those of format version 2. Raises RefusedError when the
    manifest is damaged.
    """
    content = fetch(io, listed.manifest_path)
    entries = iter(checked_entries(io, listed))
    existing: list[ManifestEntry] = []
    deleted: list[ManifestEntry] = []
    copy = BytesIO()
    encoder = BinaryEncoder(copy)
    with undamaged(listed):
        header, start = header_of(content)
        reader = _reader(header)
        if reader is None:
            return None
        codec = header.compression_codec()
        encoder.write(content[:start])
        for block, count in blocks(content, start, header.sync, codec):
            live = BytesIO()
            before = len(existing) + len(deleted)
            for file, entry in zip(_data_files(reader, block, count), entries, strict=False):
                if entry.status == ManifestEntryStatus.DELETED:
                    continue
                if entry.data_file.file_path in going:
                    entry.status, entry.snapshot_id = ManifestEntryStatus.DELETED, snapshot_id
                    deleted.append(entry)
                else:
                    entry.status = ManifestEntryStatus.EXISTING
                    existing.append(entry)
                live.write(_front(entry) + file)
            if written := len(existing) + len(deleted) - before:
                compressed = codec.compress(live.getvalue())[0] if codec else live.getvalue()
                encoder.write_int(written)
                encoder.write_bytes(compressed)
                encoder.write(header.sync)
    with io.new_output(location).create() as output:
        output.write(copy.getvalue())
    return ManifestFile.from_args(
        manifest_path=location,
        manifest_length=len(copy.getvalue()),
        partition_spec_id=listed.partition_spec_id,
        content=listed.content,
        sequence_number=UNASSIGNED_SEQ,
        min_sequence_number=min((entry.sequence_number or 0 for entry in existing), default=UNASSIGNED_SEQ),
        added_snapshot_id=snapshot_id,
        added_files_count=0,
        existing_files_count=len(existing),
        deleted_files_count=len(deleted),
        added_rows_count=0,
        existing_rows_count=sum(entry.data_file.record_count for entry in existing),
        deleted_rows_count=sum(entry.data_file.record_count for entry in deleted),
        partitions=listed.partitions,
    )


def _reader(header: AvroFileHeader) -> StructReader | None:
    """The reader of the entries in a manifest with this header; None if they lack a field of format version 2."""
    schema = header.get_schema()
    reader = construct_reader(schema)
    known = tuple((field.field_id, field.required) for field in schema.fields) == _ENTRY_FIELDS
    return reader if known and isinstance(reader, StructReader) else None


def _data_files(reader: StructReader, block: bytes, count: int) -> Iterator[bytes]:
    """Yield the bytes of the data file of each of the ``count`` entries in ``block``."""
    *front, (_, data_file) = reader.field_readers
    decoder = new_decoder(block)
    for _ in range(count):
        # Fields are read, not skipped: PyIceberg 0.12 skips a decimal, such as a partition value, by a wrong length.
        for _, field in front:
            field.read(decoder)
        start = decoder.tell()
        data_file.read(decoder)
        yield block[start : decoder.tell()]


def _front(entry: ManifestEntry) -> bytes:
    """The fields in front of the data file of ``entry``; a flag before each optional field says if it is set."""
    front = BytesIO()
    encoder = BinaryEncoder(front)
    encoder.write_int(int(entry.status))
    for value in (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number):
        encoder.write_int(0 if value is None else 1)
        if value is not None:
            encoder.write_int(value)
    return front.getvalue()
