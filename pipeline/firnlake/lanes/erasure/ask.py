"""Requests to erase keys: one row per key and topic partition, up to the log end at the time of the request (C30)."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.lanes.erasure.memory import change_erasures
from firnlake.lanes.erasure.requests import SECRET_BYTES, Erasures, Request, digests_of, named_keys
from firnlake.table.columns import ColumnRoles
from firnlake.table.memory import tombstones_on_branch
from firnlake.table.policies import Policies
from firnlake.table.policy import DAY_MS, LONG_MAX
from firnlake.table.segment_cache import ManifestCache
from firnlake.table.segments import read
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import count

_WITHIN_MS = 30 * DAY_MS
"""Time, in milliseconds, that a request allows for the erasure unless it says otherwise."""
_LONGEST_MS = 36_525 * DAY_MS
"""Longest time that a request may allow for the erasure, in milliseconds: a hundred years."""
_SHOWN = 20
"""Maximum number of topics that a message names."""


@dataclass(frozen=True)
class Asked:
    """The outcome of a request to erase keys."""

    id: int | None
    """Id of the recorded request; None when earlier requests already cover everything."""
    topic: str
    below: Mapping[TopicPartition, int]
    """By topic partition, the offset below which the request asks to erase records of its keys."""
    keys: int
    """Number of different keys."""
    earlier: int
    """Number of rows (key and topic partition) that earlier requests already ask for."""
    deadline_ms: int
    """Epoch milliseconds by which the keys have to be erased."""
    expire_history: bool
    """True when older snapshots expire for the request, whatever `history.expire.*` says."""


def ask(
    lake: Lake,
    identifier: str,
    keys: Sequence[Sequence[bytes]],
    now_ms: int,
    topic: str | None = None,
    within_ms: int | None = None,
) -> Asked:
    """Request that ``keys``, each given by the values of its columns, are erased from ``topic`` of a table.

    Without ``topic``, the table must have only one topic. Without ``within_ms``, Firn has
    30 days. A key of which the table has never held a record is no error. Raises RefusedError for a key that does not
    fit the table, or an unknown topic.
    """
    table = lake.table(identifier)
    columns = ColumnRoles.of(table, identifier)
    policy = Policies.parse(identifier, table.properties).default
    wanted = list(dict.fromkeys(named_keys(table, columns, keys)))
    topic, below = _log_ends(lake, table, identifier, topic)
    expire_history = policy.erase_history == "expire"
    within = _WITHIN_MS if within_ms is None else within_ms
    if not 0 < within <= _LONGEST_MS:
        raise RefusedError(
            f"table {identifier}: {within} ms is not a valid time for an erasure; allowed: 1 to {_LONGEST_MS} ms"
        )
    result = Asked(None, topic, below, len(wanted), 0, now_ms + within, expire_history)

    fresh = secrets.token_bytes(SECRET_BYTES)

    @cache
    def digests(secret: bytes) -> list[bytes]:
        return sorted(filter(None, digests_of(pa.array(wanted, pa.large_binary()), secret)))

    def edit(old: Erasures) -> Erasures:
        nonlocal result
        secret = old.secret or fresh
        number = max(old.ids, default=0) + 1
        rows = [
            Request(number, place.topic, place.partition, end, digest, now_ms, result.deadline_ms, expire_history)
            for digest in digests(secret)
            for place, end in sorted(below.items())
        ]
        new = [row for row in rows if not any(_covers(one, row) for one in old.naming(row.topic_partition, row.digest))]
        result = replace(result, id=number if new else None, earlier=len(rows) - len(new))
        return replace(old, secret=secret, requests=(*old.requests, *new))

    change_erasures(lake, identifier, edit)
    return result


def _covers(one: Request, row: Request) -> bool:
    """True when ``one``, a request for the same key, asks for everything that ``row`` asks for, at least as soon."""
    return (
        one.below >= row.below and one.deadline_ms <= row.deadline_ms and (one.expire_history or not row.expire_history)
    )


def _log_ends(lake: Lake, table: Table, identifier: str, topic: str | None) -> tuple[str, dict[TopicPartition, int]]:
    """The requested topic, and the log end (the last offset plus 1) of each of its topic partitions."""
    cache = ManifestCache.of(lake)
    segments = read(table, identifier, cache=cache)
    held = (*segments.by_partition.items(), *tombstones_on_branch(table, identifier, cache).items())
    topics = sorted({place.topic for place, _ in held})
    if topic is None and len(topics) == 1:
        (topic,) = topics
    if topic not in topics:
        names = ", ".join(topics[:_SHOWN]) + (f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else "")
        several = f"has {count(len(topics), 'topic')}, and none was named"
        found = f"holds no record of topic {topic!r}" if topic else several
        allowed = f"one of {names}" if names else "none, because the table is empty"
        raise RefusedError(f"table {identifier} {found}; allowed: {allowed}")
    ends: dict[TopicPartition, int] = {}
    for place, own in held:
        if place.topic != topic:
            continue
        for segment in own:
            if segment.problem and segment.last_offset < 0:
                raise RefusedError(
                    f"table {identifier}: the log end of {place} is unknown: segment {segment.path} {segment.problem}"
                )
            if segment.last_offset == LONG_MAX:
                raise RefusedError(
                    f"table {identifier}: the log of {place} ends at offset {LONG_MAX}, which no request can cover; "
                    "allowed: a log that ends at a lower offset"
                )
            ends[place] = max(ends.get(place, 0), segment.last_offset + 1)
    return topic, ends
