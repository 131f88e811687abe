"""Records beside a table, in quarantine (C5) or removed tombstones (C9): kept for ever, unless a property of the table
says how long or how many.

They may be the only copy. Only whole data files go, from the table beside alone and never from the topic table; and
from the disk once no snapshot of that table holds them, which is why its old snapshots are expired then. A plan that
reads a removed tombstone which is dropped meanwhile is planned again.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyarrow.fs import FileType
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from pipeline.gc.finding import Finding, Kind
from pipeline.gc.limits import Limits
from pipeline.lake import Lake
from pipeline.lake.folders import Stored
from pipeline.lake.handover import withdraw
from pipeline.policy import Policies
from pipeline.policy.policy import DAY_MS
from pipeline.quarantine import quarantine
from pipeline.segments.read import read_entries
from pipeline.stage.leftovers import SETTLED_MS
from pipeline.tombstones import tombstones

MAX_SNAPSHOT_AGE: Final = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
"""Iceberg's own properties, of the table beside; their defaults are 5 days and 1."""

Find = Callable[[], Table | None]
"""Loads the table beside, as it is now."""


@dataclass(frozen=True)
class Beside:
    """What was found, and what the tables beside are after that: without the ``expired`` snapshots (ids), but with the
    files that are ``kept`` (paths)."""

    findings: Sequence[Finding] = ()
    expired: Collection[int] = ()
    kept: Collection[str] = ()


@dataclass(frozen=True)
class _Neighbour:
    """A table beside: what it holds, how it is loaded, and what it may hold."""

    kind: Kind
    find: Find
    limits: Limits


def old_beside(lake: Lake, identifier: str, now_ms: int, *, remove: bool) -> Beside:
    """What quarantine and removed tombstones of ``identifier`` hold beyond their limits: dropped, with ``remove``.

    A file is as old as its entry there. Nothing that is younger than an hour goes for whatever limit: its plan may be
    being published.
    """
    every = [_old(lake, neighbour, now_ms, remove) for neighbour in _neighbours(lake, identifier)]
    return Beside(
        [finding for one in every for finding in one.findings],
        [snapshot for one in every for snapshot in one.expired],
        [path for one in every for path in one.kept],
    )


def _neighbours(lake: Lake, identifier: str) -> tuple[_Neighbour, ...]:
    policy = Policies.parse(identifier, lake.table(identifier).properties).default
    quarantined = Limits(
        age_setting="firn.gc.quarantine.age.ms",
        age_ms=policy.gc_quarantine_age_ms,
        bytes_setting="firn.gc.quarantine.bytes",
        bytes=policy.gc_quarantine_bytes,
    )
    removed = Limits(
        age_setting="firn.gc.tombstones.age.ms",
        age_ms=policy.gc_tombstones_age_ms,
        bytes_setting="firn.gc.tombstones.bytes",
        bytes=policy.gc_tombstones_bytes,
    )
    return (
        _Neighbour(Kind.QUARANTINE, partial(quarantine.find, lake, identifier), quarantined),
        _Neighbour(Kind.TOMBSTONES, partial(tombstones.find, lake, identifier), removed),
    )


def _old(lake: Lake, neighbour: _Neighbour, now_ms: int, remove: bool) -> Beside:
    find, limits = neighbour.find, neighbour.limits
    table = find()
    if table is None or table.current_snapshot() is None:
        return Beside()
    name = ".".join(table.name())
    files = _files(table)
    reasons = _reasons(files, limits, now_ms)
    found = [
        Finding.of_files(neighbour.kind, file.path, [file], now_ms, goes=True, reason=reasons[file.path])
        for file in files
        if file.path in reasons
    ]
    kept = [file for file in files if file.path not in reasons]
    if kept:
        reason = f"within its limits: {limits}"
        found.append(Finding.of_files(neighbour.kind, name, kept, now_ms, goes=False, reason=reason))
    if limits.none:
        return Beside(found)
    if remove and reasons:
        _drop(lake, find, reasons)
        table = find() or table
    expiring = _expiring(table, now_ms, head_stays=remove or not reasons)
    if remove and expiring:
        _expire(lake, find, [one.snapshot_id for one in expiring])
    return Beside(
        found + [_of_snapshot(name, one, now_ms) for one in expiring],
        [one.snapshot_id for one in expiring],
        [file.path for file in kept],
    )


def _of_snapshot(name: str, snapshot: Snapshot, now_ms: int) -> Finding:
    age_ms = now_ms - snapshot.timestamp_ms
    reason = f"{MAX_SNAPSHOT_AGE} of {name} allows less, and records of it are dropped"
    return Finding(Kind.SNAPSHOT, str(snapshot.snapshot_id), goes=True, reason=reason, files=0, age_ms=age_ms)


def _files(table: Table) -> list[Stored]:
    """The live files, each as old as its entry, or the file where the snapshot of the entry is expired."""
    committed = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.metadata.snapshots}
    access = PyArrowFileIO(table.io.properties)
    return [_stored(access, entry, committed.get(entry.snapshot_id or 0, 0)) for entry, _ in read_entries(table)]


def _stored(access: PyArrowFileIO, entry: ManifestEntry, committed_ms: int) -> Stored:
    location = entry.data_file.file_path
    scheme, netloc, path = PyArrowFileIO.parse_location(location, access.properties)
    info = access.fs_by_scheme(scheme, netloc).get_file_info(path)
    written_ms = Stored.of(info).written_ms if info.type == FileType.File else None
    return Stored(
        location, entry.data_file.file_size_in_bytes, None if written_ms is None else max(written_ms, committed_ms)
    )


def _reasons(files: Sequence[Stored], limits: Limits, now_ms: int) -> dict[str, str]:
    """Which files go and why, by path."""
    reasons: dict[str, str] = {}
    left = sum(file.bytes for file in files)
    for file in sorted(files, key=lambda file: -file.age_ms(now_ms)):
        age_ms = file.age_ms(now_ms)
        reason = limits.exceeded(age_ms, left)
        if reason and age_ms > SETTLED_MS:
            reasons[file.path] = reason
            left -= file.bytes
    return reasons


def _drop(lake: Lake, find: Find, paths: Collection[str]) -> None:
    """Take the files at ``paths`` out of the current snapshot."""
    withdraw(
        lake,
        find,
        lambda table: {"": [entry.data_file for entry, _ in read_entries(table) if entry.data_file.file_path in paths]},
    )


def _expiring(table: Table, now_ms: int, head_stays: bool) -> list[Snapshot]:
    """Snapshots that Iceberg's own properties no longer keep; branches and tags stay.

    Without ``head_stays`` the current snapshot counts as replaced by the one that will drop files.
    """
    properties = table.properties
    limit_ms = now_ms - int(properties.get(MAX_SNAPSHOT_AGE, 5 * DAY_MS))
    at_least = int(properties.get(MIN_SNAPSHOTS, 1)) - (0 if head_stays else 1)
    snapshots = sorted(table.metadata.snapshots, key=lambda one: -one.timestamp_ms)
    refs = table.metadata.refs.items()
    heads = {ref.snapshot_id for name, ref in refs if head_stays or name != MAIN_BRANCH}
    return [one for one in snapshots[at_least:] if one.timestamp_ms < limit_ms and one.snapshot_id not in heads]


def _expire(lake: Lake, find: Find, ids: Collection[int]) -> None:
    """Expire those snapshots, and delete the manifests that no other snapshot has."""
    gone: list[Snapshot] = []

    def commit() -> None:
        gone.clear()
        table = find()
        if table is None:
            return
        heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
        gone.extend(one for one in table.metadata.snapshots if one.snapshot_id in ids and one.snapshot_id not in heads)
        if gone:
            pinned = lake.single_attempt(table)
            pinned.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in gone]).commit()

    lake.until_committed(commit)
    table = find()
    if table:
        for path in _metadata_of(table.io, gone) - _metadata_of(table.io, table.metadata.snapshots):
            # Another collector may have been faster. What can't be deleted is waste.
            with suppress(OSError):
                table.io.delete(path)


def _metadata_of(io: FileIO, snapshots: Collection[Snapshot]) -> set[str]:
    """Paths of the manifest lists and manifests of ``snapshots``, as far as they are there."""
    found: set[str] = set()
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        with suppress(FileNotFoundError):
            found |= {manifest.manifest_path for manifest in snapshot.manifests(io)}
    return found
