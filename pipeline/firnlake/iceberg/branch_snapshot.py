"""The next snapshot of one branch, as part of a commit: the code that all kinds of changes share.

`Replacement` is the change that lists the same files in other manifests (Iceberg's operation ``replace``).
"""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pyiceberg.manifest import ManifestFile, write_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from firnlake.errors import ConflictError
from firnlake.iceberg.authorship import SNAPSHOT_ID
from firnlake.iceberg.branches import BRANCH, FIRN_BRANCHES, FOR_EVER_MS, ancestors, head_of
from firnlake.iceberg.files import metadata_folder
from firnlake.iceberg.manifests import Manifests

AVRO_CODEC: Final = "deflate"


@dataclass(frozen=True)
class SnapshotContents:
    """The manifests that a snapshot lists (its ``own`` and those ``kept`` from its parent), and its summary."""

    own: Sequence[ManifestFile]
    kept: Sequence[ManifestFile]
    summary: Summary


class BranchChange(Protocol):
    """A change of one branch, which a commit carries out."""

    def on(self, branch: str, snapshot_id: int) -> "BranchSnapshot":
        """The part of a commit that makes this change on ``branch``, as snapshot ``snapshot_id``."""
        ...


class BranchSnapshot(ABC):
    """The part of a commit that changes one branch. The id of the new snapshot is the same in all tries."""

    def __init__(self, branch: str, snapshot_id: int) -> None:
        self.snapshot_id = snapshot_id
        self.sequence_number = 0
        self.branch = branch

    @abstractmethod
    def contents(self, target: Table, parent: Snapshot | None, manifests: Manifests) -> SnapshotContents:
        """Contents of the branch's next snapshot on top of ``parent``.

        Raises ConflictError when the change can't be made to ``parent``.
        """

    def snapshot(
        self,
        target: Table,
        parent: Snapshot | None,
        manifests: Manifests,
        sequence_number: int,
        repeated: Mapping[str, str],
    ) -> Snapshot:
        """Write the manifest list of the branch's next snapshot, on top of ``parent``, and return that snapshot.

        Its summary names the snapshot itself (``iceberg.authorship``), and has the ``repeated`` properties of earlier
        snapshots, except those that the change itself sets.
        """
        self.sequence_number = sequence_number
        contents = self.contents(target, parent, manifests)
        for name, value in repeated.items():
            if name not in contents.summary.additional_properties:
                contents.summary[name] = value
        contents.summary[SNAPSHOT_ID] = str(self.snapshot_id)
        if self.branch in FIRN_BRANCHES:
            contents.summary[BRANCH] = self.branch
        path = place(target, f"snap-{self.snapshot_id}-0-{uuid.uuid4()}.avro")
        with write_manifest_list(
            format_version=target.metadata.format_version,
            output_file=target.io.new_output(path),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=sequence_number,
            avro_compression=AVRO_CODEC,
        ) as writer:
            writer.add_manifests([*contents.own, *contents.kept])
        return Snapshot.model_validate(
            {
                "snapshot-id": self.snapshot_id,
                "parent-snapshot-id": parent.snapshot_id if parent else None,
                "sequence-number": sequence_number,
                "manifest-list": path,
                "summary": contents.summary,
                "schema-id": target.metadata.current_schema_id,
            }
        )

    def requirements(self, target: Table) -> list[TableRequirement]:
        """The compare-and-swap condition: the branch still points at the snapshot that was checked."""
        if self.branch != MAIN_BRANCH and not target.metadata.snapshots:
            # If the table has no snapshots yet, PyIceberg's catalogs accept a requirement only for main.
            return []
        # The next snapshot of a branch of memory may have another parent than the branch's newest snapshot.
        ref = target.metadata.refs.get(self.branch)
        told = {"ref": self.branch, "snapshot-id": ref.snapshot_id if ref else None}
        return [AssertRefSnapshotId.model_validate(told)]

    def updates(self, target: Table, snapshot: Snapshot) -> tuple[TableUpdate, ...]:
        """The updates that add ``snapshot`` and move the branch to it; a branch that exists keeps its limits. By its
        limits, a branch of Firn's never expires."""
        before = target.metadata.refs.get(self.branch)
        ref = {"type": SnapshotRefType.BRANCH} if before is None else before.model_dump(by_alias=True)
        if self.branch in FIRN_BRANCHES:
            ref |= {"max-ref-age-ms": FOR_EVER_MS, "min-snapshots-to-keep": 1}
        ref |= {"ref-name": self.branch, "snapshot-id": snapshot.snapshot_id}
        return AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(ref)

    def head(self, target: Table) -> Snapshot | None:
        """The snapshot on which the branch's next one is built; raises RefusedError as ``head_of`` does."""
        if self.branch in FIRN_BRANCHES:
            return head_of(target, self.branch)
        return next(ancestors(target, self.branch), None)


def is_live(manifest: ManifestFile) -> bool:
    """True when ``manifest`` lists a live file, so that the next snapshot must list the manifest as well."""
    return manifest.has_added_files() or manifest.has_existing_files()


def place(target: Table, name: str) -> str:
    """Location of a new metadata file ``name`` of ``target``, in Firn's own folder."""
    return f"{metadata_folder(target)}/{name}"


_TOTALS: Final = "total-"
"""Prefix of the summary properties that count the contents of the table."""


@dataclass(frozen=True)
class Replacement:
    """Replaces the manifests at the paths ``replaced`` by the manifests ``written`` for the snapshot of this change.

    The old and the new manifests list the same live files; ``entries`` is the number of these files.
    """

    replaced: Collection[str]
    written: Sequence[ManifestFile]
    entries: int

    def on(self, branch: str, snapshot_id: int) -> BranchSnapshot:
        """The part of a commit that makes this change on ``branch``, as snapshot ``snapshot_id``."""
        return _Manifests(branch, snapshot_id, self)


class _Manifests(BranchSnapshot):
    """The part of a commit that replaces some manifests of one branch. All others stay, if they list a live file."""

    def __init__(self, branch: str, snapshot_id: int, change: Replacement) -> None:
        super().__init__(branch, snapshot_id)
        self._change = change
        self._replaced = frozenset(change.replaced)

    def contents(self, target: Table, parent: Snapshot | None, manifests: Manifests) -> SnapshotContents:  # noqa: ARG002
        listed = [] if parent is None else parent.manifests(target.io)
        missing = self._replaced - {manifest.manifest_path for manifest in listed}
        if missing:
            raise ConflictError(f"manifests to be replaced but no longer listed: {len(missing)}, first {min(missing)}")
        kept = [one for one in listed if one.manifest_path not in self._replaced and is_live(one)]
        return SnapshotContents(self._change.written, kept, self._summarise(parent, len(kept)))

    def _summarise(self, parent: Snapshot | None, kept: int) -> Summary:
        """The totals of ``parent``, and the properties that Iceberg's own RewriteManifests sets."""
        before = parent.summary.additional_properties if parent and parent.summary else {}
        figures = {
            "manifests-created": len(self._change.written),
            "manifests-kept": kept,
            "manifests-replaced": len(self._replaced),
            "entries-processed": self._change.entries,
        }
        return Summary(
            operation=Operation.REPLACE,
            **{name: value for name, value in before.items() if name.startswith(_TOTALS)},
            **{name: str(value) for name, value in figures.items()},
        )
