"""Reads Kafka log segment files (``<topic>-<partition>/00000000000000000000.log``): record batches of format v2.

The package aiokafka parses the batches: aio-libs maintains it, its parser is compiled (2 million records a second,
against 70,000 with kafka-python's pure Python), and one wheel (cramjam) has every codec. This module finds the
boundaries of batches itself, so that a message can name the position of damage (see Kafka's documentation, "Message
Format", and Kafka's class FileLogInputStream).
"""

import os
import re
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from aiokafka.errors import KafkaError
from aiokafka.record import MemoryRecords
from cramjam import DecompressionError

from firnlake.errors import RefusedError
from firnlake.table.segment import TopicPartition

SUFFIX = ".log"

_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})")
_START = struct.Struct(">qiib")  # base offset, length of what follows, leader epoch, magic
_LENGTH_AT = 12
"""Number of bytes at the start of a batch that its field ``length`` does not count."""
_LEAST_LENGTH = 49
"""Value of ``length`` for a batch without records: the size of the rest of the header."""
_MAGIC = 2
_AT_ONCE = 2000
"""Number of records that are Python objects at the same time; with more, Python's garbage collection takes longer."""
_COLUMNS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int64(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "is_control": pa.bool_(),
    "is_transactional": pa.bool_(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int32(),
}
"""Kafka's columns and the transaction columns, with their types in the log."""

_BROKEN = (KafkaError, DecompressionError, zlib.error, ValueError, OSError, EOFError, struct.error)
"""Errors that aiokafka and its codecs raise for an invalid batch with a correct CRC."""


def topic_partition_of(path: Path) -> TopicPartition:
    """The topic partition that the folder of ``path`` names.

    In Kafka's layout a folder's name is the topic, a dash and the partition; the topic may contain dashes and dots.
    Raises RefusedError for any other folder name, such as that of a partition that Kafka is deleting or moving, and for
    a link into the folder of another topic partition.
    """
    folder, target = Path(os.path.abspath(path)).parent.name, path.resolve().parent.name  # noqa: PTH100  # follows no link
    named = _named(folder)
    if named is None:
        raise RefusedError(
            f"file {path} is in folder {folder!r}; allowed: a folder named <topic>-<partition>, as in Kafka (or a copy "
            "of the file in such a folder)"
        )
    if _named(target) not in (None, named):
        raise RefusedError(
            f"file {path} is in folder {folder!r} and is a link into folder {target!r}; allowed: a link to a file of "
            "the same topic partition (or a copy of the file)"
        )
    return named


def _named(folder: str) -> TopicPartition | None:
    match = _FOLDER.fullmatch(folder)
    return TopicPartition(match["topic"], int(match["partition"])) if match else None


def read_log(path: Path, where: TopicPartition) -> pa.Table:
    """Read all records of the log segment ``path`` in file order, with Kafka's columns and the transaction columns, in
    the types of the log.

    Control records become rows like other records, with key and value as in the log. Trailing zeros, as in a
    preallocated file, are ignored. Raises RefusedError, naming the position, for a batch that is truncated, damaged, or
    in message format 0 or 1.
    """
    parts = []
    with path.open("rb") as file:
        records = _records(path, file, where)
        while some := list(islice(records, _AT_ONCE)):
            columns = zip(zip(*some, strict=True), _COLUMNS.values(), strict=True)
            parts.append(pa.table([pa.array(values, kind) for values, kind in columns], [*_COLUMNS]))
    return pa.concat_tables([pa.schema(_COLUMNS).empty_table(), *parts])


def _records(path: Path, file: IO[bytes], where: TopicPartition) -> Iterator[tuple[Any, ...]]:
    """Yield the values of _COLUMNS of every record of ``file``."""
    for position, batch in _batches(path, file, os.fstat(file.fileno()).st_size):
        # In a batch, -1 means "none": a producer that is not idempotent has neither id nor epoch.
        producer = [number if number >= 0 else None for number in (batch.producer_id, batch.producer_epoch)]
        flags = batch.is_control_batch, batch.is_transactional
        kind = batch.timestamp_type
        try:
            for one in batch:
                yield one.key, one.value, *where, one.offset, one.timestamp, kind, one.headers, *flags, *producer
        except _BROKEN as error:
            raise _refusal(path, position, f"can't be read: {error}") from error


def _batches(path: Path, file: IO[bytes], size: int) -> Iterator[tuple[int, Any]]:
    """Yield the position and content of every batch of ``file``, which has ``size`` bytes, after checking its CRC."""
    position = 0
    while start := file.read(_START.size):
        if not any(start) and not any(any(rest) for rest in iter(lambda: file.read(1 << 20), b"")):
            return
        if len(start) < _START.size:
            raise _refusal(path, position, f"is cut off: {len(start)} of at least {_LENGTH_AT + _LEAST_LENGTH} bytes")
        _, length, _, magic = _START.unpack(start)
        if magic in (0, 1):
            raise _refusal(path, position, f"has message format {magic}", "2 (Kafka 0.11 and newer)")
        if magic != _MAGIC or length < _LEAST_LENGTH:
            raise _refusal(path, position, f"has message format {magic} and length {length}")
        # A damaged length field may hold any number, so never read past the end of the file.
        content = start + file.read(min(_LENGTH_AT + length, size - position) - _START.size)
        if len(content) < _LENGTH_AT + length:
            raise _refusal(path, position, f"is cut off: {len(content)} of {_LENGTH_AT + length} bytes")
        batch = MemoryRecords(content).next_batch()
        if batch is None or not batch.validate_crc():
            raise _refusal(path, position, "does not match its CRC")
        yield position, batch
        position += len(content)


def _refusal(
    path: Path, position: int, problem: str, allowed: str = "whole batches, as Kafka wrote them"
) -> RefusedError:
    return RefusedError(f"file {path}: the batch at position {position} {problem}; allowed: {allowed}")
