"""Older snapshots that still hold requested records: what keeps these snapshots, and which of them expire early (C30).

Manifests keep the bounds of removed files. These bounds may reveal a key to erase, because a bound may be a key or the
beginning of a key. The bounds of a file that still exists need no search, because its records are searched.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, FixedType, IntegerType, LongType, PrimitiveType, StringType

from firnlake.iceberg.branches import ERASURES, QUARANTINE, ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles
from firnlake.lanes.erasure.read import KeyMatcher
from firnlake.lanes.erasure.requests import Erasures, Request, key_bytes
from firnlake.maintain.inventory import Blocker, keepers_of, of_keepers
from firnlake.table.columns import ColumnRoles
from firnlake.table.memory import tombstones_on_branch
from firnlake.table.segment_cache import ManifestCache
from firnlake.table.segments import read
from firnlake.table.topic_partition import TopicPartition

TRUNCATED: Final = 16
"""Default length, in characters or bytes, to which bounds are cut (Iceberg docs, "write.metadata.metrics.default")."""
_MODE: Final = "write.metadata.metrics.column."


@dataclass(frozen=True)
class Entry:
    """A manifest's entry for a file that is gone, with the file's bounds by field id.

    ``place`` is the topic partition of the file's records; None if not known.
    """

    path: str
    lower: Mapping[int, bytes]
    upper: Mapping[int, bytes]
    place: TopicPartition | None


class Bounds:
    """Finds the requests whose keys the bounds of an entry may reveal."""

    def __init__(self, table: Table, columns: ColumnRoles, wanted: KeyMatcher) -> None:
        self._wanted = wanted
        self._fields = [table.schema().find_field(name) for name in columns.key]
        self._schema = DataFiles.of(table).arrow_schema(columns.key)
        self._cut = _cut(table, columns.key)

    def concern(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, frozenset[int]]]:
        """Yield each entry that may reveal a requested key, with the ids of the requests."""
        kept = [one for one in entries if one.place is None or self._wanted.holds(one.place)]
        values = [self._values(one) for one in kept]
        exact = self._digests([value for own in values for value in own])
        start = 0
        for entry, own in zip(kept, values, strict=True):
            digests = exact[start : start + len(own)]
            start += len(own)
            ids = frozenset().union(*map(self._wanted.asked_by, digests))
            if self._may_begin(entry, own):
                ids = self._wanted.ids
            if ids:
                yield entry, ids

    def _values(self, entry: Entry) -> list[bytes]:
        """The bounds of the only key column; empty if there are several, because then no bound is a whole key."""
        if len(self._fields) > 1:
            return []
        number = self._fields[0].field_id
        return [bounds[number] for bounds in (entry.lower, entry.upper) if number in bounds]

    def _digests(self, values: Sequence[bytes]) -> list[bytes | None]:
        if not values:
            return []
        kind = self._fields[0].field_type
        assert isinstance(kind, PrimitiveType)  # the table's columns were checked
        decoded = [_decoded(kind, value) for value in values]
        batch = pa.RecordBatch.from_arrays([pa.array(decoded, self._schema.field(0).type)], schema=self._schema)
        return self._wanted.digests_of(key_bytes(batch, self._schema.names))

    def _may_begin(self, entry: Entry, own: Sequence[bytes]) -> bool:
        """True when a bound may be the beginning of a key, or the value of one of several key columns."""
        if len(self._fields) > 1:
            return any(field.field_id in bounds for field in self._fields for bounds in (entry.lower, entry.upper))
        kind = self._fields[0].field_type
        if isinstance(kind, StringType):
            return any(len(value.decode(errors="replace")) >= self._cut for value in own)
        return isinstance(kind, BinaryType | FixedType) and any(len(value) >= self._cut for value in own)


def _decoded(kind: PrimitiveType, value: bytes) -> object:
    if isinstance(kind, IntegerType | LongType):
        # Bounds that were written before an int column became a long have 4 bytes.
        return int.from_bytes(value, "little", signed=True)
    return from_bytes(kind, value)


def _cut(table: Table, keys: Sequence[str]) -> int:
    """The shortest length at which a bound of a key column may be cut."""
    modes = [table.properties.get(f"{_MODE}{name}", "") for name in keys]
    modes.append(table.properties.get("write.metadata.metrics.default", ""))
    lengths = [mode.strip().lower().removeprefix("truncate(").removesuffix(")") for mode in modes]
    return min([TRUNCATED, *(int(one) for one in lengths if one.isdecimal())])


class Telling:
    """Finds the manifests of ``table`` that may reveal a key of a request without a certificate."""

    def __init__(self, table: Table, identifier: str, erasures: Erasures) -> None:
        self._table = table
        self._identifier = identifier
        self._erasures = erasures
        self._known: dict[str, bool] = {}

    def tells(self, manifest: ManifestFile) -> bool:
        """True when ``manifest`` still exists, and has an entry for a removed file whose bounds may reveal a key."""
        if not manifest.deleted_files_count or not self._open:
            return False
        path = manifest.manifest_path
        if path not in self._known:
            self._known[path] = self._looked(manifest)
        return self._known[path]

    def newest_past(self, least: int, rewritten: Collection[str]) -> int:
        """Sequence number of main's newest snapshot with a manifest that may reveal a key; 0 if lower than ``least``.

        Manifests in main's head do not count, because they stay in any case, unless they will be ``rewritten`` next.
        """
        line = list(ancestors(self._table))
        kept = {one.manifest_path for one in line[0].manifests(self._table.io)}.difference(rewritten)
        for snapshot in line:
            number = snapshot.sequence_number or 0
            if number < least:
                return 0
            listed = snapshot.manifests(self._table.io)
            if any(one.manifest_path not in kept and self.tells(one) for one in listed):
                return number
        return 0

    @property
    def _open(self) -> bool:
        return any(self._erasures.certificate_of(one) is None for one in self._erasures.ids)

    @cached_property
    def _bounds(self) -> Bounds:
        known = self._erasures
        rows = [row for one in known.ids if known.certificate_of(one) is None for row in known.rows_of(one)]
        columns = ColumnRoles.named(self._table, self._identifier)
        return Bounds(self._table, columns, KeyMatcher(known.secret, rows))

    def _looked(self, manifest: ManifestFile) -> bool:
        try:
            entries = manifest.fetch_manifest_entry(self._table.io, discard_deleted=False)
        except FileNotFoundError:
            return False
        files = [one.data_file for one in entries if one.status == ManifestEntryStatus.DELETED]
        gone = (Entry(one.file_path, one.lower_bounds or {}, one.upper_bounds or {}, None) for one in files)
        return next(self._bounds.concern(gone), None) is not None


_WITHOUT_KEYS: Final = (QUARANTINE, ERASURES)
"""Branches that hold no record with a key."""


def expires_ms(rows: Iterable[Request]) -> int | None:
    """The time, in epoch milliseconds, from which older snapshots expire for the requests in ``rows``; None if never.

    For one request, this is half-way between the request and the deadline of its most urgent key. For several requests,
    it is the latest of these times.
    """
    expiry: dict[int, int] = {}
    for one in rows:
        if one.expire_history:
            half = one.requested_ms + (one.deadline_ms - one.requested_ms) // 2
            expiry[one.id] = min(half, expiry.get(one.id, half))
    return max(expiry.values(), default=None)


def expire_below(table: Table, identifier: str, erasures: Erasures, now_ms: int, rewritten: Collection[str]) -> int:
    """Lowest sequence number of a snapshot that may stay on main and on Firn's branches; 0 if all may stay.

    A snapshot must expire if a request without a certificate has reached its time (``expires_ms``), and the snapshot
    is older than the request's erasure or lists a manifest that may reveal a key. ``rewritten`` are paths of main's
    manifests that will be rewritten next.
    """
    number = 0
    for request in erasures.ids:
        rows = erasures.rows_of(request)
        due_ms = expires_ms(rows)
        if due_ms is not None and now_ms >= due_ms and erasures.certificate_of(request) is None:
            number = max(number, erased_at(erasures, rows) or 0)
    return max(number, Telling(table, identifier, erasures).newest_past(number, rewritten) + 1) if number else 0


def erased_at(erasures: Erasures, rows: Iterable[Request]) -> int | None:
    """Sequence number of the commit after which main holds no record that ``rows`` ask to erase; None until then."""
    number = 0
    for row in rows:
        done = erasures.progress_of(row.topic_partition)
        if done is None or not erasures.is_done(row):
            return None
        number = max(number, done.committed)
    return number


def vanished(lake: Lake, table: Table, identifier: str, erasures: Erasures) -> set[TopicPartition]:
    """Topic partitions that lane `erase` has yet to search, but of which neither main nor `firn_tombstones` has a file.

    Retention or another tool has dropped their files.
    """
    rows = (row for one in erasures.ids if erasures.certificate_of(one) is None for row in erasures.rows_of(one))
    undone = {row.topic_partition for row in rows if not erasures.is_done(row)}
    if not undone:
        return set()
    cache = ManifestCache.of(lake)
    segments = read(table, identifier, cache=cache)
    held = segments.by_partition.keys() | tombstones_on_branch(table, identifier, cache).keys()
    return {one for one in undone if one not in held and not segments.strays_of(one)}


def older_snapshots(table: Table, erasures: Erasures, request: int) -> list[Blocker]:
    """Blockers of ``request`` among the snapshots of ``table`` that are older than the erasure, from metadata alone.

    Only the search finds out whether these snapshots hold a record of the request.
    """
    rows = erasures.rows_of(request)
    erased = erased_at(erasures, rows)
    if erased is None:
        return []
    older = {one.snapshot_id for one in table.metadata.snapshots if (one.sequence_number or 0) < erased}
    why = "it is from before the erasure, and may still hold records of the key"
    # The heads of main and `firn_tombstones` were searched; Firn's other branches hold no record with a key.
    keepers = (one for one in keepers_of(table, older) if one.kind != "head" and one.name not in _WITHOUT_KEYS)
    return of_keepers(keepers, why, table.properties, expires_ms(rows))
