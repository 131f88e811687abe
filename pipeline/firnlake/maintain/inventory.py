"""Everything that a table's metadata refers to, on every snapshot, branch and tag, and what refers to it (C30).

Also the files below its location that its metadata does not name, and what keeps an erasure from its certificate.
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
from firnlake.iceberg.branches import FIRN_BRANCHES
from firnlake.iceberg.files import Stored, data_folder, files_in, path_of, store
from firnlake.iceberg.manifests import ahead
from firnlake.iceberg.side_branches import read_puffin
from firnlake.iceberg.snapshots import max_snapshot_age
from firnlake.job.documents import documents_folder
from firnlake.job.failures import SHOWS_RECORDS
from firnlake.table.published_plans import document_of


@dataclass(frozen=True)
class Blocker:
    """An obstacle: its kind and name, why it is one, and what lifts it. Times are epoch milliseconds."""

    kind: str
    name: str
    why: str
    lifted_by: str
    until_ms: int | None = None
    """When it goes by itself; None where the clock alone does not decide."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.why}; lifted by: {self.lifted_by}"


@dataclass(frozen=True)
class Keeper:
    """What keeps a file in the table: ``kind`` is tag, branch, head (of main, or of a branch of Firn's) or snapshot.

    ``name`` is that of the branch or tag; empty for a snapshot on none.
    """

    kind: str
    name: str
    snapshot: Snapshot | None
    """The snapshot that has the file, where it is an older one."""


_LIFTED: Final = {
    "tag": "ALTER TABLE … DROP TAG {name}, then firn maintain",
    "branch": "ALTER TABLE … DROP BRANCH {name}, then firn maintain; or erase the key there as well",
    "head": "firn run (lane erase); firn erase --status says what is in its way",
    "snapshot": "firn maintain, once history.expire.* lets it go; at once with firn.erase.history = expire",
}


def of_keepers(
    keepers: Iterable[Keeper],
    why: str,
    properties: Mapping[str, str],
    expires_ms: int | None,
    at_head: str = _LIFTED["head"],
) -> list[Blocker]:
    """One blocker per branch or tag; snapshots of one branch are one, until the last of them has expired.

    ``expires_ms`` is when they expire for the requests' sake, if they do; ``at_head`` lifts what is in a head.
    """
    blockers: dict[tuple[str, str], Blocker] = {}
    for one in keepers:
        until = None
        if one.snapshot:
            until = one.snapshot.timestamp_ms + max_snapshot_age(properties)
            until = until if expires_ms is None or not one.name else min(until, expires_ms)
        name = one.name or f"{one.snapshot.snapshot_id if one.snapshot else ''} (on no branch)"
        if one.kind == "snapshot" and one.name:
            name = f"older ones of branch {one.name}"
        before = blockers.get((one.kind, name))
        until = max(until, before.until_ms) if before and before.until_ms and until else until
        lift = at_head if one.kind == "head" else _LIFTED[one.kind].format(name=one.name)
        blockers[one.kind, name] = Blocker(one.kind, name, why, lift, until)
    return list(blockers.values())


def together(blockers: Iterable[Blocker]) -> list[Blocker]:
    """``blockers`` with those of the same kind and name put together; the reason is the first one's."""
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
"""Ends of the names of files without records: former metadata files, checksums, marks."""
_SKETCHES: Final = ("apache-datasketches-theta-v1", "deletion-vector-v1", "firn-")
"""Types of blobs without a key: sketches keep hashes, vectors positions, Firn's own digests."""


@dataclass(frozen=True)
class UnreferencedFiles:
    """The files that nothing refers to, by what they may hold; their paths are locations."""

    parquet: list[Stored]
    manifests: list[Stored]
    documents: list[Stored]
    unknown: list[Stored]
    """Files of no known kind."""
    roots: tuple[str, ...]
    """The locations that were listed."""

    @classmethod
    def of(cls, table: Table, known: Iterable[str]) -> "UnreferencedFiles":
        """List the location of ``table``, hidden files included, without the ``known`` locations."""
        location = table.location().rstrip("/")
        others = {data_folder(table), documents_folder(table)}
        roots = (location, *sorted(one for one in others if not one.startswith(f"{location}/")))
        held = {path_of(one) for one in known}
        unreferenced = cls([], [], [], [], roots)
        for root in roots:
            files, folder = store(table, root)
            for one in files_in(files, folder):
                file = replace(one, path=f"{root}{one.path[len(folder) :]}")
                if path_of(file.path) not in held and file.bytes and not file.path.endswith(_HARMLESS):
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
    """Yield 1 for each sample of a verdict (`firnlake_expectations.claim.Sample`) that shows a key or a value, and for
    each failure that describes records."""
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
    """Files by path. A file of several manifests is listed once."""

    table: Table
    data: dict[str, DataFile] = field(default_factory=dict)
    deletes: dict[str, DataFile] = field(default_factory=dict)
    removed: dict[str, list[DataFile]] = field(default_factory=dict)
    """Entries of files that a manifest tells to be removed, by the manifest's path."""
    metadata: set[str] = field(default_factory=set)
    """Locations of all other files that the metadata names."""
    unknown: list[Blocker] = field(default_factory=list)
    """Manifests and lists that can't be read."""
    _snapshots: dict[str, list[Snapshot]] = field(default_factory=dict)
    """The snapshots that list a manifest."""
    _manifests: dict[str, list[str]] = field(default_factory=dict)
    """The manifests that list a live file."""

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
                inventory.unknown.append(_unreadable(snapshot.manifest_list, f"snapshot {snapshot.snapshot_id} lists"))
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
                self.unknown.append(_unreadable(path, "it lists"))
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
        """The blockers that these are; ``expires_ms`` is when older snapshots expire for the requests' sake."""
        properties, keepers = self.table.properties, self.keepers(path)
        if path in self.removed:
            return of_keepers(keepers, why, properties, expires_ms, "firn maintain, which writes the manifest anew")
        if path in self.deletes:
            lift = (
                "a rewrite that applies the deletes (lane convert, rewrite_data_files, rewrite_position_delete_files)"
            )
            return of_keepers(keepers, why, properties, expires_ms, lift)
        return of_keepers(keepers, why, properties, expires_ms)


def keepers_of(table: Table, holding: Collection[int]) -> Iterator[Keeper]:
    """Yield what keeps the snapshots ``holding`` of ``table``, each snapshot once, tags and heads of branches first."""
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
    """The manifests of ``snapshot``; None where its list is gone."""
    try:
        return snapshot.manifests(table.io)
    except FileNotFoundError:
        return None


def _is_firns(branch: str) -> bool:
    return branch in (MAIN_BRANCH, *FIRN_BRANCHES)


def _unreadable(location: str, what: str) -> Blocker:
    return Blocker(
        "metadata",
        location,
        f"it is gone, so the files that {what} can't be told",
        "the snapshots that need it expire",
    )
