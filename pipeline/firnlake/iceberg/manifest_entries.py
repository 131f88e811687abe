"""Copies a manifest as bytes, because PyIceberg's types lack fields that other writers set.

A copy keeps the file header and the data file of each entry, so it keeps fields such as ``referenced_data_file``, and a
copy of a delete manifest remains one (PyIceberg's writer makes data manifests only). Only the fields in front of the
data file are encoded again, with the snapshot id and the sequence numbers that the entry had or inherited (Iceberg
spec, "Manifests" and "Sequence Number Inheritance").

The file layout follows the Avro specification, "Object Container Files".
"""

from collections.abc import Collection, Iterator
from io import BytesIO
from typing import Final

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import AvroFileHeader
from pyiceberg.avro.reader import StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestEntry, ManifestEntryStatus, ManifestFile

from firnlake.iceberg.manifests import blocks, checked_entries, fetch, header_of, undamaged

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
