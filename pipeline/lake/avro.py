"""Reads the blocks of a manifest or manifest list, or a few columns of its records, quickly.

PyIceberg makes objects of all columns: 42 µs per file of a manifest and 30 per manifest of a list on 2 cores. Here the
readers of its own Avro library are called for the wanted columns, and told to skip the others: 5 and 4 µs. A block of
one record, as PyIceberg writes them, is not read to its end.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader, StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

HEADER: Final = construct_reader(META_SCHEMA, {-1: AvroFileHeader})
"""Reads the header of a file (Avro specification, "Object Container Files")."""
_SCHEMA: Final = "avro.schema"


@dataclass(frozen=True)
class _Step:
    """Reads or skips one column."""

    function: Callable[[BinaryDecoder], Any]
    column: int | None
    """Place among the wanted columns; None: skipped."""


def fetch(io: FileIO, location: str) -> bytes:
    """Read the file at ``location`` whole, not decoded. Raises FileNotFoundError when it is gone."""
    with io.new_input(location).open() as file:
        return file.read()


def blocks(content: bytes, start: int, sync: bytes, codec: type[Codec] | None) -> Iterator[tuple[bytes, int]]:
    """Yield each block of the Avro file ``content``, unpacked by ``codec``, and the number of its records.

    ``start`` is where the header ends, ``sync`` its sync marker. Raises ValueError or EOFError for a damaged file.
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

    A column may lie in a struct that every record has; one that the file lacks is None.
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
