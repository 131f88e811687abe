"""Kafka's log segment files as a broker writes them: record batches of format v2, built by aiokafka's own builder.

What only brokers write (base offsets, control batches, append times) is set in the header afterwards, CRC included.
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TIME = 1_799_000_000_000
"""Epoch milliseconds of the record with offset 0; each next one is a millisecond later."""

_CRC_AT, _ATTRIBUTES_AT, _CONTROL, _APPEND_TIME = 17, 21, 0x20, 0x08


class Entry(NamedTuple):
    """A record to be: headers as Kafka's API has them."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def batch(
    *entries: Entry,
    codec: str = "none",
    producer: tuple[int, int] = (-1, -1),
    transactional: bool = False,
    control: bool = False,
    append_time: bool = False,
) -> bytes:
    """One batch; ``producer`` is its id and epoch."""
    base = entries[0].offset
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=transactional,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0 if producer[0] >= 0 else -1,
        batch_size=1 << 30,
    )
    for entry in entries:
        builder.append(entry.offset - base, TIME + entry.offset, entry.key, entry.value, list(entry.headers))
    built = bytearray(builder.build())
    struct.pack_into(">q", built, 0, base)
    (attributes,) = struct.unpack_from(">h", built, _ATTRIBUTES_AT)
    attributes |= _CONTROL if control else 0
    attributes |= _APPEND_TIME if append_time else 0
    return sealed(built, attributes)


def sealed(built: bytearray, attributes: int) -> bytes:
    """A batch with other attributes, and the CRC that goes with them."""
    struct.pack_into(">h", built, _ATTRIBUTES_AT, attributes)
    struct.pack_into(">I", built, _CRC_AT, calc_crc32c(bytes(built[_ATTRIBUTES_AT:])))
    return bytes(built)


def marker(offset: int, producer: tuple[int, int], *, commit: bool) -> bytes:
    """The control batch that ends a transaction: key version and type, value version and coordinator epoch."""
    entry = Entry(offset, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0))
    return batch(entry, producer=producer, transactional=True, control=True)


def segment(folder: Path, *batches: bytes, name: str = "00000000000000000000.log") -> Path:
    """``batches`` as a file in the folder of a topic partition."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(b"".join(batches))
    return path


ENTRIES = [
    Entry(7, b"k", b"v" * 500, [("h", b"\x00\xff"), ("h", None), ("\u00e9", b"")]),
    Entry(9, None, b"\x00" * 500),
    Entry(12, b"", None),
    Entry(13, b"gone", b""),
]
"""Records of every kind: headers that are not text, no key, an empty key that is deleted, a gap."""
PRODUCER = (2**40, 3)
