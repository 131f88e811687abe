"""Looks for bytes in files by what they hold, whatever their names (I6)."""

import gzip
import zlib
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

_GZIP: Final = b"\x1f\x8b"
_PARQUET: Final = b"PAR1"
_AVRO: Final = b"Obj\x01"
_SYNC: Final = 16
"""Length of the marker behind each block of an Avro file, and behind its head."""


def holds(path: str, token: bytes) -> bool:
    """True when the file at ``path`` holds ``token``, as it is, or unpacked as its first bytes say."""
    content = Path(path).read_bytes()
    if content.startswith(_GZIP):
        content = gzip.decompress(content)
    if token in content:
        return True
    if content.startswith(_PARQUET):
        return len(content) > len(_PARQUET) and _in_parquet(content, token)
    return content.startswith(_AVRO) and _in_avro(content, token)


def _in_parquet(content: bytes, token: bytes) -> bool:
    try:
        held = pq.read_table(pa.BufferReader(content), partitioning=None)
    except pa.ArrowInvalid:
        return False
    return any(_in_value(value, token) for column in held.columns for value in column.to_pylist())


def _in_value(value: Any, token: bytes) -> bool:
    match value:
        case bytes():
            return token in value
        case str():
            return token in value.encode()
        case dict():
            return any(_in_value(one, token) for one in value.values())
        case list():
            return any(_in_value(one, token) for one in value)
        case _:
            return False


def _in_avro(content: bytes, token: bytes) -> bool:
    """Blocks end with the file's marker; what is before one are two numbers and its packed records."""
    marker = content[-_SYNC:]
    _, *blocks = content.split(marker)
    return any(token in _unpacked(block) for block in blocks if block)


def _unpacked(block: bytes) -> bytes:
    place = 0
    for _ in range(2):
        while block[place] & 0x80:
            place += 1
        place += 1
    packed = block[place:]
    for unpack in (
        lambda: zlib.decompress(packed, -15),
        lambda: pa.CompressedInputStream(pa.BufferReader(packed), "zstd").read(),
    ):
        try:
            return unpack()
        except Exception:  # noqa: BLE001, S112  # then it is packed in another way, or not at all
            continue
    return packed
