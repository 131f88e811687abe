"""Reads each manifest at most once: manifests are immutable, so what was read stays valid.

A few columns of a manifest's or manifest list's records are read quickly, without an object for each.
"""

import json
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader, StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

READERS = 4
"""Number of manifests read in parallel; on object stores latency dominates."""

S = TypeVar("S")
T = TypeVar("T")


class Manifests:
    """The live entries of manifests by path, cached for the life of this object.

    A caller that reads several snapshots of a table in turn (publish does, while others append) then reads only the new
    manifests of each.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._read: dict[str, list[ManifestEntry]] = {}

    def of(self, manifest: ManifestFile) -> list[ManifestEntry]:
        """The live entries of ``manifest``."""
        path = manifest.manifest_path
        if path not in self._read:
            self._read[path] = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
        return self._read[path]

    def live(self, manifests: Iterable[ManifestFile]) -> Iterator[ManifestEntry]:
        """Yield the live entries of all ``manifests`` in their order, read in parallel."""
        with ThreadPoolExecutor(READERS) as readers:
            for entries in readers.map(self.of, manifests):
                yield from entries


def ahead(fetch: Callable[[S], T], places: Iterable[S]) -> Iterator[tuple[S, T]]:
    """Yield each of ``places``, a file's description, with the result of ``fetch``, in order; prefetch the next few.

    Threads share only the wait for the store. Decoding in several threads takes half as long again as in one: it holds
    the interpreter lock and releases it for every compressed block.
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


HEADER: Final = construct_reader(META_SCHEMA, {-1: AvroFileHeader})
"""Reads the header of a file (Avro specification, "Object Container Files")."""
_SCHEMA: Final = "avro.schema"


@dataclass(frozen=True)
class _Step:
    """Reads or skips one column."""

    function: Callable[[BinaryDecoder], Any]
    column: int | None
    """Place among the wanted columns; None: skipped."""


DAMAGED: Final = (EOFError, LookupError, MemoryError, OverflowError, SystemError, TypeError, ValueError, zlib.error)
"""What reading the records of a damaged Avro file may raise. PyIceberg's decoder trusts the lengths that a file tells:
a negative one is a SystemError of Python itself, a huge one is memory that nobody has."""


def fetch(io: FileIO, location: str) -> bytes:
    """Read the file at ``location`` whole, not decoded. Raises FileNotFoundError when it is gone."""
    with io.new_input(location).open() as file:
        return file.read()


def blocks(content: bytes, start: int, sync: bytes, codec: type[Codec] | None) -> Iterator[tuple[bytes, int]]:
    """Yield each block of the Avro file ``content``, unpacked by ``codec``, and the number of its records.

    ``start`` is where the header ends, ``sync`` its sync marker. Raises one of ``DAMAGED`` for a damaged file.
    """
    decoder = new_decoder(content)
    decoder.skip(start)
    while decoder.tell() < len(content):
        count, block = decoder.read_int(), decoder.read_bytes()
        if decoder.read(SYNC_SIZE) != sync:
            raise ValueError("an Avro file is damaged: its sync marker is wrong")
        yield codec.decompress(block) if codec else block, count


def records(content: bytes, columns: tuple[int, ...]) -> Iterator[Sequence[Any]]:
    """Yield the wanted ``columns`` of each record in the Avro file ``content``, by field id.

    A column may lie in a struct that every record has; one that the file lacks is None. Raises one of ``DAMAGED`` for a
    damaged file.
    """
    decoder = new_decoder(content)
    header = HEADER.read(decoder)
    head, tail = _steps(header.meta[_SCHEMA], columns)
    for block, count in blocks(content, decoder.tell(), header.sync, header.compression_codec()):
        own = new_decoder(block)
        for number in range(count):
            values: list[Any] = [None] * len(columns)
            for step in head:
                if step.column is None:
                    step.function(own)
                else:
                    values[step.column] = step.function(own)
            yield values
            if number + 1 < count:
                for step in tail:
                    step.function(own)


@lru_cache(maxsize=64)
def _steps(schema: str, columns: tuple[int, ...]) -> tuple[tuple[_Step, ...], tuple[_Step, ...]]:
    """The steps up to the last wanted column, and the others. Cached: files of a table share their schemas, and parsing
    one takes a millisecond."""
    parsed = AvroSchemaConversion().avro_to_iceberg(json.loads(schema))
    reader = construct_reader(parsed)
    steps = list(_flat(parsed.as_struct(), reader, columns))
    last = max((place for place, step in enumerate(steps) if step.column is not None), default=-1)
    return tuple(steps[: last + 1]), tuple(steps[last + 1 :])


def _flat(struct: StructType, reader: Reader, columns: tuple[int, ...]) -> Iterator[_Step]:
    if not isinstance(reader, StructReader):
        raise TypeError(f"an Avro file has no records, but {type(reader).__name__}")
    for field, (_, own) in zip(struct.fields, reader.field_readers, strict=True):
        if field.field_id in columns:
            yield _Step(own.read, columns.index(field.field_id))
        elif isinstance(own, StructReader) and isinstance(field.field_type, StructType):
            yield from _flat(field.field_type, own, columns)
        else:
            yield _Step(own.skip, None)
