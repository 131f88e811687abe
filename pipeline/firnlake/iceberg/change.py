"""The changes of a table's branches, and the commit that makes them: its snapshots, and what to ask of the catalog.

PyIceberg's ``overwrite()`` reads every manifest twice between loading its base snapshot and committing. It never wins
against a streaming writer that appends several times a second: with 50 manifests, one try of ``overwrite()`` took
0.3 s, but an append took only 0.1 s. Manifests do not depend on the current snapshot. Therefore this module writes each
manifest only once, before the compare-and-swap: the manifests of new files, and rewritten ones without removed files.
Each try writes only manifest lists. The code uses PyIceberg's public manifest writers; the layout follows the Iceberg
spec, "Manifests" and "Snapshots".
"""

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DEFAULT_READ_VERSION,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from firnlake.errors import ConflictError
from firnlake.iceberg.branches import (
    BRANCH,
    FIRN_BRANCHES,
    FOR_EVER_MS,
    MEMORY,
    REMOVED_TOMBSTONES,
    SNAPSHOT_ID,
    ancestors,
    head_of,
    memory_named,
    repeated,
)
from firnlake.iceberg.deletes import Deletes, Placed
from firnlake.iceberg.files import metadata_folder
from firnlake.iceberg.manifests import AVRO_CODEC, Manifests, keeps_every_field, manifest_writer


@dataclass(frozen=True)
class BranchChange:
    """A change of one branch: removes the data files at the paths ``removed``, and adds the data files ``added``. A
    change without files still makes a snapshot, in which readers see the same records as before.

    ``sequence_numbers`` are data sequence numbers by path, for those added files that do not inherit the number of the
    commit. Such a file has the number of the snapshot that its records were read from (as Iceberg's own rewrites do
    with ``use-starting-sequence-number``).

    ``deletes`` are row-level delete files to add, ``removed_deletes`` are paths of delete files to remove. ``covered``
    maps the path of a data file to a data sequence number: if an equality delete with this number or a lower one hides
    a record of the data file, position deletes hide the record too. The commit removes such an equality delete file
    unless another data file needs it.

    After a change with ``same_records``, readers see the same records as before (Iceberg's operation ``replace``).

    A change of manifests alone replaces those at the paths ``replaced`` by the manifests ``written`` for its snapshot,
    which list the same live files.
    """

    removed: Collection[str] = ()
    added: Sequence[DataFile] = ()
    summary: Mapping[str, str] = field(default_factory=dict)
    sequence_numbers: Mapping[str, int] = field(default_factory=dict)
    deletes: Sequence[DataFile] = ()
    removed_deletes: Collection[str] = ()
    covered: Mapping[str, int] = field(default_factory=dict)
    same_records: bool = False
    replaced: Collection[str] = ()
    written: Sequence[ManifestFile] = ()


@dataclass(frozen=True)
class CommitRequest:
    """What to ask of the catalog: requirements and updates, both made on one load of a table."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    snapshot_ids: tuple[int, ...] = ()
    """Ids of the snapshots that it adds on main and side branches, main's first; empty if it adds none."""
    sequence_number: int = 0
    """The lowest sequence number of these snapshots."""


SnapshotIds: TypeAlias = dict[tuple[str, int], int]
"""The ids of the snapshots of a commit, by branch and number (from 0), which stay the same in all tries."""


class Commit:
    """A commit that adds one snapshot to main and to each branch in ``changes``, or changes none of these branches.

    Main always moves, because the branches of a table share its sequence numbers. Otherwise another writer's append to
    main would pass the check that main has not moved, and then fail because its sequence number is taken; no client
    retries after that error.

    Each snapshot on main, or on another branch that is not Firn's, repeats the progress of sinks. Each snapshot
    on main also names the memory that belongs to its history (``iceberg.branches``).
    """

    def __init__(
        self,
        target: Table,
        changes: Iterable[tuple[str, BranchChange]] = (),
        ids: SnapshotIds | None = None,
        manifests: Manifests | None = None,
    ) -> None:
        """``changes`` are pairs of a branch and its change; a further change of a branch comes on top of the others.

        The ``ids`` that are missing are drawn, and added.
        """
        ids, numbers = {} if ids is None else ids, Counter[str]()
        self._uuid = target.metadata.table_uuid
        self._manifests = manifests or Manifests(target.io)
        self._snapshots: list[_BranchSnapshot] = []
        # The sort is stable: main comes first, and the changes of a branch stay in their order.
        listed = sorted(changes, key=lambda one: one[0] != MAIN_BRANCH)
        if not any(branch == MAIN_BRANCH for branch, _ in listed):
            listed.insert(0, (MAIN_BRANCH, BranchChange()))
        for branch, change in listed:
            snapshot_id = ids.setdefault((branch, numbers[branch]), target.metadata.new_snapshot_id())
            self._snapshots.append(_BranchSnapshot(branch, snapshot_id, change))
            numbers[branch] += 1

    def request(self, target: Table) -> CommitRequest:
        """Write the manifest lists of the snapshots on top of those of ``target``; return what to ask of the catalog.

        Raises ConflictError when a file to be removed is not live, or when ``target`` is another table of this name;
        RefusedError as ``head_of`` does.
        """
        if target.metadata.table_uuid != self._uuid:
            raise ConflictError(f"table {'.'.join(target.name())} was dropped, and another table now has its name")
        requirements: list[TableRequirement] = [AssertTableUUID(uuid=self._uuid)]
        updates: list[TableUpdate] = []
        following = target.metadata.next_sequence_number()
        heads: dict[str, Snapshot | None] = {}
        for number, one in enumerate(self._snapshots, start=following):
            name, ref = one.branch, target.metadata.refs.get(one.branch)
            if name not in heads:
                heads[name] = head_of(target, name) if name in FIRN_BRANCHES else next(ancestors(target, name), None)
                # If the table has no snapshots yet, PyIceberg's catalogs accept a requirement only for main.
                if name == MAIN_BRANCH or target.metadata.snapshots:
                    # The next snapshot of a branch of memory may have another parent than the branch's newest snapshot.
                    newest = {"ref": name, "snapshot-id": ref.snapshot_id if ref else None}
                    requirements.append(AssertRefSnapshotId.model_validate(newest))
            heads[name] = snapshot = one.snapshot(
                target, heads[name], self._manifests, number, self._repeated(target, name)
            )
            moved = {"type": SnapshotRefType.BRANCH} if ref is None else ref.model_dump(by_alias=True)
            if name in FIRN_BRANCHES:
                moved |= {"max-ref-age-ms": FOR_EVER_MS, "min-snapshots-to-keep": 1}
            moved |= {"ref-name": name, "snapshot-id": snapshot.snapshot_id}
            updates += (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(moved))
        ids = tuple(one.snapshot_id for one in self._snapshots)
        return CommitRequest(tuple(requirements), tuple(updates), ids, following)

    def _repeated(self, target: Table, branch: str) -> Mapping[str, str]:
        """What the summary of a snapshot on ``branch`` repeats of the snapshots before it, and the name of memory."""
        if branch in FIRN_BRANCHES:
            return {}
        properties = repeated(ancestors(target, branch))
        if branch == MAIN_BRANCH:
            new = [one.snapshot_id for one in self._snapshots if one.branch == REMOVED_TOMBSTONES]
            named = new[-1] if new else memory_named(target)
            if named is not None:
                properties[MEMORY] = str(named)
        return properties


class _BranchSnapshot:
    """The part of a commit that makes a change on one branch. The id of the new snapshot is the same in all tries.

    It also removes row-level delete files that apply to none of the remaining data files.
    """

    def __init__(self, branch: str, snapshot_id: int, change: BranchChange) -> None:
        self.branch = branch
        self.snapshot_id = snapshot_id
        self.sequence_number = 0
        self._change = change
        self._removed = frozenset(change.removed)
        self._own_manifests: list[ManifestFile] = []
        self._without: dict[tuple[str, frozenset[str]], ManifestFile] = {}
        """Rewritten manifests, by the path of the original manifest and the paths of the files removed from it."""

    def snapshot(
        self,
        target: Table,
        parent: Snapshot | None,
        manifests: Manifests,
        sequence_number: int,
        repeated: Mapping[str, str],
    ) -> Snapshot:
        """Write the manifest list of the branch's next snapshot, on top of ``parent``, and return that snapshot.

        Its summary names the snapshot itself (``iceberg.branches``), and has the ``repeated`` properties of earlier
        snapshots, except those that the change itself sets. Raises ConflictError when the change can't be made to
        ``parent``.
        """
        self.sequence_number = sequence_number
        kept, taken = self._keep(target, [] if parent is None else parent.manifests(target.io), manifests)
        own = [*self._change.written, *self._own(target)]
        summary = self._summarise(target, parent, taken, {**repeated, **self._change.summary})
        summary[SNAPSHOT_ID] = str(self.snapshot_id)
        if self.branch in FIRN_BRANCHES:
            summary[BRANCH] = self.branch
        path = f"{metadata_folder(target)}/snap-{self.snapshot_id}-0-{uuid.uuid4()}.avro"
        with write_manifest_list(
            format_version=target.metadata.format_version,
            output_file=target.io.new_output(path),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=sequence_number,
            avro_compression=AVRO_CODEC,
        ) as writer:
            writer.add_manifests([*own, *kept])
        return Snapshot.model_validate(
            {
                "snapshot-id": self.snapshot_id,
                "parent-snapshot-id": parent.snapshot_id if parent else None,
                "sequence-number": sequence_number,
                "manifest-list": path,
                "summary": summary,
                "schema-id": target.metadata.current_schema_id,
            }
        )

    def _keep(
        self, target: Table, files: Sequence[ManifestFile], manifests: Manifests
    ) -> tuple[list[ManifestFile], list[DataFile]]:
        """The parent's manifests that the new snapshot lists, rewritten if needed, and the removed files."""
        kept, taken = [], []
        removed_deletes = frozenset(self._change.removed_deletes)
        going_deletes = removed_deletes | self._needless(target, files, manifests)
        missing = {*self._removed, *removed_deletes}
        replaced = frozenset(self._change.replaced)
        if gone := replaced - {manifest.manifest_path for manifest in files}:
            raise ConflictError(f"manifests to be replaced but no longer listed: {len(gone)}, first {min(gone)}")
        for manifest in files:
            if manifest.manifest_path in replaced:
                continue
            leaving = self._removed if manifest.content == ManifestContent.DATA else going_deletes
            if leaving:
                entries = manifests.of(manifest)
                going = [entry.data_file for entry in entries if entry.data_file.file_path in leaving]
                missing.difference_update(file.file_path for file in going)
                anew = self._rewritten(target, manifest, entries, going) if going else None
                if anew:
                    manifest = anew
                    taken += going
            if manifest.added_snapshot_id == self.snapshot_id or is_live(manifest):
                kept.append(manifest)
        if missing:
            raise ConflictError(f"files to be removed but not live: {len(missing)}, first {min(missing)}")
        return kept, taken

    def _needless(self, target: Table, files: Sequence[ManifestFile], manifests: Manifests) -> frozenset[str]:
        """Paths of the delete files in the manifests ``files`` that no data file needs after this commit."""
        listed = [manifest for manifest in files if manifest.content == ManifestContent.DELETES]
        if not listed or not (self._removed or self._change.covered):
            return frozenset()
        deletes = Deletes(manifests.live(listed), target.specs())
        data = manifests.live(manifest for manifest in files if manifest.content == ManifestContent.DATA)
        before = {Placed.of(one.data_file, one.sequence_number or 0): one.data_file.record_count for one in data}
        # A file without records needs no delete file.
        left = [one for one, records in before.items() if records and one.path not in self._removed]
        numbers = self._change.sequence_numbers
        added = (Placed.of(file, numbers.get(file.file_path, self.sequence_number)) for file in self._change.added)
        return deletes.needless(before, left, added, self._change.covered)

    def _rewritten(
        self, target: Table, manifest: ManifestFile, entries: Sequence[ManifestEntry], going: Sequence[DataFile]
    ) -> ManifestFile | None:
        """``manifest`` with the files ``going`` marked as deleted and all others as existing; written only once. None
        if a delete manifest can't be rewritten; its delete files then stay in the table, but apply to no data file."""
        key = (manifest.manifest_path, frozenset(file.file_path for file in going))
        if key not in self._without:
            if manifest.content == ManifestContent.DELETES and not keeps_every_field(target, manifest):
                return None
            with manifest_writer(target, manifest.partition_spec_id, self.snapshot_id, manifest.content) as writer:
                for entry in entries:
                    if entry.data_file.file_path in key[1]:
                        writer.delete(_without_bounds(entry))
                    else:
                        writer.existing(entry)
            self._without[key] = writer.to_manifest_file()
        return self._without[key]

    def _own(self, target: Table) -> list[ManifestFile]:
        """The manifests of the added files, one per content and partition spec, in the order of the files; written only
        once. A file without an entry in ``sequence_numbers`` inherits the snapshot's sequence number."""
        if not self._own_manifests:
            for content, files in (
                (ManifestContent.DATA, self._change.added),
                (ManifestContent.DELETES, self._change.deletes),
            ):
                for spec_id in dict.fromkeys(file.spec_id for file in files):
                    with manifest_writer(target, spec_id, self.snapshot_id, content) as writer:
                        for file in files:
                            if file.spec_id == spec_id:
                                number = self._change.sequence_numbers.get(file.file_path)
                                writer.add(ManifestEntry.from_args(sequence_number=number, data_file=file))
                    self._own_manifests.append(writer.to_manifest_file())
        return self._own_manifests

    def _summarise(
        self, target: Table, parent: Snapshot | None, taken: Sequence[DataFile], properties: Mapping[str, str]
    ) -> Summary:
        """Iceberg's totals, counted on from the totals of ``parent``, and these ``properties``."""
        totals = SnapshotSummaryCollector()
        for file in (*self._change.added, *self._change.deletes):
            totals.add_file(file, target.schema(), target.specs()[file.spec_id])
        for file in taken:
            totals.remove_file(file, target.schema(), target.specs()[file.spec_id])
        # As in Iceberg's own OverwriteFiles and RowDelta: APPEND if nothing is removed or hidden. Otherwise OVERWRITE
        # if data files are added, and DELETE if none is added.
        removes = taken or self._change.deletes
        without = Operation.OVERWRITE if self._change.added else Operation.DELETE
        operation = without if removes else Operation.APPEND
        told = update_snapshot_summaries(
            Summary(operation=operation, **totals.build(), **properties),
            parent.summary if parent else None,
        )
        # PyIceberg counts totals for no snapshot that replaces.
        return Summary(Operation.REPLACE, **told.additional_properties) if self._change.same_records else told


def is_live(manifest: ManifestFile) -> bool:
    """True when ``manifest`` lists a live file, so that the next snapshot must list the manifest as well."""
    return manifest.has_added_files() or manifest.has_existing_files()


def _without_bounds(entry: ManifestEntry) -> ManifestEntry:
    """``entry`` without bounds: nobody needs the bounds of a removed file, and a bound may contain a whole key."""
    fields = DATA_FILE_TYPE[DEFAULT_READ_VERSION].fields
    kept = [
        None if field.name in ("lower_bounds", "upper_bounds") else entry.data_file[place]
        for place, field in enumerate(fields)
    ]
    return ManifestEntry.from_args(
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=DataFile(*kept),
    )
