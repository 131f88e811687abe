"""Manifests: reads each at most once, because manifests never change, and writes new ones.

For speed, ``records`` reads a few columns of a manifest or manifest list without creating an object for each record.
PyIceberg's own writer marks every manifest as a data manifest, so a writer that is based on it writes those of delete
files (Iceberg spec, "Manifests").
"""

import json
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar

from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.reader import Reader, StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
    write_manifest,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IntegerType, ListType, NestedField, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from firnlake.errors import RefusedError
from firnlake.iceberg.files import metadata_folder

READERS = 4
"""Number of manifests read in parallel; on object stores latency dominates."""

S = TypeVar("S")
T = TypeVar("T")


class Manifests:
    """The live entries of manifests, cached by path for the life of this object.

    For example, publish reads several snapshots of a table in turn while other writers append to the table. Of each
    snapshot, publish then reads only the new manifests.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._read: dict[str, list[ManifestEntry]] = {}

    def of(self, manifest: ManifestFile) -> list[ManifestEntry]:
        """The live entries of ``manifest``."""
        path = manifest.manifest_path
        if path not in self._read:
            entries = checked_entries(self._io, manifest)
            self._read[path] = [one for one in entries if one.status != ManifestEntryStatus.DELETED]
        return self._read[path]

    def live(self, manifests: Iterable[ManifestFile]) -> Iterator[ManifestEntry]:
        """Yield the live entries of all ``manifests`` in their order, read in parallel."""
        for _, entries in ahead(self.of, manifests):
            yield from entries


def ahead(fetch: Callable[[S], T], places: Iterable[S]) -> Iterator[tuple[S, T]]:
    """Yield each of ``places`` (descriptions of files) in order, with the result of ``fetch``; prefetch the next few.

    Threads only fetch, so that they wait for the store in parallel. Decoding in several threads would take 1.5 times as
    long as in one thread, because decoding holds the interpreter lock and releases it for every compressed block.
    """
    with ThreadPoolExecutor(READERS) as readers:
        waiting: deque[tuple[S, Future[T]]] = deque()
        for place in places:
            waiting.append((place, readers.submit(fetch, place)))
            if len(waiting) > 2 * READERS:
                first, future = waiting.popleft()
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()


_SCHEMA: Final = "avro.schema"


_Step: TypeAlias = tuple[Callable[[BinaryDecoder], Any], int | None]
"""Reads or skips one column, with its index among the wanted columns; None for a skipped column."""
DAMAGED: Final = (EOFError, LookupError, MemoryError, OverflowError, SystemError, TypeError, ValueError, zlib.error)
"""Errors that reading the records of a damaged Avro file may raise. PyIceberg's decoder trusts the lengths in a file:
a negative length raises SystemError in Python itself, and a huge length raises MemoryError."""


@contextmanager
def undamaged(what: str) -> Iterator[None]:
    """Turn any error of decoding into a RefusedError that says ``what`` is damaged."""
    try:
        yield
    except DAMAGED as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise RefusedError(f"{what} is damaged: {reason}; allowed: the file as it was written") from error


def manifests_of(table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    """The manifests that ``snapshot`` of ``table`` lists. Raises RefusedError when the manifest list is damaged."""
    with undamaged(f"table {'.'.join(table.name())} can't be read: manifest list {snapshot.manifest_list}"):
        return snapshot.manifests(table.io)


def checked_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """All entries of ``manifest``, those of deleted files included.

    Raises RefusedError when the file is damaged, or when the number of live entries differs from the number in the
    manifest list, if that has one: PyIceberg takes a block that is cut off for the end of the file.
    """
    with undamaged(f"manifest {manifest.manifest_path}"):
        entries = manifest.fetch_manifest_entry(io, discard_deleted=False)
    live = sum(entry.status != ManifestEntryStatus.DELETED for entry in entries)
    added, existing = manifest.added_files_count, manifest.existing_files_count
    # Manifest lists of format version 1 need no counts (Iceberg spec, "Manifest Lists").
    if added is not None and existing is not None and live != added + existing:
        raise RefusedError(
            f"live files in manifest {manifest.manifest_path}: {live}; allowed: {added + existing}, as in its manifest "
            "list"
        )
    return entries


def fetch(io: FileIO, location: str) -> bytes:
    """Read the whole file at ``location`` without decoding it. Raises FileNotFoundError when the file is gone."""
    with io.new_input(location).open() as file:
        return file.read()


def header_of(content: bytes) -> tuple[AvroFileHeader, int]:
    """The header of the Avro file ``content``, and the position after it. Raises one of ``DAMAGED`` for a damaged file.

    PyIceberg's fast decoder would read past the end of a damaged file, which may end the process.
    """
    decoder = StreamingBinaryDecoder(content)
    header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    return header, decoder.tell()


def blocks(content: bytes, start: int, sync: bytes, codec: type[Codec] | None) -> Iterator[tuple[bytes, int]]:
    """Yield each block of the Avro file ``content``, decompressed by ``codec``, and the number of records in the block.

    ``start`` is the position after the header, ``sync`` the file's sync marker. Raises one of ``DAMAGED`` for a damaged
    file.
    """
    decoder = new_decoder(content)
    decoder.skip(start)
    while decoder.tell() < len(content):
        count, size = decoder.read_int(), decoder.read_int()
        # As in `header_of`: what the decoder is asked for must be there.
        end = decoder.tell() + size
        if size < 0 or content[end : end + SYNC_SIZE] != sync:
            raise ValueError("an Avro file is damaged: no sync marker ends its block")
        block = decoder.read(size)
        decoder.skip(SYNC_SIZE)
        yield codec.decompress(block) if codec else block, count


def records(content: bytes, columns: tuple[int, ...]) -> Iterator[Sequence[Any]]:
    """Yield, for each record of the Avro file ``content``, the values of the columns with the field ids ``columns``.

    A column may be part of a struct that every record has. The value of a column that the file lacks is None. Raises
    one of ``DAMAGED`` for a damaged file.
    """
    header, start = header_of(content)
    steps = _steps(header.meta[_SCHEMA], columns)
    for block, count in blocks(content, start, header.sync, header.compression_codec()):
        own = new_decoder(block)
        for _ in range(count):
            values: list[Any] = [None] * len(columns)
            for function, column in steps:
                if column is None:
                    function(own)
                else:
                    values[column] = function(own)
            yield values


@lru_cache(maxsize=64)
def _steps(schema: str, columns: tuple[int, ...]) -> tuple[_Step, ...]:
    """The steps that read a record. Cached, because the files of a table share their schemas, and parsing a schema
    takes a millisecond."""
    parsed = AvroSchemaConversion().avro_to_iceberg(json.loads(schema))
    return tuple(_flat(parsed.as_struct(), construct_reader(parsed), columns))


def _flat(struct: StructType, reader: Reader, columns: tuple[int, ...]) -> Iterator[_Step]:
    if not isinstance(reader, StructReader):
        raise TypeError(f"an Avro file has no records, but {type(reader).__name__}")
    for field, (_, own) in zip(struct.fields, reader.field_readers, strict=True):
        if field.field_id in columns:
            yield own.read, columns.index(field.field_id)
        elif isinstance(own, StructReader) and isinstance(field.field_type, StructType):
            yield from _flat(field.field_type, own, columns)
        else:
            yield own.skip, None


AVRO_CODEC: Final = "deflate"
_EQUALITY_IDS, _EQUALITY_ID = 135, 136
"""Field ids of an entry's equality ids and of their elements."""
_REFERENCED_DATA_FILE: Final = 143
"""Field id of a delete file's only data file; readers find it by the bounds of the paths as well."""


def manifest_writer(
    target: Table,
    spec_id: int,
    snapshot_id: int,
    content: ManifestContent = ManifestContent.DATA,
    folder: str | None = None,
) -> ManifestWriter:
    """A writer of a manifest of ``target`` in ``folder`` (by default Firn's own), for data files or for delete files of
    one partition spec."""
    spec = target.specs()[spec_id]
    location = f"{folder or metadata_folder(target)}/{uuid.uuid4()}-m0.avro"
    schema, output = _schema_of(target, spec), target.io.new_output(location)
    if content == ManifestContent.DELETES:
        return _DeleteManifestWriter(spec, schema, output, snapshot_id, AVRO_CODEC)
    return write_manifest(
        format_version=target.metadata.format_version,
        spec=spec,
        schema=schema,
        output_file=output,
        snapshot_id=snapshot_id,
        avro_compression=AVRO_CODEC,
    )


class _DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of delete files, with equality ids of type int as in the Iceberg spec, because Java's reader
    refuses PyIceberg's longs."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        written = super().new_writer()
        *others, file = written.file_schema.fields
        assert isinstance(file.field_type, StructType)
        ids = ListType(element_id=_EQUALITY_ID, element_type=IntegerType(), element_required=True)
        fields = [
            NestedField(one.field_id, one.name, ids, required=one.required) if one.field_id == _EQUALITY_IDS else one
            for one in file.field_type.fields
        ]
        schema = Schema(*others, NestedField(file.field_id, file.name, StructType(*fields), required=True))
        header = written.metadata | {"content": "deletes"}
        return AvroOutputFile(written.output_file, schema, written.schema_name, metadata=header)


def keeps_every_field(target: Table, listed: ManifestFile) -> bool:
    """True if ``manifest_writer`` can write every field in the entries of the manifest ``listed``.

    It drops fields that it does not know, and the partition values of a column that is in no schema any more. Raises
    RefusedError when the manifest is damaged.
    """
    spec = target.specs()[listed.partition_spec_id]
    written = manifest_writer(target, spec.spec_id, 0, listed.content).new_writer().file_schema
    with undamaged(f"manifest {listed.manifest_path}"):
        header, _ = header_of(fetch(target.io, listed.manifest_path))
        fields = header.get_schema().field_ids - {_REFERENCED_DATA_FILE}
    return fields <= written.field_ids and {one.source_id for one in spec.fields} <= _schema_of(target, spec).field_ids


def _schema_of(target: Table, spec: PartitionSpec) -> Schema:
    """The newest schema that has all columns of ``spec``; the values of a dropped column still need a type."""
    sources = {field.source_id for field in spec.fields}
    schemas = sorted(target.schemas().values(), key=lambda schema: schema.schema_id, reverse=True)
    fitting = (schema for schema in (target.schema(), *schemas) if sources <= schema.field_ids)
    return next(fitting, target.schema())
