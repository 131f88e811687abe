"""The digest that stands for a key in reports that do not show keys.

It is a prefix of a SHA-256. A key has the same digest in every report. Anyone who can guess a key can check the guess:
where that reveals too much, reports must show nothing.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DIGEST = "sha256:"
"""Prefix of every digest."""
DIGITS = 16
"""Hexadecimal digits per digest: among a billion keys, the chance of a collision is 3 in 100."""


def digest(parts: Sequence[bytes]) -> str:
    """The digest of a key: `sha256:` and DIGITS hexadecimal digits.

    For a single key column it hashes the bytes, or the text as Spark writes it (a timestamp: as ISO 8601 in UTC, with
    microseconds). For several columns it hashes the concatenated SHA-256 texts of the columns.
    """
    one, *others = parts
    whole = "".join(hashlib.sha256(part).hexdigest() for part in parts).encode() if others else one
    return DIGEST + hashlib.sha256(whole).hexdigest()[:DIGITS]
