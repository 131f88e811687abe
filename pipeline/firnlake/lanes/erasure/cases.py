"""Cases for the judge to verify a commit of lane `erase` in a table's history (C30).

The requests that the commit served, and how far it searched for them, are on branch `firn_erasures`, which the same
commit changed. The judge compares the requests with every file that was in the table when the search was planned: the
files that the commit rewrote, those that it left in place, and the removed tombstones on their branch. The judge checks
only records below the offset at which the search stopped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import ERASURES, REMOVED_TOMBSTONES, ancestors, at_snapshot, head_of
from firnlake.lanes.erasure.memory import read_erasures_at
from firnlake.lanes.erasure.requests import Erasures, SearchProgress
from firnlake.table.columns import ColumnRoles
from firnlake.table.published_plans import JOB_ID, PublishedPlan, properties_of
from firnlake.table.segment import Segments
from firnlake.table.summaries import CommitClock
from firnlake.table.topic_partition import TopicPartition
from firnlake.validate.cases import Case, ListedFacts, with_requests
from firnlake.validate.deletes import Moved, SnapshotDeletes, files
from firnlake_expectations.claim import Claim
from firnlake_expectations.tables import AFTER, BEFORE, IN_PLACE


@dataclass(frozen=True)
class ErasingCommit:
    """A commit of lane `erase`: the current table, main's snapshots before and after the commit, and its job."""

    identifier: str
    table: Table
    columns: ColumnRoles
    before: Snapshot
    snapshot: Snapshot
    job_id: str

    def case(self, plan: PublishedPlan, segments: Segments, deletes: SnapshotDeletes) -> Case:
        """The case of ``plan``. ``segments`` and row-level ``deletes`` are those of the snapshot before the commit.

        Raises RefusedError when a snapshot that the case needs has expired.
        """
        owner = plan.topic_partition
        erasures, progress = self._served(owner)
        moved = Moved.between(self.table, self.columns, self.before, self.snapshot, owner)
        beside = Moved.between(self.table, self.columns, *self._tombstones(), owner)
        left = [*moved.searched(progress.sequence_number), *beside.searched(progress.sequence_number)]
        until = None if self.columns.levels_apart else progress.sequence_number
        listed = deletes.among(files(moved.removed), until)
        listing = ListedFacts(self.table.schema(), self.columns)
        judged = [
            *(listing.file(BEFORE, one, listed.get(one.file_path)) for one in files(moved.removed)),
            *(listing.file(BEFORE, one) for one in files(beside.removed)),
            # Files that stay must not hold a requested record, not even one that row-level deletes hide.
            *(listing.file(IN_PLACE, one) for one in left),
            *(listing.file(AFTER, one) for one in files([*moved.added, *beside.added])),
        ]
        claim = self._claim(plan, progress, segments, [*files(moved.removed), *left])
        return with_requests(Case(claim, tuple(judged), None), erasures, progress.through)

    def _served(self, owner: TopicPartition) -> tuple[Erasures, SearchProgress]:
        """The erasures in the branch's oldest kept snapshot since the commit, and the commit's progress in ``owner``.

        Raises RefusedError when a later search has replaced that progress.
        """
        number, oldest = self.snapshot.sequence_number or 0, None
        for one in ancestors(self.table, ERASURES):
            if (one.sequence_number or 0) <= number:
                break
            oldest = one
        erasures = read_erasures_at(self.table, oldest.snapshot_id) if oldest else Erasures()
        progress = erasures.progress_of(owner)
        if progress is None or progress.snapshot_id != self.snapshot.snapshot_id:
            raise RefusedError(
                f"table {self.identifier}: the requests that snapshot {self.snapshot.snapshot_id} served in {owner} "
                f"are unknown: the snapshot on branch {ERASURES} that recorded them has expired, and a later search "
                "has replaced the record; allowed: a commit of lane erase whose snapshot on that branch is kept, or "
                "the last commit of lane erase in a topic partition"
            )
        return erasures, progress

    def _tombstones(self) -> tuple[Snapshot | None, Snapshot | None]:
        """The snapshots of branch `firn_tombstones` right before and after the commit.

        Both are the same if the commit changed nothing on the branch, and None if the branch did not exist yet.
        """
        after = head_of(at_snapshot(self.table, self.snapshot.snapshot_id), REMOVED_TOMBSTONES)
        if after is not None and properties_of(after).get(JOB_ID) == self.job_id:
            return self._parent(after), after
        return after, after

    def _parent(self, snapshot: Snapshot) -> Snapshot | None:
        if snapshot.parent_snapshot_id is None:
            return None
        parent = self.table.snapshot_by_id(snapshot.parent_snapshot_id)
        if parent is None:
            raise RefusedError(
                f"table {self.identifier}: the snapshot before {snapshot.snapshot_id} on branch {REMOVED_TOMBSTONES} "
                "has expired; allowed: a commit whose parent snapshot on that branch is kept, too"
            )
        return parent

    def _claim(
        self, plan: PublishedPlan, progress: SearchProgress, segments: Segments, searched: Sequence[DataFile]
    ) -> Claim:
        paths = {one.file_path for one in searched}
        own = [one for one in segments.by_partition.get(plan.topic_partition, ()) if one.path in paths]
        kept = progress.log_end_kept
        return Claim(
            table=self.identifier,
            lane="erase",
            plan_id=plan.id,
            topic=plan.topic,
            partition=plan.partition,
            now_ms=CommitClock.of(self.snapshot).at_ms,
            level_out=0,
            clean_below=None,
            log_end_offset=_log_end(progress, (one.last_offset for one in own if one.records)),
            delete_retention_ms=0,
            transactional=any(one.control for one in own),
            # If the requested log end stayed, the search has reached the log end, and no obstacle stopped it earlier.
            erase_before=None if kept else progress.before,
            end_kept=kept,
            **plan.counts.model_dump(exclude={"expired"}),
        )


def _log_end(progress: SearchProgress, offsets: Iterator[int]) -> int:
    """The log end that the plan knew. The progress contains it if the record there is requested, but stays (C4)."""
    if progress.log_end_kept and progress.before is not None:
        return progress.before
    return max(offsets, default=-1)
