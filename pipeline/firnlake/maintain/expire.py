"""Expire snapshots, branches and tags by Iceberg's own rules, and delete the files that only they reached.

One commit removes the snapshots and refs from the metadata. Then Firn loads the table again, and deletes the files that
no snapshot in the new metadata reaches, so an interruption leaves at most orphans. The rules are in the Iceberg spec,
"Snapshot Retention Policy".

Another process may create a branch or tag on a snapshot while the snapshot is being removed. A commit can't require
that there is no other ref (Iceberg REST catalog specification, ``TableRequirement``), and catalogs remove the
refs of a snapshot together with it. Therefore Firn restores such a branch or tag afterwards.

Firn also deletes the metadata files that these commits push out of the table's metadata log (Iceberg docs,
"Configuration", ``write.metadata.previous-versions-max``); otherwise the next run would find them as orphans.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding, Kind, delete
from firnlake.iceberg.files import Stored, Stores
from firnlake.iceberg.referenced_files import Contents
from firnlake.iceberg.snapshots import SnapshotRetention, retained
from firnlake.lanes.erasure.history import expire_below
from firnlake.lanes.erasure.memory import read_erasures
from firnlake.maintain.unreached import Coming, Unreached
from firnlake.table.references import metadata_locations, whole_table
from firnlake_expectations.wording import count

_VERSIONS: Final = "write.metadata.previous-versions-max"
_DEFAULT: Final = 100
_DELETED_BY_COMMITS: Final = "write.metadata.delete-after-commit.enabled"


def dropped(before: Table, after: Table) -> list[str]:
    """Locations of the metadata files that ``before`` names, but ``after`` does not."""
    named = set(metadata_locations(after))
    return [one for one in metadata_locations(before) if one not in named]


def dropped_by(table: Table, commits: int) -> list[str]:
    """Locations that the next ``commits`` commits will drop from the metadata log of ``table``, oldest first."""
    text = table.properties.get(_VERSIONS, str(_DEFAULT))
    most = max(1, int(text)) if text.isdecimal() else _DEFAULT
    locations = metadata_locations(table)
    return locations[: max(0, len(locations) - 1 + commits - most)] if commits else []


def former(table: Table, locations: list[str], limit_ms: int, now_ms: int, *, remove: bool) -> Iterator[Finding]:
    """Findings about the files at ``locations`` that are older than ``limit_ms`` milliseconds; ``remove`` deletes them.

    Yields nothing if the table's commits delete such files themselves.
    """
    if table.properties.get(_DELETED_BY_COMMITS, "false").lower() == "true":
        return
    stores = Stores(table)
    located = [(files, files.get_file_info(path)) for files, path in map(stores.of, locations)]
    stored = [(files, Stored.of(info)) for files, info in located if info.is_file]
    old = [(files, file) for files, file in stored if file.is_older(now_ms - limit_ms)]
    deleted = delete(old, remove=remove, title="deleting former metadata files", total=len(old))
    reason = f"no longer named in the metadata log; older than firn.maintenance.orphans.age.ms = {limit_ms}"
    yield from deleted.findings(Kind.METADATA, table.location(), reason, now_ms)


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
        lake.until_committed(lambda: _restore(lake, identifier, before, lost))


def _restore(lake: Lake, identifier: str, before: Table, lost: Mapping[str, SnapshotRef]) -> None:
    table = lake.table(identifier)
    missing = {name: ref for name, ref in lost.items() if name not in table.metadata.refs}
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
    if updates:
        lake.catalog.commit_table(table, tuple(requirements), tuple(updates))


_LEAST: Final = 100
"""Lowest value of ``_Commit.most``, which each refusal of the catalog halves."""


@dataclass(frozen=True)
class Expired:
    """Findings about the expired history, and the table's metadata without it."""

    findings: list[Finding]
    after: TableMetadata


def expire(
    lake: Lake,
    identifier: str,
    now_ms: int,
    contents: Contents,
    coming: Coming,
    *,
    remove: bool,
) -> Expired:
    """Expire snapshots, branches and tags of ``identifier`` past their age, and delete the files that only they reach.

    Without ``remove``, nothing is changed, and the findings are as if the ``coming`` commits had been made. Raises
    UnavailableError when other commits come first for too long.
    """
    if not remove:
        table = whole_table(lake, identifier)
        retention = retained(
            identifier,
            table.metadata,
            now_ms,
            coming.moving,
            _erased_below(table, identifier, now_ms, coming.rewritten),
        )
        after = _without(table.metadata, retention)
        done = _Done(table, retention, list(retention.expired_snapshots))
        return Expired(_findings(done, after, now_ms, contents, coming, remove=False), after)
    commit, garbage = _Commit(lake, identifier, now_ms), []
    while True:
        done = lake.until_committed(commit.once)
        if done.snapshots:
            restore_lost_refs(lake, done.table, done.snapshots)
        after = whole_table(lake, identifier).metadata
        garbage += _findings(done, after, now_ms, contents, coming, remove=True)
        if len(done.snapshots) == len(done.retention.expired_snapshots):
            return Expired(garbage, after)


def _erased_below(table: Table, identifier: str, now_ms: int, rewritten: Collection[str] = ()) -> int:
    """Sequence number below which snapshots expire because of erased keys; 0 if none does, or the requests are lost."""
    try:
        return expire_below(table, identifier, read_erasures(table), now_ms, rewritten)
    except RefusedError:
        return 0


@dataclass(frozen=True)
class _Done:
    """A commit: the table before it, what should expire (``retention``), and the ids of the removed snapshots."""

    table: Table
    retention: SnapshotRetention
    snapshots: Sequence[int]


@dataclass
class _Commit:
    """Removes expired snapshots and refs from the metadata of table ``identifier``, at most ``most`` snapshots at once.

    In PyIceberg's catalogs, the removal of 10,000 snapshots takes seconds. If another writer commits meanwhile, the
    catalog refuses the removal. Therefore each refusal halves ``most`` for the next commit.
    """

    lake: Lake
    identifier: str
    now_ms: int
    most: int = 2**31

    def once(self) -> _Done:
        """Try the commit once.

        Raises CommitFailedException when a ref has moved meanwhile, or another process expires the same snapshots.
        """
        table = whole_table(self.lake, self.identifier)
        retention = retained(
            self.identifier,
            table.metadata,
            self.now_ms,
            erased_below=_erased_below(table, self.identifier, self.now_ms),
        )
        ids = list(retention.expired_snapshots)[: self.most]
        updates: list[TableUpdate] = [
            RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in retention.expired_refs
        ]
        if ids:
            updates.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}))
        if updates:
            self._send(table, ids, updates)
        return _Done(table, retention, ids)

    def _send(self, table: Table, ids: Sequence[int], updates: Sequence[TableUpdate]) -> None:
        # Without a requirement for each ref, a ref that moves to a snapshot while that is removed would be lost.
        requirements: list[TableRequirement] = [AssertTableUUID(uuid=table.metadata.table_uuid)]
        for name, ref in table.metadata.refs.items():
            requirements.append(AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id}))
        try:
            self.lake.catalog.commit_table(table, tuple(requirements), tuple(updates))
        except CommitFailedException:
            self.most = max(_LEAST, len(ids) // 2)
            raise
        except (ValueError, BadRequestError) as error:
            known = {one.snapshot_id for one in self.lake.table(self.identifier).metadata.snapshots}
            if known.issuperset(ids):
                raise
            raise CommitFailedException(f"table {self.identifier}: another process is expiring snapshots") from error


def _findings(
    done: _Done,
    after: TableMetadata,
    now_ms: int,
    contents: Contents,
    coming: Coming,
    *,
    remove: bool,
) -> list[Finding]:
    """Findings about the history that a commit removed, and the files that the metadata ``after`` no longer reaches."""
    gone = set(done.snapshots).difference(one.snapshot_id for one in after.snapshots)
    expired = [one for one in done.table.metadata.snapshots if one.snapshot_id in gone]
    identifier = ".".join(done.table.name())
    going = [*_of_refs(done.table, done.retention, now_ms), *_of_snapshots(identifier, expired, done.retention, now_ms)]
    if expired:
        going += Unreached(done.table, expired, after, coming, contents).findings(now_ms, remove=remove)
    return going


def _without(metadata: TableMetadata, retention: SnapshotRetention) -> TableMetadata:
    """``metadata`` without the expired snapshots and refs, as the commit would leave it."""
    return metadata.model_copy(
        update={
            "snapshots": [one for one in metadata.snapshots if one.snapshot_id in retention.snapshots],
            "refs": {name: ref for name, ref in metadata.refs.items() if name not in retention.expired_refs},
            "statistics": [one for one in metadata.statistics if one.snapshot_id in retention.snapshots],
            "partition_statistics": [
                one for one in metadata.partition_statistics if one.snapshot_id in retention.snapshots
            ],
        }
    )


def _of_refs(table: Table, retention: SnapshotRetention, now_ms: int) -> Iterator[Finding]:
    times = {one.snapshot_id: one.timestamp_ms for one in table.metadata.snapshots}
    for name, reason in retention.expired_refs.items():
        ref = table.metadata.refs[name]
        taken_ms = times.get(ref.snapshot_id)
        age_ms = None if taken_ms is None else now_ms - taken_ms
        title = f"{ref.snapshot_ref_type.value} {name}"
        yield Finding(Kind.REF, title, goes=True, reason=reason, files=0, age_ms=age_ms)


def _of_snapshots(
    identifier: str, expired: Sequence[Snapshot], retention: SnapshotRetention, now_ms: int
) -> Iterator[Finding]:
    """One finding for each reason; its age is that of its youngest snapshot."""
    reasons = retention.expired_snapshots
    newest: dict[str, int] = {}
    for one in expired:
        reason = reasons[one.snapshot_id]
        newest[reason] = max(newest.get(reason, one.timestamp_ms), one.timestamp_ms)
    counts = Counter(reasons[one.snapshot_id] for one in expired)
    for reason, number in counts.items():
        name = f"{identifier}: {count(number, 'snapshot')}"
        yield Finding(Kind.SNAPSHOTS, name, goes=True, reason=reason, files=0, age_ms=now_ms - newest[reason])
