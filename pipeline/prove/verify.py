"""Verify a certificate: repeat the search with the key itself (C30)."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipeline.engine import Engine
from pipeline.erase.digests import digests_of
from pipeline.erase.requests import Certificate
from pipeline.erase.stored import read_erasures
from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.prove.blockers import Blocker
from pipeline.prove.certificate import content_of, is_intact
from pipeline.prove.known_key import KnownKey
from pipeline.prove.search import search
from pipeline.prove.wanted import Wanted


@dataclass(frozen=True)
class Verified:
    """What a search for one key found. ``requests`` are the ids of those that name the key."""

    requests: tuple[int, ...]
    certificate: Certificate | None
    """The newest certificate for the key."""
    is_intact: bool
    """True when the certificate is as it was issued."""
    blockers: tuple[Blocker, ...]
    """Where records that the requests mean are, or may be."""
    landed_again: bool
    """True when the table holds records of the key with offsets past those of the requests."""
    landed_before: bool
    """True when that was so already when the certificate was issued."""

    @property
    def holds(self) -> bool:
        """True when there is a certificate and nothing contradicts it."""
        return self.certificate is not None and self.is_intact and not self.blockers


def verify(lake: Lake, identifier: str, key: Sequence[bytes], engine: Engine, topic: str | None = None) -> Verified:
    """Search table ``identifier`` for ``key``, in ``topic`` or all of them, as for a certificate.

    Raises RefusedError when no request names the key.
    """
    with lake.answering():
        table = lake.table(identifier)
        erasures = read_erasures(table)
        known = KnownKey.named(table, Columns.of(table, identifier), key)
        keys = pa.array([known.encoded], pa.large_binary())
        (digest,) = digests_of(keys, erasures.secret) if erasures.secret else (None,)
        rows = [one for one in erasures.requests if one.digest == digest and topic in (None, one.topic)]
        if not rows:
            raise RefusedError(f"table {identifier}: no request names this key; allowed: one that firn erase was given")
        result = search(table, identifier, Wanted(erasures.secret, rows), engine, key=known)
        ids = sorted({one.id for one in rows})
        own = [certificate for one in ids if (certificate := erasures.certificate_of(one))]
        newest = max(own, key=lambda one: one.issued_ms, default=None)
        intact = newest is not None and is_intact(newest)
        told = content_of(newest)["landed_again"] if newest and intact else []
        blockers = {blocker: None for one in ids for blocker in result.of(one)}
        again = bool(result.newer)
        return Verified(tuple(ids), newest, intact, tuple(blockers), again, again and rows[0].digest.hex() in told)
