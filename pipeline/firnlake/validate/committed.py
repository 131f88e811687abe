"""The changes that a commit in a table's history has made, as far as the table still tells them.

Of the statements in the commit's summary, the judge believes the plan's id, lane and place, its clock, and the snapshot
on which it was made. The figures are compared with what the files and that snapshot say.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import NamedTuple

from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import (
    QUARANTINE,
    REMOVED_TOMBSTONES,
    SIDE_BRANCHES,
    ancestors,
    at_snapshot,
    firn_properties,
    on_branch,
)
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import job_of
from firnlake.iceberg.manifests import Manifests
from firnlake.job.change import Change
from firnlake.job.plan import STAGED, Plan
from firnlake.lanes import Lane
from firnlake.table.columns import ColumnRoles
from firnlake.table.history import JOB_ID, CommitSummary, PublishedPlan, plans_of
from firnlake.table.manifest_reader import read
from firnlake.table.segment import TAIL, Segment
from firnlake.table.segments import Segments
from firnlake.table.topic_partition import TopicPartition
from firnlake.validate.basis import Basis, properties_after


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

    def changes(self) -> Iterator[tuple[Change, Basis]]:
        """The change of each plan, and the basis of the plan.

        Raises RefusedError when a snapshot that this needs has expired.
        """
        properties, at = properties_after(self.table, self.snapshot), at_snapshot(self.table, self.snapshot.snapshot_id)
        find = cache(partial(Basis.find, at, self.identifier, properties, self._manifests))
        for plan in plans_of(self.table, self.snapshot):
            basis = find(plan.snapshot_id)
            if basis is None:
                raise RefusedError(
                    f"table {self.identifier}: plan {plan.id} of snapshot {self.snapshot.snapshot_id} was made on "
                    f"snapshot {plan.snapshot_id}, which has expired; allowed: a commit whose plans were made on a "
                    "snapshot that is kept"
                )
            yield self._change(plan, basis), basis

    def _change(self, published: PublishedPlan, basis: Basis) -> Change:
        lane, owner = Lane(published.lane), published.topic_partition
        traits, own, gone = lane.traits, basis.own(owner), self._main.gone
        before = {one.path: one for one in self._parent.get(owner, ())}
        # A file that the commit removes although its plan did not know it is an input that is told wrong.
        known = before | {one.path: one for one in own}
        if traits.writes == "deletes":
            stay = [one.path for one in own if one.records and one.equality_deletes]
        elif traits.serves_requests:
            stay = [one.path for one in own if one.path not in gone]
        else:
            tail = [one.path for one in own if one.level == TAIL == traits.level_out]
            stay = [path for path in tail if path in before and path not in gone]
        inputs = dict.fromkeys((*(path for path in known if path in gone), *stay))
        replaced = self._replaced_tombstones.get(owner, ()) if traits.serves_requests else ()
        plan = Plan.model_construct(
            {"inputs", "removed_tombstones"} if traits.serves_requests else {"inputs"},
            id=published.id,
            table=self.identifier,
            snapshot_id=published.snapshot_id,
            lane=lane,
            topic=owner.topic,
            partition=owner.partition,
            now_ms=self._summary.now_ms,
            reason=published.reason,
            inputs=tuple(known[path] for path in inputs),
            removed_tombstones=tuple(replaced),
            requests=published.requests,
        )
        converts = traits.writes == "deletes"
        return Change(
            plan=plan,
            counts=published.counts,
            in_place=frozenset(stay),
            merged=tuple(self._row_deletes.gone) if converts else (),
            kept=self._of(owner, self._main.added),
            quarantined=self._of(owner, self._beside[QUARANTINE]),
            removed_tombstones=self._of(owner, self._beside[REMOVED_TOMBSTONES]),
            deletes=self._own(self._row_deletes.added) if converts else (),
        )

    def _moved(self, content: ManifestContent, before: Snapshot | None, after: Snapshot | None) -> "_Moved":
        """The files of this ``content`` that went and came between two snapshots of one branch."""
        old, new = (
            frozenset(one for one in (at.manifests(self.table.io) if at else ()) if one.content == content)
            for at in (before, after)
        )
        went, came = (
            [entry.data_file for entry in self._manifests.live(sorted(listed, key=lambda one: one.manifest_path))]
            for listed in (old - new, new - old)
        )
        old_paths, new_paths = ({one.file_path for one in files} for files in (went, came))
        return _Moved(old_paths - new_paths, [one for one in came if one.file_path not in old_paths])

    @cached_property
    def _main(self) -> "_Moved":
        return self._moved(ManifestContent.DATA, self.before, self.snapshot)

    @cached_property
    def _row_deletes(self) -> "_Moved":
        return self._moved(ManifestContent.DELETES, self.before, self.snapshot)

    @cached_property
    def _replaced_tombstones(self) -> Mapping[TopicPartition, Sequence[Segment]]:
        """The segments of removed tombstones that the commit has replaced."""
        after = self._on_branch(REMOVED_TOMBSTONES)
        if after is None or after.parent_snapshot_id is None:
            return {}
        before = self.table.snapshot_by_id(after.parent_snapshot_id)
        if before is None:
            raise RefusedError(
                f"table {self.identifier}: the snapshot before {after.snapshot_id} on branch {REMOVED_TOMBSTONES} has "
                "expired; allowed: a commit whose parent snapshot on that branch is kept, too"
            )
        gone = self._moved(ManifestContent.DATA, before, after).gone
        held = read(at_snapshot(self.table, before.snapshot_id), self.identifier)
        return {owner: [one for one in segments if one.path in gone] for owner, segments in held.items()}

    @cached_property
    def _beside(self) -> Mapping[str, Sequence[DataFile]]:
        """The data files that the commit has added to each side branch."""
        listed = {one: self._moved(ManifestContent.DATA, None, self._on_branch(one)).added for one in SIDE_BRANCHES}
        return {branch: self._own(files) for branch, files in listed.items()}

    def _own(self, files: Iterable[DataFile]) -> tuple[DataFile, ...]:
        """Those of ``files`` that the job of the commit has written."""
        return tuple(one for one in files if job_of(one.file_path) == self._job_id)

    def _of(self, owner: TopicPartition, files: Iterable[DataFile]) -> tuple[DataFile, ...]:
        return tuple(one for one in files if self._columns.owner(self.table, one) == owner)

    def _on_branch(self, branch: str) -> Snapshot | None:
        """The snapshot of ``branch`` that the commit has made; None if there is none."""
        line = ancestors(on_branch(at_snapshot(self.table, self.snapshot.snapshot_id), branch))
        return next((one for one in line if firn_properties(one).get(JOB_ID) == self._job_id), None)

    @cached_property
    def _summary(self) -> CommitSummary:
        told = CommitSummary.of(self.snapshot)
        assert told  # ``find`` has read its plans
        return told

    @property
    def _job_id(self) -> str:
        return self._summary.job_id

    @cached_property
    def _manifests(self) -> Manifests:
        return Manifests(self.table.io)

    @cached_property
    def _parent(self) -> Segments:
        """The segments before the commit."""
        return read(at_snapshot(self.table, self.before.snapshot_id), self.identifier)

    @cached_property
    def _columns(self) -> ColumnRoles:
        return ColumnRoles.of(self.table, self.identifier)


class _Moved(NamedTuple):
    """The paths of files that went, and the files that came."""

    gone: Collection[str]
    added: Sequence[DataFile]


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
    if not _has_result(table, snapshot):
        raise RefusedError(
            f"table {identifier}: snapshot {snapshot_id} is not the result of a plan; allowed: a commit by "
            f"one of the lanes {', '.join(STAGED)}"
        )
    return snapshot


def _has_result(table: Table, snapshot: Snapshot) -> bool:
    plans = plans_of(table, snapshot)
    return bool(plans) and all(plan.lane in STAGED for plan in plans)
