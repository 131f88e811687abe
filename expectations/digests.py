"""The digest by which a report names a key that it does not show.

It is the beginning of a SHA-256. The same key has the same digest in every report, so that it can be found again
(`firn explain TABLE --key sha256:…`). Whoever can guess a key can check the guess: where that is too much, nothing may
be shown.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DIGEST = "sha256:"
"""What a digest begins with."""
DIGITS = 16
"""Hexadecimal digits of a digest: two of a billion keys have the same by a chance of 3 in 100."""


def digest(parts: Sequence[bytes]) -> str:
    """The digest of a key: `sha256:` and DIGITS hexadecimal digits.

    Of a key of one column its bytes are hashed, or its text as Spark writes it (a timestamp: as ISO 8601 in UTC, with
    microseconds). Of several columns the SHA-256 of each is written as text, one after the other, and that is hashed.
    """
    one, *others = parts
    whole = "".join(hashlib.sha256(part).hexdigest() for part in parts).encode() if others else one
    return DIGEST + hashlib.sha256(whole).hexdigest()[:DIGITS]
