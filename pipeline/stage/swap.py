"""One commit that takes some data files out of a table and puts others in, prepared before the race for it.

PyIceberg's ``overwrite()`` reads every manifest twice between the snapshot it builds on and its commit. While a
streaming writer appends several times a second it never wins: with 50 manifests a try took 0.3 s here, an append 0.1 s.
So what does not depend on the snapshot is written once (the new files' manifest, and each manifest with inputs again
without them), and a try only writes the manifest list. Built from PyIceberg's public manifest writers and
``Catalog.commit_table``; the layout follows the Iceberg spec, "Manifests" and "Snapshots".
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
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

from pipeline.errors import ConflictError
from pipeline.lake import Lake
from pipeline.segments.manifests import Manifests

AVRO_CODEC: Final = "deflate"


class Swap:
    """``removed`` paths out, ``added`` files in. One object per commit to be won; try until ``commit`` returns.

    The snapshot id is the same in every try, so a try that was applied though the catalog did not say so is found.
    """

    def __init__(
        self, target: Table, removed: Iterable[str], added: Sequence[DataFile], summary: Mapping[str, str]
    ) -> None:
        self.snapshot_id = target.metadata.new_snapshot_id()
        self._removed = frozenset(removed)
        self._added = added
        self._summary = summary
        self._own_manifests: list[ManifestFile] = []
        self._without: dict[str, ManifestFile] = {}
        self._used: set[str] = set()

    def commit(self, lake: Lake, target: Table, manifests: Manifests, tag: str | None = None) -> None:
        """Commit on ``target``'s current snapshot, which the caller has checked; ``tag`` the new snapshot as well.

        Raises CommitFailedException when the table has moved on: nothing was changed, load it and try again.
        ConflictError when a file to be removed is not there.
        """
        metadata = target.metadata
        parent = target.current_snapshot()
        files = [] if parent is None else parent.manifests(target.io)
        kept, taken = self._keep(target, files, manifests)
        own = self._own(target)
        path = self._place(target, f"snap-{self.snapshot_id}-0-{uuid.uuid4()}.avro")
        with write_manifest_list(
            format_version=metadata.format_version,
            output_file=target.io.new_output(path),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=metadata.next_sequence_number(),
            avro_compression=AVRO_CODEC,
        ) as writer:
            writer.add_manifests([*own, *kept])
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": self.snapshot_id,
                "parent-snapshot-id": parent.snapshot_id if parent else None,
                "sequence-number": metadata.next_sequence_number(),
                "manifest-list": path,
                "summary": self._summarise(target, parent, taken),
                "schema-id": metadata.current_schema_id,
            }
        )
        # Before the call: it may be applied although the catalog does not say so.
        self._used = {manifest.manifest_path for manifest in kept}
        try:
            lake.catalog.commit_table(target, _requirements(target, parent), _updates(snapshot, tag))
        except CommitFailedException:
            target.io.delete(path)
            raise

    def abandon(self, target: Table) -> None:
        """Delete the manifests that were prepared; only when it is certain that no try was applied."""
        _delete(target, [*self._without.values(), *self._own_manifests])

    def tidy(self, target: Table) -> None:
        """After the commit: delete what was prepared for manifests that others have replaced in the meantime."""
        _delete(target, [unused for unused in self._without.values() if unused.manifest_path not in self._used])

    def _keep(
        self, target: Table, files: Sequence[ManifestFile], manifests: Manifests
    ) -> tuple[list[ManifestFile], list[DataFile]]:
        """The manifests of the new snapshot but for its own, and the data files that go."""
        kept, taken = [], []
        for manifest in files:
            if manifest.content == ManifestContent.DATA:
                entries = manifests.of(manifest)
                going = [entry.data_file for entry in entries if entry.data_file.file_path in self._removed]
                taken += going
                if going:
                    manifest = self._rewritten(target, manifest, entries)
            if (
                manifest.added_snapshot_id == self.snapshot_id
                or manifest.has_added_files()
                or manifest.has_existing_files()
            ):
                kept.append(manifest)
        missing = self._removed - {file.file_path for file in taken}
        if missing:
            raise ConflictError(f"{len(missing)} files to be removed are not live, first {min(missing)}")
        return kept, taken

    def _rewritten(self, target: Table, manifest: ManifestFile, entries: Sequence[ManifestEntry]) -> ManifestFile:
        """``manifest`` with the removed files marked deleted and the others existing; written once."""
        path = manifest.manifest_path
        if path not in self._without:
            writer = self._writer(target, manifest.partition_spec_id)
            with writer:
                for entry in entries:
                    if entry.data_file.file_path in self._removed:
                        writer.delete(entry)
                    else:
                        writer.existing(entry)
            self._without[path] = writer.to_manifest_file()
        return self._without[path]

    def _own(self, target: Table) -> list[ManifestFile]:
        """The manifests of the added files, one per partition spec, files in their order; written once.

        They inherit the snapshot's sequence number.
        """
        if not self._own_manifests:
            for spec_id in dict.fromkeys(file.spec_id for file in self._added):
                writer = self._writer(target, spec_id)
                with writer:
                    for file in self._added:
                        if file.spec_id == spec_id:
                            writer.add(
                                ManifestEntry.from_args(
                                    status=ManifestEntryStatus.ADDED, snapshot_id=self.snapshot_id, data_file=file
                                )
                            )
                self._own_manifests.append(writer.to_manifest_file())
        return self._own_manifests

    def _writer(self, target: Table, spec_id: int) -> ManifestWriter:
        spec = target.specs()[spec_id]
        return write_manifest(
            format_version=target.metadata.format_version,
            spec=spec,
            schema=_schema_of(target, spec),
            output_file=target.io.new_output(self._place(target, f"{uuid.uuid4()}-m0.avro")),
            snapshot_id=self.snapshot_id,
            avro_compression=AVRO_CODEC,
        )

    def _place(self, target: Table, name: str) -> str:
        return target.location_provider().new_metadata_location(name)

    def _summarise(self, target: Table, parent: Snapshot | None, taken: Sequence[DataFile]) -> Summary:
        """Iceberg's own totals, and what the caller wants said."""
        totals = SnapshotSummaryCollector()
        for file in self._added:
            totals.add_file(file, target.schema(), target.specs()[file.spec_id])
        for file in taken:
            totals.remove_file(file, target.schema(), target.specs()[file.spec_id])
        # As Iceberg's own OverwriteFiles names a commit that only adds or only removes.
        operation = Operation.APPEND if not taken else Operation.OVERWRITE if self._added else Operation.DELETE
        return update_snapshot_summaries(
            Summary(operation=operation, **totals.build(), **self._summary),
            parent.summary if parent else None,
        )


def _schema_of(target: Table, spec: PartitionSpec) -> Schema:
    """The newest schema that has the columns of ``spec``: one may have been dropped since, but values need a type."""
    sources = {field.source_id for field in spec.fields}
    schemas = sorted(target.schemas().values(), key=lambda schema: schema.schema_id, reverse=True)
    fitting = (schema for schema in (target.schema(), *schemas) if sources <= schema.field_ids)
    return next(fitting, target.schema())


def _delete(target: Table, manifests: Iterable[ManifestFile]) -> None:
    """Delete manifests that nothing refers to; one that can't be deleted is waste, not a failure."""
    for manifest in manifests:
        with suppress(OSError):
            target.io.delete(manifest.manifest_path)


def _requirements(target: Table, parent: Snapshot | None) -> tuple[TableRequirement, ...]:
    """What must still hold when the catalog applies the commit: the same table, and the snapshot that was checked."""
    return (
        AssertTableUUID(uuid=target.metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": parent.snapshot_id if parent else None}),
    )


def _updates(snapshot: Snapshot, tag: str | None) -> tuple[TableUpdate, ...]:
    refs = [(MAIN_BRANCH, SnapshotRefType.BRANCH), *([(tag, SnapshotRefType.TAG)] if tag else [])]
    return (
        AddSnapshotUpdate(snapshot=snapshot),
        *(
            SetSnapshotRefUpdate.model_validate({"ref-name": name, "type": kind, "snapshot-id": snapshot.snapshot_id})
            for name, kind in refs
        ),
    )
