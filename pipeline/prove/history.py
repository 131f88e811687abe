"""Older snapshots, which still hold what a request means: what keeps them, and which expire for its sake (C30)."""

from collections.abc import Collection, Iterable
from typing import Final

from pyiceberg.table import Table

from pipeline.erase.requests import Erasures, Request
from pipeline.lake import Lake
from pipeline.lake.branches import ERASURES, MASKS, QUARANTINE
from pipeline.lake.topic_partition import TopicPartition
from pipeline.prove.blockers import Blocker, of_keepers
from pipeline.prove.inventory import keepers_of
from pipeline.prove.telling import Telling
from pipeline.segments import read
from pipeline.segments.cache import ManifestCache
from pipeline.segments.removed_tombstones import removed_tombstones

_WITHOUT_KEYS: Final = (QUARANTINE, ERASURES, MASKS)
"""Branches that hold no record with a key."""


def expires_ms(rows: Iterable[Request]) -> int | None:
    """When older snapshots expire for the sake of ``rows``; None: they do not.

    For a request that is at half the time of its most urgent key; of several requests the last one counts.
    """
    expiry: dict[int, int] = {}
    for one in rows:
        if one.expire_history:
            half = one.requested_ms + (one.deadline_ms - one.requested_ms) // 2
            expiry[one.id] = min(half, expiry.get(one.id, half))
    return max(expiry.values(), default=None)


def expire_below(
    table: Table, identifier: str, erasures: Erasures, now_ms: int, rewritten: Collection[str] = ()
) -> int:
    """Lowest sequence number of a snapshot that may stay on main and on Firn's branches; 0 where all may.

    Snapshots below it are older than the erasure for a request that asks to expire them, and has no certificate yet; or
    they list a manifest that may tell its key. ``rewritten`` are manifests of main that are about to be written anew.
    """
    number = 0
    for request in erasures.ids:
        rows = erasures.rows_of(request)
        due_ms = expires_ms(rows)
        if due_ms is not None and now_ms >= due_ms and erasures.certificate_of(request) is None:
            number = max(number, erased_at(erasures, rows) or 0)
    return max(number, Telling(table, identifier, erasures).newest_past(number, rewritten) + 1) if number else 0


def erased_at(erasures: Erasures, rows: Iterable[Request]) -> int | None:
    """Sequence number of the commit after which main holds nothing that ``rows`` mean; None before it."""
    number = 0
    for row in rows:
        done = erasures.progress_of(row.topic_partition)
        if done is None or not erasures.is_done(row):
            return None
        number = max(number, done.committed)
    return number


def vanished(lake: Lake, table: Table, identifier: str, erasures: Erasures) -> set[TopicPartition]:
    """Topic partitions that lane `erase` has yet to search and of which neither main nor `firn_tombstones` has a file:
    retention or another tool has dropped them."""
    rows = (row for one in erasures.ids if erasures.certificate_of(one) is None for row in erasures.rows_of(one))
    undone = {row.topic_partition for row in rows if not erasures.is_done(row)}
    if not undone:
        return set()
    cache = ManifestCache.of(lake)
    segments = read(table, identifier, cache=cache)
    held = segments.by_partition.keys() | removed_tombstones(lake, identifier, cache).keys()
    return {one for one in undone if one not in held and not segments.strays_of(one)}


def older_snapshots(table: Table, erasures: Erasures, request: int) -> list[Blocker]:
    """Blockers of ``request`` among the snapshots of ``table`` that are older than the erasure, by metadata alone.

    Whether they hold a record of it only the search tells.
    """
    rows = erasures.rows_of(request)
    erased = erased_at(erasures, rows)
    if erased is None:
        return []
    older = {one.snapshot_id for one in table.metadata.snapshots if (one.sequence_number or 0) < erased}
    why = "from before the erasure, may still hold records of the key"
    # The heads of main and `firn_tombstones` were searched; Firn's other branches hold no record with a key.
    keepers = (one for one in keepers_of(table, older) if one.kind != "head" and one.name not in _WITHOUT_KEYS)
    return of_keepers(keepers, why, table.properties, expires_ms(rows))
