"""Restores branches and tags that another process created on a snapshot while an expiry was removing the snapshot.

A commit can't require that there is no other ref (Iceberg REST catalog specification, ``TableRequirement``), and
catalogs remove the refs of a snapshot together with it.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.commit import Commit, CommitRequest, SnapshotIds, settle
from firnlake.iceberg.manifests import Manifests
from firnlake.table.references import metadata_locations


def restore_lost_refs(lake: Lake, before: Table, removed: Collection[int]) -> None:
    """Restore the refs that were created on ``removed`` snapshots after ``before`` was loaded, and these snapshots.

    The refs are found in the metadata files between ``before`` and the current one. Such files exist only if other
    processes have committed at the same time.
    """
    identifier = ".".join(before.name())
    after = lake.table(identifier)
    locations = metadata_locations(after)
    start = locations.index(before.metadata_location) + 1 if before.metadata_location in locations else 0
    gone = frozenset(removed)
    lost: dict[str, SnapshotRef] = {}
    for location in locations[start:-1]:
        metadata = FromInputFile.table_metadata(before.io.new_input(location))
        if not gone.isdisjoint(one.snapshot_id for one in metadata.snapshots):
            # The last of these metadata files is the one on which the commit was made.
            lost = {name: ref for name, ref in metadata.refs.items() if ref.snapshot_id in gone}
    if lost:
        ids = SnapshotIds()
        settle(lake, identifier, lambda table: _restoring(table, before, lost, ids))


def _restoring(table: Table, before: Table, lost: Mapping[str, SnapshotRef], ids: SnapshotIds) -> CommitRequest | None:
    """The request that restores those ``lost`` refs that ``table`` lacks; None if there are none."""
    missing = {name: ref for name, ref in lost.items() if name not in table.metadata.refs}
    if not missing:
        return None
    requirements: list[TableRequirement] = []
    updates: list[TableUpdate] = []
    for snapshot_id in {ref.snapshot_id for ref in missing.values()}:
        snapshot = before.snapshot_by_id(snapshot_id)
        if snapshot and not table.snapshot_by_id(snapshot_id):
            # Catalogs accept a past snapshot only without a parent.
            updates.append(AddSnapshotUpdate(snapshot=snapshot.model_copy(update={"parent_snapshot_id": None})))
    for name, ref in missing.items():
        requirements.append(AssertRefSnapshotId.model_validate({"ref": name}))
        updates.append(SetSnapshotRefUpdate.model_validate({"ref-name": name, **ref.model_dump(by_alias=True)}))
    # A restored snapshot sets the table's last sequence number back to its own number, so that the next writer would
    # use numbers again which other snapshots have. The empty snapshot, which comes last, has the next free number.
    empty = Commit(table, ids=ids).request(table, Manifests(table.io))
    return replace(empty, requirements=(*requirements, *empty.requirements), updates=(*updates, *empty.updates))
