"""Records as tests write them: ``key=value@offset``.

    a=1          key a, value 1, at the partition's next offset
    a=           a tombstone
    -=x          a record without a key
    a=1@7        at offset 7; the next record goes on from there
    1/a=1        in partition 1
    a=1,3d       three days old; a record is a day old unless it says so
    billing:a=1  of topic `billing`; a record is of `orders` unless it says so. :a=1 is of a topic without a name

Keys and values are text, or bytes as ``0x00ff``. ``empty`` stands for a key or value without bytes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NOW: Final = 1_800_000_000_000
"""The clock of tests, epoch milliseconds."""
DAY: Final = 86_400_000
TOPIC: Final = "orders"
LOW_THRESHOLDS: Final = {
    "firn.merge.segments": "2",
    "firn.clean.segments": "2",
    "firn.min.cleanable.dirty.ratio": "0.5",
    "firn.min.dirty.bytes": "0",
}
"""Properties of a table on which each lane has its turn however little there is."""
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY}
_RECORD: Final = re.compile(
    r"(?:(?P<topic>[\w.]*):)?(?:(?P<partition>\d+)/)?(?P<key>[^=@,]+)=(?P<value>[^@,]*)(?:@(?P<offset>\d+))?(?:,(?P<age>\S+))?"
)
_MARKERS: Final = {bytes(4): "abort", b"\0\0\0\1": "commit"}
"""Keys of the markers that end a transaction (Kafka, `EndTransactionMarker`)."""
_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field(
            "headers",
            pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
        ),
    ]
)
"""The columns of Kafka's records, as Firn's tables have them."""


class Record(NamedTuple):
    """A record; ``value`` None is a tombstone, ``key`` None has no key."""

    offset: int
    key: bytes | None
    value: bytes | None
    partition: int = 0
    timestamp_ms: int = NOW - DAY
    headers: tuple[tuple[str, bytes], ...] = ()
    topic: str = TOPIC


class History:
    """The offsets that are next in each topic partition."""

    def __init__(self) -> None:
        self._next: defaultdict[tuple[str, int], int] = defaultdict(int)

    def records(self, text: str) -> list[Record]:
        """The records in ``text``, parted by white space. Raises ValueError for what is none."""
        return [self._record(word) for word in text.split()]

    def _record(self, word: str) -> Record:
        match = _RECORD.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is no record; allowed: [topic:][partition/]key=value[@offset][,age]")
        topic, partition = TOPIC if match["topic"] is None else match["topic"], int(match["partition"] or 0)
        where = topic, partition
        offset = self._next[where] if match["offset"] is None else int(match["offset"])
        self._next[where] = max(self._next[where], offset + 1)
        key = None if match["key"] == "-" else _bytes(match["key"])
        value = _bytes(match["value"]) if match["value"] else None
        moment = NOW - (span(match["age"]) if match["age"] else DAY)
        return Record(offset, key, value, partition, moment, (), topic)


def rows_of(batch: Iterable[Record]) -> pa.Table:
    """Records in Kafka's columns."""
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms * 1000,
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
        }
        for record in batch
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def shown(row: Mapping[str, Any]) -> str:
    """A row as a test reads it: a record as it is written, and ``+1d`` where its delete horizon is a day after NOW."""
    topic = "" if row["topic"] == TOPIC else f"{row['topic']}:"
    partition = f"{row['partition']}/" if row["partition"] else ""
    if row.get("is_control"):
        return f"{_MARKERS[row['key']]}@{row['offset']}{_stamp(row)}"
    key = "-" if row["key"] is None else _text(row["key"])
    value = "" if row["value"] is None else _text(row["value"])
    return f"{topic}{partition}{key}={value}@{row['offset']}{_stamp(row)}"


def span(text: str) -> int:
    """Milliseconds of ``1d``, ``-2h``, ``1d-1ms`` or ``0``."""
    parts = re.findall(r"([+-]?\d+)(ms|s|m|h|d)", text)
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def _stamp(row: Mapping[str, Any]) -> str:
    """The delete horizon, counted from NOW in days and milliseconds."""
    horizon = row.get("delete_horizon")
    if horizon is None:
        return ""
    days, milliseconds = divmod(round(horizon.timestamp() * 1000) - NOW, DAY)
    return f"{days:+}d" + (f"{milliseconds}ms" if milliseconds else "")


def _bytes(text: str) -> bytes:
    if text == "empty":
        return b""
    return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()


def _text(content: bytes) -> str:
    if not content:
        return "empty"
    text = content.decode(errors="replace")
    return text if text.isprintable() and not re.search(r"[\s=@,|\ufffd]", text) else f"0x{content.hex()}"


_BAR: Final = re.compile(r"(?:^|(?<= ))\|(?: |$)")
_WORD: Final = re.compile(r" (?=\w+=|-[A-Za-z]+(?: |$))")
_FIELDS: Final = {
    "key": '"k"',
    "value": '"v"',
    "topic": '"orders"',
    "partition": "0",
    "offset": "1",
    "timestamp": "1",
}


def json_lines(text: str) -> bytes:
    """A line for each part of ``text`` between ` | `: a record, with ``name=<JSON>`` in place of a field or besides,
    and without the field of ``-name``. Other parts are lines as they are.
    """
    return "".join(f"{_json_line(part.strip())}\n" for part in _BAR.split(text)).encode()


def unescaped(text: str) -> bytes:
    r"""The bytes of a text in which ``\xff``, ``\n`` and the like are as in a literal of Python."""
    return re.sub(
        rb"\\(x[0-9a-f]{2}|.)",
        lambda match: _ESCAPES.get(match[1]) or bytes.fromhex(match[1][1:].decode()),
        text.encode(),
    )


_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\", b"0": b"\0"}


def _json_line(part: str) -> str:
    fields = dict(_FIELDS)
    words = _WORD.split(part) if part else []
    if not all(_WORD.match(f" {word}") for word in words):
        return part
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            fields[name] = value
        else:
            del fields[name.removeprefix("-")]
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"
