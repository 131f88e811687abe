"""The change of a branch that lists the same files by other manifests (Iceberg's operation ``replace``)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from pipeline.errors import ConflictError
from pipeline.lake.branch_snapshot import BranchSnapshot, SnapshotContents, is_live
from pipeline.lake.manifests import Manifests

_TOTALS: Final = "total-"
"""Prefix of the summary's properties that say what the table holds."""


@dataclass(frozen=True)
class Replacement:
    """Manifests at the paths ``replaced`` out, manifests ``written`` for snapshot ``snapshot_id`` in; together these
    list the same ``entries`` live files."""

    snapshot_id: int
    replaced: Collection[str]
    written: Sequence[ManifestFile]
    entries: int

    def on(self, target: Table, branch: str) -> BranchSnapshot:  # noqa: ARG002  # as other changes
        """The branch's part of a commit to ``target``."""
        return _Manifests(branch, self)


class _Manifests(BranchSnapshot):
    """The part of a commit that replaces manifests on one branch. Manifests that others added meanwhile are kept."""

    def __init__(self, name: str, change: Replacement) -> None:
        super().__init__(name, change.snapshot_id)
        self._change = change
        self._replaced = frozenset(change.replaced)

    @property
    def prepared(self) -> list[str]:
        return [one.manifest_path for one in self._change.written]

    @property
    def unused(self) -> list[str]:
        return []

    def contents(self, target: Table, parent: Snapshot | None, manifests: Manifests) -> SnapshotContents:  # noqa: ARG002
        listed = [] if parent is None else parent.manifests(target.io)
        missing = self._replaced - {manifest.manifest_path for manifest in listed}
        if missing:
            raise ConflictError(f"{len(missing)} manifests to be replaced are not listed, first {min(missing)}")
        kept = [one for one in listed if one.manifest_path not in self._replaced and is_live(one)]
        return SnapshotContents(self._change.written, kept, self._summarise(parent, len(kept)))

    def _summarise(self, parent: Snapshot | None, kept: int) -> Summary:
        """Iceberg's totals stay; the other properties are those of Iceberg's own RewriteManifests."""
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
