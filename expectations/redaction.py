"""Redaction of sampled records: no samples, a digest of each key, or keys and values in full."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Literal

from expectations.digests import digest
from expectations.wording import KEY_BYTES, key_text

Shown = Literal["none", "keys", "full"]
"""`none`: no samples at all; `keys`: keys as digests, no values; `full`: keys and values."""


def shown_key(key: object, shown: Shown, uuids: tuple[bool, ...]) -> str | None:
    """The digest or text that a sample shows for `key`, a dict of its parts if composite; None for None.

    uuids   for each part, True when its 16 bytes are a UUID
    """
    if key is None:
        return None
    parts = list(key.values()) if isinstance(key, dict) else [key]
    told = [
        uuid.UUID(bytes=part) if is_uuid and isinstance(part, bytes) else part
        for part, is_uuid in zip(parts, uuids, strict=True)
    ]
    if shown == "keys":
        return digest([hashed_part(part) for part in told])
    if len(told) > 1:
        return key_text("{" + ", ".join(str(key_text(part)) for part in told) + "}")
    one = told[0]
    return key_text(one[:KEY_BYTES] if isinstance(one, bytes) else hashed_part(one).decode())


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
