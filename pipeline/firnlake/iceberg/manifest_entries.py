"""Manifest entries as bytes: a manifest is rewritten without making objects of the data files that it lists.

The data file of an entry keeps its bytes, including fields that this version of PyIceberg does not know. Only the
fields in front of the data file are encoded again: the entry becomes EXISTING, with the snapshot id and the sequence
numbers that it had or inherited (Iceberg spec, "Manifests" and "Sequence Number Inheritance"). For an entry with
metrics of 13 columns, on 2 cores, PyIceberg takes 95 µs to read an object and 270 µs to write it; reading and writing
the bytes takes 30 µs altogether.

The file layout follows the Avro specification, "Object Container Files".
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, NamedTuple

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, KNOWN_CODECS
from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.avro.codecs.deflate import DeflateCodec
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader, construct_writer
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestEntryStatus, ManifestFile
from pyiceberg.typedef import StructProtocol
from pyiceberg.types import StructType

from firnlake.errors import RefusedError
from firnlake.iceberg.manifests import DAMAGED, HEADER, blocks, fetch

LAYOUT: Final = "avro.schema"
"""Key, in a manifest's metadata, of the Avro schema of the entries. Entries with the same schema may share a
manifest."""

_ENTRY_FIELDS: Final = (0, 1, 3, 4, 2)
"""Field ids of an entry since format version 2: status, snapshot id, two sequence numbers, data file (Iceberg spec)."""
_PATH, _PARTITION, _RECORDS, _LOWER_BOUNDS = 100, 102, 103, 125
_ADDED: Final = int(ManifestEntryStatus.ADDED)
_DELETED: Final = int(ManifestEntryStatus.DELETED)
_CODECS: Final[Mapping[str, type[Codec] | None]] = {str(name): codec for name, codec in KNOWN_CODECS.items()}
_CODEC: Final = "deflate"
"""The codec that every reader of Avro supports."""
TOGETHER: Final = 1 << 16
"""Block size for many entries per block, in bytes before compression; similar entries in one block compress well."""
ALONE: Final = 1
"""Block size for one entry per block, as in PyIceberg's manifests; such a file is ten times as large on the store."""


class RawEntry(NamedTuple):
    """A live entry. ``content`` is the whole entry, encoded as EXISTING."""

    content: bytes
    partition: tuple[Any, ...]
    """Partition values in the order of the spec's fields."""
    records: int
    lower: Mapping[int, bytes]
    """Lower bounds by field id, serialized as in the manifest."""
    sequence_number: int
    """Data sequence number."""
    path: str
    head: int
    """Number of bytes in front of the data file."""

    def deleted(self, snapshot_id: int) -> bytes:
        """The whole entry, encoded as DELETED by snapshot ``snapshot_id``."""
        decoder = new_decoder(self.content)
        _, _, sequence_number, file_sequence_number = _head(decoder)
        status = ManifestEntryStatus.DELETED
        return _front(status, snapshot_id, sequence_number, file_sequence_number) + self.content[self.head :]


@dataclass(frozen=True)
class RawManifest:
    """The content of a manifest. ``metadata`` has the texts in the Avro file's header: table schema, spec and so on."""

    listed: ManifestFile
    metadata: Mapping[str, str]
    _content: bytes
    _start: int
    _sync: bytes

    @classmethod
    def fetch(cls, io: FileIO, listed: ManifestFile) -> "RawManifest":
        """Read the whole manifest into memory without decoding it. Raises RefusedError if it is not an Avro file."""
        content = fetch(io, listed.manifest_path)
        decoder = new_decoder(content)
        with _undamaged(listed):
            header: AvroFileHeader = HEADER.read(decoder)
        return cls(listed, dict(header.meta), content, decoder.tell(), header.sync)

    @property
    def is_known(self) -> bool:
        """False if the codec is unknown, or if entries lack a field that EXISTING entries need, as in version 1."""
        return _layout(self.metadata[LAYOUT]) is not None and self._codec in _CODECS

    @property
    def _codec(self) -> str:
        return self.metadata.get(AVRO_CODEC_KEY, "null")

    def entries(self) -> Iterator[RawEntry]:
        """Yield the live entries in their order; call this only when the layout ``is_known``.

        Raises RefusedError when the file is damaged, or, after the last entry, when the number of live entries differs
        from the number in the manifest list.
        """
        count = 0
        with _undamaged(self.listed):
            for entry in self._live():
                count += 1
                yield entry
        expected = (self.listed.added_files_count or 0) + (self.listed.existing_files_count or 0)
        if count != expected:
            path = self.listed.manifest_path
            raise RefusedError(f"live files in manifest {path}: {count}; allowed: {expected}, as in its manifest list")

    def _live(self) -> Iterator[RawEntry]:
        layout = _layout(self.metadata[LAYOUT])
        if layout is None:
            raise ValueError("its entries do not have the layout of format version 2")
        for content, count in blocks(self._content, self._start, self._sync, _CODECS[self._codec]):
            decoder = new_decoder(content)
            for _ in range(count):
                status, snapshot_id, sequence_number, file_sequence_number = _head(decoder)
                start = decoder.tell()
                file = layout.read(decoder)
                if status == _DELETED:
                    continue
                if snapshot_id is None:
                    snapshot_id = self.listed.added_snapshot_id
                if sequence_number is None and (status == _ADDED or not self.listed.sequence_number):
                    sequence_number = self.listed.sequence_number
                if file_sequence_number is None and (status == _ADDED or not self.listed.sequence_number):
                    file_sequence_number = self.listed.sequence_number
                status = ManifestEntryStatus.EXISTING
                front = _front(status, snapshot_id, sequence_number, file_sequence_number)
                yield RawEntry(
                    front + content[start : decoder.tell()],
                    tuple(file[layout.partition]),
                    file[layout.records],
                    file[layout.lower] or {},
                    sequence_number or 0,
                    file[layout.path],
                    len(front),
                )


class RawManifestWriter:
    """Writes entries of one layout into a manifest, in blocks of ``block_bytes``; a context manager."""

    def __init__(self, output: OutputFile, metadata: Mapping[str, str], block_bytes: int = TOGETHER) -> None:
        self.bytes = 0
        """Number of bytes written so far; entries of an unfinished block do not count."""
        self._output = output
        self._metadata = {**metadata, AVRO_CODEC_KEY: _CODEC}
        self._block_bytes = block_bytes
        self._sync = os.urandom(SYNC_SIZE)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def __enter__(self) -> "RawManifestWriter":
        self._stream = self._output.create()
        self._write(_encoded(lambda encoder: _write_header(encoder, self._metadata, self._sync)))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._flush()
        finally:
            self._stream.close()

    def add(self, content: bytes) -> None:
        """Add an entry, encoded as in ``RawEntry.content``."""
        self._waiting.append(content)
        self._waiting_bytes += len(content)
        if self._waiting_bytes >= self._block_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            content, length = DeflateCodec.compress(b"".join(self._waiting))
            self._write(_int(len(self._waiting)) + _int(length) + content + self._sync)
            self._waiting, self._waiting_bytes = [], 0

    def _write(self, content: bytes) -> None:
        self._stream.write(content)
        self.bytes += len(content)


@dataclass(frozen=True)
class _Layout:
    """A reader that returns an entry's data file as a list, and the places of some fields in that list."""

    read: Callable[[BinaryDecoder], list[Any]]
    path: int
    partition: int
    records: int
    lower: int


def _row(*values: Any) -> StructProtocol:
    return list(values)


@contextmanager
def _undamaged(listed: ManifestFile) -> Iterator[None]:
    """Turn any error of decoding into a RefusedError that names the manifest."""
    try:
        yield
    except DAMAGED as error:
        reason = " ".join(str(error).split())
        raise RefusedError(
            f"manifest {listed.manifest_path} is damaged: {reason}; allowed: a manifest as it was written"
        ) from error


@lru_cache(maxsize=64)
def _layout(schema: str) -> _Layout | None:
    """The layout of entries with this Avro schema; None if they lack a field that EXISTING entries need.

    Cached, because building a layout takes as long as reading a hundred entries.
    """
    entry = AvroFileHeader(MAGIC, {LAYOUT: schema}, b"").get_schema()
    required = [field.required for field in entry.fields]
    file = entry.fields[-1].field_type
    known = tuple(field.field_id for field in entry.fields) == _ENTRY_FIELDS
    if not known or required != [True, False, False, False, True] or not isinstance(file, StructType):
        return None
    places = {field.field_id: place for place, field in enumerate(file.fields)}
    reader = construct_reader(file, {-1: _row, _PARTITION: _row})
    return _Layout(reader.read, places[_PATH], places[_PARTITION], places[_RECORDS], places[_LOWER_BOUNDS])


def _head(decoder: BinaryDecoder) -> tuple[int, int | None, int | None, int | None]:
    """Status, snapshot id, data and file sequence number; a flag before each optional field says if it is set."""
    status = decoder.read_int()
    snapshot_id = decoder.read_int() if decoder.read_int() else None
    sequence_number = decoder.read_int() if decoder.read_int() else None
    return status, snapshot_id, sequence_number, decoder.read_int() if decoder.read_int() else None


@lru_cache(maxsize=4096)
def _front(
    status: ManifestEntryStatus, snapshot_id: int | None, sequence_number: int | None, file_sequence_number: int | None
) -> bytes:
    """The fields in front of the data file of an entry."""
    optional = (snapshot_id, sequence_number, file_sequence_number)
    return _int(int(status)) + b"".join(_int(0) if value is None else _int(1) + _int(value) for value in optional)


def _int(value: int) -> bytes:
    return _encoded(lambda encoder: encoder.write_int(value))


def _encoded(write: Callable[[BinaryEncoder], None]) -> bytes:
    out = BytesIO()
    write(BinaryEncoder(out))
    return out.getvalue()


def _write_header(encoder: BinaryEncoder, metadata: Mapping[str, str], sync: bytes) -> None:
    construct_writer(META_SCHEMA).write(encoder, AvroFileHeader(MAGIC, dict(metadata), sync))


def without(
    io: FileIO, listed: ManifestFile, going: Collection[str], location: str, snapshot_id: int
) -> ManifestFile | None:
    """Copy the manifest ``listed`` to ``location``. In the copy, the files at the paths ``going`` are marked as deleted
    by snapshot ``snapshot_id``, and the others as existing. Returns None when the layout of the manifest is not known.

    The copy keeps the metadata, so a copy of a delete manifest stays one; PyIceberg's writer makes data manifests only.
    """
    content = RawManifest.fetch(io, listed)
    if not content.is_known:
        return None
    existing: list[RawEntry] = []
    deleted: list[RawEntry] = []
    with RawManifestWriter(io.new_output(location), content.metadata, ALONE) as writer:
        for entry in content.entries():
            is_going = entry.path in going
            writer.add(entry.deleted(snapshot_id) if is_going else entry.content)
            (deleted if is_going else existing).append(entry)
    return ManifestFile.from_args(
        manifest_path=location,
        manifest_length=writer.bytes,
        partition_spec_id=listed.partition_spec_id,
        content=listed.content,
        sequence_number=UNASSIGNED_SEQ,
        min_sequence_number=min((entry.sequence_number for entry in existing), default=UNASSIGNED_SEQ),
        added_snapshot_id=snapshot_id,
        added_files_count=0,
        existing_files_count=len(existing),
        deleted_files_count=len(deleted),
        added_rows_count=0,
        existing_rows_count=sum(entry.records for entry in existing),
        deleted_rows_count=sum(entry.records for entry in deleted),
        partitions=listed.partitions,
    )
