"""All files that a table's metadata refers to, in every snapshot, branch and tag, and what refers to each file (C30).

This module also finds the files below the table's location that its metadata does not name, and the blockers, which
prevent the certificate of an erasure.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import FirnError
from firnlake.iceberg.branches import FIRN_BRANCHES, MENDED
from firnlake.iceberg.files import MARKS, Stored, data_folder, files_in, job_of, metadata_folder, path_of, store
from firnlake.iceberg.manifests import ahead
from firnlake.iceberg.side_branches import read_puffin
from firnlake.iceberg.snapshots import max_snapshot_age
from firnlake.job.failures import SHOWS_RECORDS
from firnlake.table.published_plans import document_of


@dataclass(frozen=True)
class Blocker:
    """Something that prevents the certificate of an erasure: its kind and name, the reason, and what lifts it."""

    kind: str
    name: str
    why: str
    lifted_by: str
    until_ms: int | None = None
    """Time, in epoch milliseconds, at which the blocker ends by itself; None if time alone does not end it."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.why}; lifted by: {self.lifted_by}"


@dataclass(frozen=True)
class Keeper:
    """The branch, tag or snapshot that keeps a file in the table.

    ``kind`` is ``tag``, ``branch``, ``head`` (of main, or of one of Firn's branches) or ``snapshot``. The branch of
    mended files counts as anybody's ``branch``. ``name`` is the name of the branch or tag, or empty for a snapshot
    that is on no branch.
    """

    kind: str
    name: str
    snapshot: Snapshot | None
    """The older snapshot that has the file; None if the head of the branch, or the tag, has it."""


_LIFTED: Final = {
    "tag": "ALTER TABLE … DROP TAG {name}, then firn maintain",
    "branch": "ALTER TABLE … DROP BRANCH {name}, then firn maintain; or erasure of the key on the branch",
    "head": "firn run (lane erase); firn erase --status says what prevents it",
    "snapshot": "firn maintain, once the snapshot expires by history.expire.*; sooner with firn.erase.history = expire",
}


def of_keepers(
    keepers: Iterable[Keeper],
    why: str,
    properties: Mapping[str, str],
    expires_ms: int | None,
    at_head: str = _LIFTED["head"],
) -> list[Blocker]:
    """The ``keepers`` of a file as blockers for the reason ``why``: one for each branch, tag and head.

    All older snapshots of a branch are together one blocker, which lasts until the last of them expires. ``expires_ms``
    is the time from which requests to erase make snapshots expire, if any; ``at_head`` says what lifts a head blocker.
    """
    blockers: dict[tuple[str, str], Blocker] = {}
    for one in keepers:
        until = None
        if one.snapshot:
            until = one.snapshot.timestamp_ms + max_snapshot_age(properties)
            until = until if expires_ms is None or not one.name else min(until, expires_ms)
        name = one.name or f"{one.snapshot.snapshot_id if one.snapshot else ''} (on no branch)"
        if one.kind == "snapshot" and one.name:
            name = f"older than the head of branch {one.name}"
        before = blockers.get((one.kind, name))
        until = max(until, before.until_ms) if before and before.until_ms and until else until
        lift = at_head if one.kind == "head" else _LIFTED[one.kind].format(name=one.name)
        blockers[one.kind, name] = Blocker(one.kind, name, why, lift, until)
    return list(blockers.values())


def together(blockers: Iterable[Blocker]) -> list[Blocker]:
    """``blockers`` with those of the same kind and name merged into one, which has the reason of the first."""
    merged: dict[tuple[str, str], Blocker] = {}
    counts: dict[tuple[str, str], int] = {}
    for one in blockers:
        place = one.kind, one.name
        counts[place] = counts.get(place, 0) + 1
        known = merged.setdefault(place, one)
        if one.until_ms and known.until_ms:
            merged[place] = replace(known, until_ms=max(one.until_ms, known.until_ms))
    return [
        replace(one, why=f"{one.why}, and {counts[place] - 1} more") if counts[place] > 1 else one
        for place, one in merged.items()
    ]


_HARMLESS: Final = (".metadata.json", ".metadata.json.gz", "version-hint.text", ".crc", "_SUCCESS")
"""Ends of the names of files that hold no records: former metadata files, checksums, marker files."""
_SKETCHES: Final = ("apache-datasketches-theta-v1", "deletion-vector-v1", "firn-")
"""Types of Puffin blobs that hold no key: sketches hold hashes, deletion vectors positions, Firn's blobs digests."""


@dataclass(frozen=True)
class UnreferencedFiles:
    """The files that nothing refers to, by kind; each path is a full location."""

    parquet: list[Stored]
    manifests: list[Stored]
    documents: list[Stored]
    unknown: list[Stored]
    """Files of an unknown kind."""
    roots: tuple[str, ...]
    """The locations that were listed."""

    @classmethod
    def of(cls, table: Table, known: Iterable[str]) -> "UnreferencedFiles":
        """List the files below the location of ``table``, hidden ones included, except those at ``known`` locations."""
        location = table.location().rstrip("/")
        others = {data_folder(table), metadata_folder(table)}
        roots = (location, *sorted(one for one in others if not one.startswith(f"{location}/")))
        held = {path_of(one) for one in known}
        unreferenced = cls([], [], [], [], roots)
        for root in roots:
            files, folder = store(table, root)
            for one in files_in(files, folder):
                file = replace(one, path=f"{root}{one.path[len(folder) :]}")
                if path_of(file.path) not in held and file.bytes and not _holds_no_record(file.path):
                    unreferenced._kind(table, file).append(file)
        return unreferenced

    def _kind(self, table: Table, file: Stored) -> list[Stored]:
        if file.path.endswith(".parquet"):
            return self.parquet
        if file.path.endswith(".avro"):
            return self.manifests
        if file.path.endswith(".puffin") and _is_sketch(table, file):
            return []
        return self.documents if ".json" in file.path.rpartition("/")[2] else self.unknown


def _holds_no_record(path: str) -> bool:
    return path.endswith(_HARMLESS) or (path.endswith(MARKS) and job_of(path) is not None)


def _is_sketch(table: Table, file: Stored) -> bool:
    try:
        return all(one.type.startswith(_SKETCHES) for one in read_puffin(table, file.path, file.path))
    except FirnError:
        return False


def samples_in(table: Table, file: Stored) -> int | None:
    """Number of records that the JSON document ``file`` shows; None when it can't be read."""
    try:
        with table.io.new_input(file.path).open() as stream:
            return sum(_samples(json.loads(stream.read())))
    except (OSError, ValueError, RecursionError):
        return None


def _samples(value: Any) -> Iterator[int]:
    """Yield a number for each sample and failure in a JSON value: 1 if it shows records, 0 if it shows none.

    A sample of a verdict (`firnlake_expectations.claim.Sample`) shows a record if it has a key or a value. A failure
    shows records if its reason describes them.
    """
    if isinstance(value, dict):
        if {"offset", "key", "found", "expected"} <= value.keys():
            yield int(any(value.get(name) is not None for name in ("key", "value")))
        elif {"step", "reason"} <= value.keys():
            yield int(SHOWS_RECORDS in str(value["reason"]))
        for one in value.values():
            yield from _samples(one)
    elif isinstance(value, list):
        for one in value:
            yield from _samples(one)
    elif isinstance(value, str) and value[:1] in "{[":
        try:
            inner = json.loads(value)
        except ValueError:
            return
        yield from _samples(inner)


@dataclass
class Inventory:
    """All files that the metadata of a table refers to. A file that several manifests list is included once."""

    table: Table
    data: dict[str, DataFile] = field(default_factory=dict)
    """The live data files, by path."""
    deletes: dict[str, DataFile] = field(default_factory=dict)
    """The live delete files, by path."""
    removed: dict[str, list[DataFile]] = field(default_factory=dict)
    """The files that a manifest lists as removed, by the manifest's path."""
    metadata: set[str] = field(default_factory=set)
    """Locations of all other files that the metadata names."""
    unknown: list[Blocker] = field(default_factory=list)
    """Blockers for the manifests and manifest lists that are gone."""
    _snapshots: dict[str, list[Snapshot]] = field(default_factory=dict)
    """The snapshots that list a manifest, by the manifest's path."""
    _manifests: dict[str, list[str]] = field(default_factory=dict)
    """The paths of the manifests that list a live file, by the file's path."""

    @classmethod
    def of(cls, table: Table) -> "Inventory":
        """Read every manifest of every snapshot of ``table``."""
        inventory = cls(table)
        manifests: dict[str, ManifestFile] = {}
        for snapshot, listed in ahead(partial(_listed, table), table.metadata.snapshots):
            inventory.metadata.add(snapshot.manifest_list)
            if location := document_of(snapshot):
                inventory.metadata.add(location)
            if listed is None:
                inventory.unknown.append(_unreadable(snapshot.manifest_list, f"of snapshot {snapshot.snapshot_id}"))
                continue
            for one in listed:
                manifests[one.manifest_path] = one
                inventory._snapshots.setdefault(one.manifest_path, []).append(snapshot)
        statistics = (*table.metadata.statistics, *table.metadata.partition_statistics)
        inventory.metadata |= {one.statistics_path for one in statistics}
        inventory.metadata |= {one.metadata_file for one in table.metadata.metadata_log} | {table.metadata_location}
        inventory._read(manifests.values())
        return inventory

    def _read(self, manifests: Iterable[ManifestFile]) -> None:
        for manifest, entries in ahead(self._entries, manifests):
            path = manifest.manifest_path
            self.metadata.add(path)
            if entries is None:
                self.unknown.append(_unreadable(path, "that it lists"))
            for entry in entries or ():
                file = entry.data_file
                if entry.status == ManifestEntryStatus.DELETED:
                    self.removed.setdefault(path, []).append(file)
                    continue
                self._manifests.setdefault(file.file_path, []).append(path)
                kind = self.data if file.content == DataFileContent.DATA else self.deletes
                kind.setdefault(file.file_path, file)

    def _entries(self, manifest: ManifestFile) -> list[ManifestEntry] | None:
        try:
            return manifest.fetch_manifest_entry(self.table.io, discard_deleted=False)
        except FileNotFoundError:
            return None

    def keepers(self, path: str) -> list[Keeper]:
        """What keeps the data file, delete file or manifest at ``path`` in the table."""
        manifests = [path] if path in self._snapshots else self._manifests.get(path, [])
        holding = {one.snapshot_id for manifest in manifests for one in self._snapshots[manifest]}
        return list(keepers_of(self.table, holding))

    def blockers(self, path: str, why: str, expires_ms: int | None) -> list[Blocker]:
        """The keepers of the file or manifest at ``path``, as blockers for the reason ``why``.

        ``expires_ms`` is the time (epoch milliseconds) from which requests to erase make snapshots expire, if any.
        """
        properties, keepers = self.table.properties, self.keepers(path)
        if path in self.removed:
            return of_keepers(keepers, why, properties, expires_ms, "firn maintain, which rewrites the manifest")
        if path in self.deletes:
            lift = (
                "a rewrite that applies the deletes (lane convert, rewrite_data_files, rewrite_position_delete_files)"
            )
            return of_keepers(keepers, why, properties, expires_ms, lift)
        return of_keepers(keepers, why, properties, expires_ms)


def keepers_of(table: Table, holding: Collection[int]) -> Iterator[Keeper]:
    """Yield the keepers of those snapshots of ``table`` whose ids are in ``holding``.

    First come all tags and heads of branches on such snapshots, then each other snapshot once.
    """
    known = {one.snapshot_id: one for one in table.metadata.snapshots}
    told: set[int] = set()
    refs = sorted(table.metadata.refs.items())
    for name, ref in refs:
        if ref.snapshot_id in holding:
            told.add(ref.snapshot_id)
            is_tag = ref.snapshot_ref_type is SnapshotRefType.TAG
            yield Keeper("tag" if is_tag else "head" if _is_firns(name) else "branch", name, None)
    for name, ref in refs:
        at = known.get(ref.snapshot_id) if ref.snapshot_ref_type is SnapshotRefType.BRANCH else None
        while at is not None:
            if at.snapshot_id in holding and at.snapshot_id not in told:
                told.add(at.snapshot_id)
                yield Keeper("snapshot" if _is_firns(name) else "branch", name, at)
            at = known.get(at.parent_snapshot_id or 0)
    for snapshot_id in sorted(set(holding) - told):
        yield Keeper("snapshot", "", known[snapshot_id])


def _listed(table: Table, snapshot: Snapshot) -> list[ManifestFile] | None:
    """The manifests of ``snapshot``; None if its manifest list is gone."""
    try:
        return snapshot.manifests(table.io)
    except FileNotFoundError:
        return None


def _is_firns(branch: str) -> bool:
    """True for main and Firn's branches, except the branch of mended files: no lane erases keys there."""
    return branch in (MAIN_BRANCH, *FIRN_BRANCHES) and branch != MENDED


def _unreadable(location: str, what: str) -> Blocker:
    return Blocker(
        "metadata",
        location,
        f"it is gone, so the files {what} are unknown",
        "firn maintain, once all snapshots that need it have expired",
    )
