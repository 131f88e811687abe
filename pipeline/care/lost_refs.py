"""Bring back a branch or tag that another process put on a snapshot while that expired.

No requirement of a commit says that there is no other ref (Iceberg REST catalog specification, ``TableRequirement``),
and catalogs remove the refs of a snapshot with it. Its files are all there still, so both can be put back.
"""

from collections.abc import Collection, Mapping

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

from pipeline.care.references import metadata_locations
from pipeline.lake import Lake


def restore_lost_refs(lake: Lake, before: Table, removed: Collection[int]) -> None:
    """Put back refs that were created on ``removed`` snapshots after ``before`` was loaded, with those snapshots.

    Looks at the metadata files between ``before`` and now; there are none unless others commit at the same time.
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
            # The last of these is what the commit was made on.
            lost = {name: ref for name, ref in metadata.refs.items() if ref.snapshot_id in gone}
    if lost:
        lake.until_committed(lambda: _restore(lake, identifier, before, lost))


def _restore(lake: Lake, identifier: str, before: Table, lost: Mapping[str, SnapshotRef]) -> None:
    table = lake.table(identifier)
    missing = {name: ref for name, ref in lost.items() if name not in table.metadata.refs}
    requirements: list[TableRequirement] = []
    updates: list[TableUpdate] = []
    for snapshot_id in {ref.snapshot_id for ref in missing.values()}:
        snapshot = before.snapshot_by_id(snapshot_id)
        if snapshot and not table.snapshot_by_id(snapshot_id):
            # Catalogs take a snapshot of the past only without a parent.
            updates.append(AddSnapshotUpdate(snapshot=snapshot.model_copy(update={"parent_snapshot_id": None})))
    for name, ref in missing.items():
        requirements.append(AssertRefSnapshotId.model_validate({"ref": name}))
        updates.append(SetSnapshotRefUpdate.model_validate({"ref-name": name, **ref.model_dump(by_alias=True)}))
    if updates:
        lake.catalog.commit_table(table, tuple(requirements), tuple(updates))
