"""Everything that a table's metadata refers to, on every snapshot, branch and tag, and what refers to it (C30)."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from pipeline.history.published_plans import document_of
from pipeline.lake.branches import FIRN_BRANCHES
from pipeline.lake.manifests import ahead
from pipeline.prove.blockers import Blocker, Keeper, of_keepers


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
            return of_keepers(keepers, why, properties, expires_ms, "firn care, which writes the manifest anew")
        if path in self.deletes:
            lift = (
                "a rewrite that applies the deletes (lane lighten, rewrite_data_files, rewrite_position_delete_files)"
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
