"""Expire snapshots, branches and tags by Iceberg's own rules, and delete the files that only they reached.

One commit removes the snapshots and refs from the metadata. Then Firn loads the table again, and deletes the files that
no snapshot in the new metadata reaches, so an interruption leaves at most orphans. The rules are in the Iceberg spec,
"Snapshot Retention Policy".

Before snapshots go that tell the progress of sinks, empty snapshots tell it again (`iceberg.bookkeeping`), in the same
commit. A commit can't require that there is no other ref (Iceberg REST catalog specification, ``TableRequirement``),
and catalogs remove the refs of a snapshot together with it. So a branch or tag that another process creates meanwhile
on an expiring snapshot goes with the snapshot.

Firn also deletes the metadata files that these commits push out of the table's metadata log (Iceberg docs,
"Configuration", ``write.metadata.previous-versions-max``); otherwise the next run would find them as orphans.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
)

from firnlake.errors import RefusedError
from firnlake.iceberg.bookkeeping import cut_off
from firnlake.iceberg.branches import FIRN_BRANCHES, ancestors, memory_named
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change, is_live
from firnlake.iceberg.commit import Commit, CommitRequest, SnapshotIds, settle
from firnlake.iceberg.deleter import Finding, Kind, delete
from firnlake.iceberg.files import Stored, Stores
from firnlake.iceberg.manifests import Manifests
from firnlake.iceberg.referenced_files import Contents
from firnlake.iceberg.snapshots import SnapshotRetention, retained
from firnlake.job.documents import planned_on
from firnlake.lanes.erasure.certificate import history_ends
from firnlake.maintain.listing import OF_AGE, ORPHAN_AGE_MS
from firnlake.maintain.unreached import Coming, Unreached
from firnlake.table.policy import Policies
from firnlake.table.references import metadata_locations, whole_table
from firnlake.table.tombstones import drop_void_tombstones
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


def former(table: Table, locations: list[str], now_ms: int, *, remove: bool) -> Iterator[Finding]:
    """Findings about the files at ``locations`` that are past ``ORPHAN_AGE_MS``; ``remove`` deletes them.

    Yields nothing if the table's commits delete such files themselves.
    """
    if table.properties.get(_DELETED_BY_COMMITS, "false").lower() == "true":
        return
    stores = Stores(table)
    located = [(files, files.get_file_info(path)) for files, path in map(stores.of, locations)]
    stored = [(files, Stored.of(info)) for files, info in located if info.is_file]
    old = [(files, file) for files, file in stored if file.is_older(now_ms - ORPHAN_AGE_MS)]
    deleted = delete(old, remove=remove, title="deleting former metadata files", total=len(old))
    reason = f"no longer named in the metadata log; older than {OF_AGE}"
    yield from deleted.findings(Kind.METADATA, table.location(), reason, now_ms)


_LEAST: Final = 100
"""Lowest value of ``_Expiry.most``, which each refusal of the catalog halves."""


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

    Without ``remove``, nothing is changed, and the findings are as if the ``coming`` commits had been made. Raises the
    errors of ``settle``.
    """
    if not remove:
        table = whole_table(lake, identifier)
        retention = retained(
            identifier,
            table.metadata,
            now_ms,
            coming.moving,
            history_ends(lake, table, identifier, now_ms),
            _needed(lake, table, identifier, now_ms),
        )
        after = _without(table.metadata, retention)
        done = _Done(table, retention, list(retention.expired_snapshots), list(retention.expired_refs))
        return Expired(_findings(done, after, now_ms, contents, coming, remove=False), after)
    # What makes removed tombstones void is about to expire.
    drop_void_tombstones(lake, identifier)
    expiry = _Expiry(lake, identifier, now_ms)
    expiry.run()
    after = whole_table(lake, identifier).metadata
    garbage: list[Finding] = []
    told = {one.snapshot_id for one in after.snapshots}, set(after.refs)
    for one in expiry.sent:
        done = one.without(*told)
        garbage += _findings(done, after, now_ms, contents, coming, remove=True)
        told[0].update(done.snapshots)
        told[1].update(done.refs)
    return Expired(garbage, after)


def _needed(lake: Lake, table: Table, identifier: str, now_ms: int) -> frozenset[int]:
    """The snapshots by which the judge holds open jobs to what they have planned, no older than such jobs may be."""
    needed = planned_on(lake, identifier)
    try:
        young_ms = now_ms - Policies.parse(identifier, table.properties).default.job_max_age_ms
    except RefusedError:
        return needed
    return needed & {one.snapshot_id for one in table.metadata.snapshots if one.timestamp_ms >= young_ms}


@dataclass(frozen=True)
class _Done:
    """A commit: the table before it, what should expire (``retention``), and the snapshots and refs that it removes."""

    table: Table
    retention: SnapshotRetention
    snapshots: Sequence[int]
    refs: Sequence[str]

    def without(self, snapshots: Collection[int], refs: Collection[str]) -> "_Done":
        """This commit, but without the ``snapshots`` and ``refs``."""
        return replace(
            self,
            snapshots=[one for one in self.snapshots if one not in snapshots],
            refs=[name for name in self.refs if name not in refs],
        )


@dataclass
class _Expiry:
    """Removes expired snapshots and refs from the metadata of table ``identifier``, at most ``most`` snapshots at once.

    In PyIceberg's catalogs, the removal of 10,000 snapshots takes seconds. If another writer commits meanwhile, the
    catalog refuses the removal. Therefore each refusal halves ``most``.
    """

    lake: Lake
    identifier: str
    now_ms: int
    most: int = 2**31
    sent: list[_Done] = field(default_factory=list)
    """All requests, in their order. The catalog may have applied each of them, whatever it answered."""
    _ids: SnapshotIds = field(default_factory=SnapshotIds)
    """Ids of the snapshots that the commit under way adds."""

    def run(self) -> None:
        """Commit until nothing is left to expire. Raises the errors of ``settle``."""
        while True:
            before = len(self.sent)
            self._ids = SnapshotIds()
            settle(
                self.lake,
                self.identifier,
                partial(self._request, before),
                partial(whole_table, self.lake, self.identifier),
            )
            last = self.sent[-1] if len(self.sent) > before else None
            if not last or len(last.snapshots) == len(last.retention.expired_snapshots):
                return

    def _request(self, before: int, table: Table) -> CommitRequest | None:
        """The next request; ``before`` is the number of requests that belong to earlier commits."""
        if len(self.sent) > before:
            self.most = max(_LEAST, len(self.sent[-1].snapshots) // 2)
        retention = retained(
            self.identifier,
            table.metadata,
            self.now_ms,
            erased_below=history_ends(self.lake, table, self.identifier, self.now_ms),
            needed=_needed(self.lake, table, self.identifier, self.now_ms),
        )
        ids = list(retention.expired_snapshots)[: self.most]
        updates: list[TableUpdate] = [
            RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in retention.expired_refs
        ]
        if ids:
            # Removing a snapshot takes its table statistics along, but not in every catalog its partition statistics.
            counted = {one.snapshot_id for one in table.metadata.partition_statistics}
            updates += (
                RemovePartitionStatisticsUpdate.model_validate({"snapshot-id": one}) for one in ids if one in counted
            )
            updates.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}))
        if not updates:
            return None
        request = self._told_again(table, retention, frozenset(ids))
        # Without a requirement for each ref, a ref that moves to a snapshot while that is removed would be lost.
        requirements: list[TableRequirement] = [AssertTableUUID(uuid=table.metadata.table_uuid)]
        for name, ref in table.metadata.refs.items():
            requirements.append(AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id}))
        self.sent.append(_Done(table, retention, ids, list(retention.expired_refs)))
        return replace(request, requirements=tuple(requirements), updates=(*request.updates, *updates))

    def _told_again(self, table: Table, retention: SnapshotRetention, expired: Collection[int]) -> CommitRequest:
        """The part of a request that tells the progress of sinks again, as ``expired`` snapshots told it."""
        changes: list[tuple[str, Change]] = []
        for name, ref in table.metadata.refs.items():
            if ref.snapshot_ref_type is SnapshotRefType.TAG or name in (*FIRN_BRANCHES, *retention.expired_refs):
                continue
            summaries = cut_off(list(ancestors(table, name)), expired, self.now_ms)
            changes += ((name, Change(summary=summary)) for summary in summaries)
        if not changes and self._loses_memory(table, retention, expired):
            changes.append((MAIN_BRANCH, Change()))
        if not changes:
            return CommitRequest((), ())
        return Commit(table, changes, self._ids).request(table, Manifests(table.io))

    def _loses_memory(self, table: Table, retention: SnapshotRetention, expired: Collection[int]) -> bool:
        """True when main would no longer tell which memory belongs to its history, once ``expired`` snapshots go."""
        kept = [one for one in table.metadata.snapshots if one.snapshot_id not in expired]
        refs = {name: ref for name, ref in table.metadata.refs.items() if name not in retention.expired_refs}
        metadata = table.metadata.model_copy(update={"snapshots": kept, "refs": refs})
        after = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
        return _memory(after) != _memory(table)


def _memory(table: Table) -> int:
    """The memory that main names; 0 if there is none, or if it holds no tombstone."""
    named = memory_named(table) or 0
    held = table.snapshot_by_id(named)
    return named if held is not None and any(map(is_live, held.manifests(table.io))) else 0


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
    going = [*_of_refs(done, now_ms), *_of_snapshots(identifier, expired, done.retention, now_ms)]
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


def _of_refs(done: _Done, now_ms: int) -> Iterator[Finding]:
    times = {one.snapshot_id: one.timestamp_ms for one in done.table.metadata.snapshots}
    for name in done.refs:
        ref = done.table.metadata.refs[name]
        taken_ms = times.get(ref.snapshot_id)
        age_ms = None if taken_ms is None else now_ms - taken_ms
        title = f"{ref.snapshot_ref_type.value} {name}"
        reason = done.retention.expired_refs[name]
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
