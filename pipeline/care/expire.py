"""Expire snapshots, branches and tags by Iceberg's own rules, and delete the files that only they reached.

One commit removes them. The table is then loaded again, and what no snapshot of that metadata reaches is deleted: an
interruption leaves orphans at most. Source: Iceberg spec, "Snapshot Retention Policy".
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
)

from pipeline.care.contents import Contents
from pipeline.care.garbage import Garbage, Kind
from pipeline.care.lost_refs import restore_lost_refs
from pipeline.care.unreached import Coming, Unreached
from pipeline.care.whole import whole_table
from pipeline.erase.stored import read_erasures
from pipeline.errors import RefusedError
from pipeline.history.retained import Retention, retained
from pipeline.lake import Lake
from pipeline.prove.history import expire_below

_LEAST: Final = 100
"""Number of snapshots that a commit always removes together."""


@dataclass(frozen=True)
class Expired:
    """Findings about the expired history, and the table's metadata without it."""

    findings: list[Garbage]
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
    """Snapshots, branches and tags of table ``identifier`` past their age, and the files that only they reach.

    With ``remove`` they are gone; without, they are told as if ``coming`` commits had been made. Raises
    UnavailableError while other commits get in the way, before anything is changed.
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
    """Sequence number below which snapshots expire for the sake of erased keys; 0 where the requests are lost."""
    try:
        return expire_below(table, identifier, read_erasures(table), now_ms, rewritten)
    except RefusedError:
        return 0


@dataclass(frozen=True)
class _Done:
    """A commit: the table before, what was to expire, and the snapshots that it removed."""

    table: Table
    retention: Retention
    snapshots: Sequence[int]


@dataclass
class _Commit:
    """Removes what expires from the metadata of table ``identifier``, at most ``most`` snapshots at a time.

    Removing 10,000 takes PyIceberg's catalogs seconds, in which a busy writer commits; so what is refused is halved.
    """

    lake: Lake
    identifier: str
    now_ms: int
    most: int = 2**31

    def once(self) -> _Done:
        """One try. Raises CommitFailedException when a ref has moved since, or another process expires the same."""
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
        # A branch or tag that moves to a snapshot while that is removed would be lost with it.
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
            raise CommitFailedException(f"table {self.identifier}: another process expires snapshots") from error


def _findings(
    done: _Done,
    after: TableMetadata,
    now_ms: int,
    contents: Contents,
    coming: Coming,
    *,
    remove: bool,
) -> list[Garbage]:
    """Findings about the history that a commit removed, and about files that the metadata ``after`` it lacks."""
    gone = set(done.snapshots).difference(one.snapshot_id for one in after.snapshots)
    expired = [one for one in done.table.metadata.snapshots if one.snapshot_id in gone]
    identifier = ".".join(done.table.name())
    going = [*_of_refs(done.table, done.retention, now_ms), *_of_snapshots(identifier, expired, done.retention, now_ms)]
    if expired:
        going += Unreached(done.table, expired, after, coming, contents).findings(now_ms, remove=remove)
    return going


def _without(metadata: TableMetadata, retention: Retention) -> TableMetadata:
    """``metadata`` as the commit would leave it."""
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


def _of_refs(table: Table, retention: Retention, now_ms: int) -> Iterator[Garbage]:
    times = {one.snapshot_id: one.timestamp_ms for one in table.metadata.snapshots}
    for name, reason in retention.expired_refs.items():
        ref = table.metadata.refs[name]
        taken_ms = times.get(ref.snapshot_id)
        age_ms = None if taken_ms is None else now_ms - taken_ms
        title = f"{ref.snapshot_ref_type.value} {name}"
        yield Garbage(Kind.REF, title, goes=True, reason=reason, files=0, age_ms=age_ms)


def _of_snapshots(identifier: str, expired: Sequence[Snapshot], retention: Retention, now_ms: int) -> Iterator[Garbage]:
    """One finding per reason; the age is that of the youngest."""
    reasons = retention.expired_snapshots
    newest: dict[str, int] = {}
    for one in expired:
        reason = reasons[one.snapshot_id]
        newest[reason] = max(newest.get(reason, one.timestamp_ms), one.timestamp_ms)
    counts = Counter(reasons[one.snapshot_id] for one in expired)
    for reason, count in counts.items():
        name = f"{identifier}: {count} snapshots"
        yield Garbage(Kind.SNAPSHOTS, name, goes=True, reason=reason, files=0, age_ms=now_ms - newest[reason])
