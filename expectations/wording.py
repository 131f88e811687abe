"""Wording of names, keys, counts, sizes and times in sentences for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import quote

from pipeline.messages import printable

KEY_CHARACTERS = 80
KEY_BYTES = 4 * KEY_CHARACTERS + 4
"""Maximum number of bytes of a key that can affect its first KEY_CHARACTERS characters."""


def shown(value: object) -> object:
    """A template's value as a page shows it: text as `printable`, except our own markup."""
    return printable(value) if type(value) is str else value


def plain(name: str) -> str:
    """A topic's or table's name, percent-encoded except for letters, digits, `.`, `_` and `-`.

    Kafka allows nothing else in a topic's name, but any writer can fill a table, and Great Expectations puts sentences
    into its pages (and through a `$` template) without escaping them.
    """
    return re.sub(r"[^\w.\-]", lambda match: quote(match.group(), safe=""), name)


def log_name(topic: str, partition: int) -> str:
    """The name of a topic partition, like Kafka's log folder: `orders-3`."""
    return f"{plain(topic)}-{partition}"


def key_text(key: object) -> str | None:
    """A key for people: UTF-8 where printable, else hex (`0x00ff`), cut at KEY_CHARACTERS characters."""
    if key is None:
        return None
    if not isinstance(key, (bytes, bytearray)):
        return _cut(str(key))
    if not key:
        return "(empty)"
    # The last character may be cut in the middle; it is beyond KEY_CHARACTERS, so it can be dropped.
    text = bytes(key).decode("utf-8", errors="ignore" if len(key) >= KEY_BYTES else "surrogateescape")
    return _cut(text if text and text.isprintable() else "0x" + bytes(key).hex())


def _cut(text: str) -> str:
    return text if len(text) <= KEY_CHARACTERS else text[: KEY_CHARACTERS - 1] + "…"


def count(number: int, noun: str) -> str:
    """`1 key`, `10,061 keys`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: int) -> str:
    """Bytes in decimal units: `812 B`, `12.3 MB`."""
    amount = float(number)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            break
        amount /= 1000
    return f"{number:,} B" if unit == "B" else f"{amount:,.1f} {unit}"


def moment(epoch_ms: int) -> str:
    """Epoch milliseconds as `2026-11-21 05:36:56.123 UTC`; unchanged when out of the calendar's range."""
    try:
        at = datetime.fromtimestamp(epoch_ms // 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms} ms after 1970-01-01 UTC"
    return f"{at:%Y-%m-%d %H:%M:%S}.{epoch_ms % 1000:03d} UTC"
