"""The changes that a commit in a table's history has made, as far as the table still tells them.

Of the statements in the commit's summary, the judge believes the plan's id, lane and place, its clock, and the snapshot
on which it was made. The figures are compared with what the files and that snapshot say.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import (
    MENDED,
    REMOVED_TOMBSTONES,
    SIDE_BRANCHES,
    ancestors,
    firn_properties,
    on_branch,
)
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.files import job_of
from firnlake.iceberg.manifests import Manifests
from firnlake.job.plan import STAGED
from firnlake.lanes import Lane
from firnlake.table.history import JOB_ID, CommitSummary, PublishedPlan, is_mending, plans_of
from firnlake.table.segment import TAIL
from firnlake.table.topic_partition import TopicPartition
from firnlake.validate.basis import Basis, properties_after
from firnlake.validate.change import JudgedChange
from firnlake.validate.deletes import SnapshotDeletes


@dataclass(frozen=True)
class Committed:
    """The commit that made ``snapshot`` on main, on its parent ``before``."""

    table: Table
    identifier: str
    snapshot: Snapshot
    before: Snapshot

    @classmethod
    def find(cls, lake: Lake, identifier: str, snapshot_id: int | None) -> "Committed":
        """The commit that made snapshot ``snapshot_id``, by default Firn's newest commit with a result.

        Raises RefusedError if there is no such commit, if it has no result to judge, or if its parent has expired.
        """
        table = lake.table(identifier)
        snapshot = _newest(table, identifier) if snapshot_id is None else _snapshot(table, identifier, snapshot_id)
        before = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None
        if before is None:
            raise RefusedError(
                f"table {identifier}: the snapshot before {snapshot.snapshot_id} has expired; allowed: a commit whose "
                "parent snapshot is kept"
            )
        return cls(table, identifier, snapshot, before)

    def changes(self) -> list[JudgedChange]:
        """The change of each plan. Raises RefusedError when a snapshot that this needs has expired."""
        properties, changes = properties_after(self.table, self.snapshot), []
        bases: dict[int | None, Basis | None] = {}
        for plan in plans_of(self.table, self.snapshot):
            if plan.snapshot_id not in bases:
                known = Basis.find(self._afterwards.at, self.identifier, plan.snapshot_id, properties)
                bases[plan.snapshot_id] = known
            basis = bases[plan.snapshot_id]
            if basis is None:
                raise RefusedError(
                    f"table {self.identifier}: plan {plan.id} of snapshot {self.snapshot.snapshot_id} was made on "
                    f"snapshot {plan.snapshot_id}, which has expired; allowed: a commit whose plans were made on a "
                    "snapshot that is kept"
                )
            changes.append(self._change(plan, basis))
        return changes

    def _change(self, plan: PublishedPlan, basis: Basis) -> JudgedChange:
        lane, owner = Lane(plan.lane), plan.topic_partition
        change = partial(JudgedChange, plan, basis, self._summary.now_ms)
        if lane.traits.writes == "deletes":
            reached = [one.path for one in basis.own(owner) if one.records and one.equality_deletes]
            left, deletes = basis.files(reached), self._files(self._manifests(ManifestContent.DELETES, self.snapshot))
            own = [one for one in deletes if job_of(one.file_path) == self._job_id]
            reader = DataFiles.of(self.table)
            before, after = basis.deletes.among(left, reader), self._deletes.among(left, reader, basis.number)
            return change(removed=(), left=left, added=(), before=before, after=after, deletes=own)
        removed, added = self._moved(self.before, self.snapshot, owner)
        went = {one.file_path for one in removed}
        there = [one for one in basis.own(owner) if one.path in self._parent_paths and one.path not in went]
        if lane.traits.serves_requests:
            returning, beside = self._tombstones_moved(owner)
            left = basis.others(owner, went | {one.file_path for one in returning})
            requests = basis.requests(owner.topic, plan.requests)
            return change(
                removed=removed, left=left, added=added, beside=beside, returning=returning, requests=requests
            )
        with_tail = lane.traits.level_out == TAIL
        tail = basis.files([one.path for one in there if with_tail and one.level == TAIL])
        taken = [one.file_path for one in (*removed, *tail)]
        back = basis.files(basis.returning(owner, taken) if with_tail else [], REMOVED_TOMBSTONES)
        return change(removed=removed, left=tail, added=added, beside=[*self._beside(owner)], returning=back)

    def _moved(self, before: Snapshot, after: Snapshot, owner: TopicPartition) -> tuple[list[DataFile], list[DataFile]]:
        """The data files of ``owner`` that went and came between two snapshots of one branch."""
        old, new = (self._manifests(ManifestContent.DATA, one) for one in (before, after))
        went, came = self._files(old - new), self._files(new - old)
        old_paths, new_paths = ({one.file_path for one in files} for files in (went, came))
        gone = [one for one in went if one.file_path not in new_paths]
        return self._of(owner, gone), self._of(owner, [one for one in came if one.file_path not in old_paths])

    def _manifests(self, content: ManifestContent, snapshot: Snapshot | None) -> frozenset[ManifestFile]:
        listed = snapshot.manifests(self.table.io) if snapshot else []
        return frozenset(one for one in listed if one.content == content)

    def _files(self, manifests: frozenset[ManifestFile]) -> list[DataFile]:
        in_order = sorted(manifests, key=lambda one: one.manifest_path)
        return [entry.data_file for entry in self._read.live(in_order)]

    def _of(self, owner: TopicPartition, files: Sequence[DataFile]) -> list[DataFile]:
        return [one for one in files if self._afterwards.columns.owner(self.table, one) == owner]

    def _beside(self, owner: TopicPartition) -> Iterator[DataFile]:
        """The data files that the commit has added to side branches."""
        for branch in SIDE_BRANCHES:
            files = self._files(self._manifests(ManifestContent.DATA, self._on_branch(branch)))
            yield from self._of(owner, [one for one in files if job_of(one.file_path) == self._job_id])

    def _on_branch(self, branch: str) -> Snapshot | None:
        """The snapshot of ``branch`` that the commit has made; None if there is none."""
        line = ancestors(on_branch(self._afterwards.at, branch))
        return next((one for one in line if firn_properties(one).get(JOB_ID) == self._job_id), None)

    def _tombstones_moved(self, owner: TopicPartition) -> tuple[list[DataFile], list[DataFile]]:
        """The removed tombstones that the commit has rewritten, and those that it has written instead."""
        after = self._on_branch(REMOVED_TOMBSTONES)
        if after is None or after.parent_snapshot_id is None:
            return [], []
        before = self.table.snapshot_by_id(after.parent_snapshot_id)
        if before is None:
            raise RefusedError(
                f"table {self.identifier}: the snapshot before {after.snapshot_id} on branch {REMOVED_TOMBSTONES} has "
                "expired; allowed: a commit whose parent snapshot on that branch is kept, too"
            )
        return self._moved(before, after, owner)

    @cached_property
    def _summary(self) -> CommitSummary:
        told = CommitSummary.of(self.snapshot)
        assert told  # ``find`` has read its plans
        return told

    @property
    def _job_id(self) -> str:
        return self._summary.job_id

    @cached_property
    def _afterwards(self) -> Basis:
        """The commit's own snapshot."""
        return Basis(self.table, self.identifier, self.snapshot, None)

    @cached_property
    def _read(self) -> Manifests:
        return Manifests(self.table.io)

    @cached_property
    def _parent_paths(self) -> frozenset[str]:
        """The paths of all segments of the parent."""
        return frozenset(one.path for one in Basis(self.table, self.identifier, self.before, None).segments.each())

    @cached_property
    def _deletes(self) -> SnapshotDeletes:
        """The row-level deletes of the commit's snapshot."""
        return SnapshotDeletes.of(self.table, self.snapshot, self._parent_paths)


def _newest(table: Table, identifier: str) -> Snapshot:
    for one in ancestors(table):
        if _has_result(table, one):
            return one
    raise RefusedError(
        f"table {identifier} has no commit to verify; required: a commit by one of the lanes {', '.join(STAGED)}"
    )


def _snapshot(table: Table, identifier: str, snapshot_id: int) -> Snapshot:
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise RefusedError(f"table {identifier} has no snapshot {snapshot_id}; allowed: a snapshot that it still holds")
    if is_mending(snapshot):
        raise RefusedError(
            f"table {identifier}: snapshot {snapshot_id} is a mending, which is not judged, because it takes what a "
            f"person named; branch {MENDED} keeps it; allowed: a commit by one of the lanes "
            f"{', '.join(STAGED)}"
        )
    if not _has_result(table, snapshot):
        raise RefusedError(
            f"table {identifier}: snapshot {snapshot_id} was not published by Firn; allowed: a commit by "
            f"one of the lanes {', '.join(STAGED)}"
        )
    return snapshot


def _has_result(table: Table, snapshot: Snapshot) -> bool:
    plans = plans_of(table, snapshot)
    return bool(plans) and all(plan.lane in STAGED for plan in plans)
