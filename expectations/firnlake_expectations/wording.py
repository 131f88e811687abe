"""Wording of names, keys, counts, sizes and times in sentences for people; keys as reports show them."""

from __future__ import annotations

import hashlib
import re
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


KEY_CHARACTERS = 80


def printable(text: str) -> str:
    """``text`` as one line that is safe to show in a terminal, log or page: unprintable characters are escaped.

    Unprintable characters are control characters (such as ESC), line ends, and marks that change the direction of text.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(value: object) -> object:
    """A template's value as a page shows it: text as `printable` returns it, except Firn's own markup."""
    return printable(value) if type(value) is str else value


def plain(name: str) -> str:
    """A topic's or table's name, percent-encoded except for letters, digits, `.`, `_` and `-`.

    Kafka allows nothing else in a topic's name, but any writer can fill a table, and Great Expectations puts sentences
    into its pages (and through a `$` template) without escaping them.
    """
    return re.sub(r"[^\w.\-]", lambda match: quote(match.group(), safe=""), name)


NAME_CHARACTERS = 120


def file_name(name: str) -> str:
    """`name` as part of a file's name and of Great Expectations' names: percent-encoded except for ASCII letters,
    digits, `.`, `_` and `-`; one of more than NAME_CHARACTERS characters is cut and ends in its digest."""
    told = re.sub(r"[^\w.\-]", lambda match: quote(match.group(), safe=""), name, flags=re.ASCII)
    if len(told) <= NAME_CHARACTERS:
        return told
    return f"{told[: NAME_CHARACTERS - DIGITS - 1]}-{hashlib.sha256(name.encode()).hexdigest()[:DIGITS]}"


def log_name(topic: str, partition: int) -> str:
    """The name of a topic partition, like Kafka's log folder: `orders-3`."""
    return f"{plain(topic)}-{partition}"


def count(number: int, noun: str) -> str:
    """`1 key`, `10,061 keys`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


FATES: Final = {
    "superseded": "records superseded",
    "tombstones_removed": "tombstones removed",
    "expired": "records expired",
    "quarantined": "records quarantined",
    "aborted": "records of aborted transactions",
    "markers_removed": "markers removed",
    "erased": "records erased",
}
"""What becomes of records that are read and not kept, by figure: with the records kept, they are all that was read."""


def fates(figures: Mapping[str, int]) -> str:
    """`3 superseded, 1 tombstone removed`: the `figures` of records that went."""
    return ", ".join(
        f"{figures[name]:,} {fate(figures[name], words)}" for name, words in FATES.items() if figures[name]
    )


def fate(number: int, words: str) -> str:
    """`superseded`, `tombstone removed`, `tombstones removed`."""
    of_many = words.removeprefix("records ")
    return of_many.replace("s removed", " removed") if number == 1 else of_many


def size(number: int) -> str:
    """Bytes in decimal units: `812 B`, `12.3 MB`."""
    amount = float(number)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(amount) < 1000 or unit == "TB":
            break
        amount /= 1000
    return f"{number:,} B" if unit == "B" else f"{amount:,.1f} {unit}"


def moment(epoch_ms: int) -> str:
    """Epoch milliseconds as `2026-11-21 05:36:56.123 UTC`; as a number if Python's calendar has no such date."""
    try:
        at = datetime.fromtimestamp(epoch_ms // 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms} ms after 1970-01-01 UTC"
    return f"{at:%Y-%m-%d %H:%M:%S}.{epoch_ms % 1000:03d} UTC"


DIGITS = 16
"""Hexadecimal digits per digest: among a billion keys, the chance of a collision is 3 in 100."""


def digest(parts: Sequence[bytes]) -> str:
    """The digest of a key: `sha256:` and DIGITS hexadecimal digits.

    For a single key column it hashes the bytes, or the text as Spark writes it (a timestamp: as ISO 8601 in UTC, with
    microseconds). For several columns it hashes the concatenated SHA-256 texts of the columns.
    """
    one, *others = parts
    whole = "".join(hashlib.sha256(part).hexdigest() for part in parts).encode() if others else one
    return f"sha256:{hashlib.sha256(whole).hexdigest()[:DIGITS]}"


Shown = Literal["none", "keys", "full"]
"""`none`: no samples at all; `keys`: keys as digests, no values; `full`: keys and values."""


def shown_key(key: object, shown: Shown, uuids: tuple[bool, ...]) -> str | None:
    """The digest or text that a sample shows for `key`, a dict of its parts if composite; None for None.

    uuids   for each part, True when its 16 bytes are a UUID
    """
    if key is None:
        return None
    parts = list(key.values()) if isinstance(key, dict) else [key]
    hashed = [
        hashed_part(uuid.UUID(bytes=part) if is_uuid and isinstance(part, bytes) else part)
        for part, is_uuid in zip(parts, uuids, strict=True)
    ]
    if shown == "keys":
        return digest(hashed)
    texts = [_text(part) for part in hashed]
    return _cut(f"{{{', '.join(texts)}}}") if len(texts) > 1 else texts[0]


def _text(part: bytes) -> str:
    """Text if it is printable UTF-8, otherwise hex (`0x00ff`), cut to KEY_CHARACTERS characters."""
    text = part.decode(errors="surrogateescape")
    return _cut((text if text.isprintable() else f"0x{part.hex()}") or "(empty)")


def _cut(text: str) -> str:
    return text if len(text) <= KEY_CHARACTERS else text[: KEY_CHARACTERS - 1] + "…"


def hashed_part(value: object) -> bytes:
    """The bytes that a key's digest hashes for one of its parts: its bytes, or its text."""
    match value:
        case bytes():
            return value
        case bool():
            return str(value).lower().encode()
        case Decimal():
            return f"{value:f}".encode()
        case datetime():
            moment = value.astimezone(UTC) if value.tzinfo else value
            return moment.replace(tzinfo=None).isoformat(timespec="microseconds").encode()
        case date():
            return value.isoformat().encode()
        case _:
            return str(value).encode()
