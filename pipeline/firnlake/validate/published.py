"""Cases for the judge from a commit in a table's history: the files it removed, added and left in place.

Of the statements in Firn's commit, only the figures under test are used. Facts that the summary lacks are derived from
the parent snapshot: the segments outside the plan's inputs, the log end, and the transaction markers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, cast

import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import REMOVED_TOMBSTONES, SIDE_BRANCHES, ancestors, at_snapshot, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.files import job_of
from firnlake.iceberg.manifests import Manifests
from firnlake.job.lane import POSITION_DELETING, Lane
from firnlake.job.plan import LEVEL_OUT, STAGED
from firnlake.lanes.erasure.cases import ErasingCommit
from firnlake.lanes.hiding.cases import HidingCommit
from firnlake.lanes.hiding.memory import HideMemory, TableHideMemory, hide_memory_at
from firnlake.table.columns import ColumnRoles
from firnlake.table.published_plans import JOB_ID, PublishedPlan, plans_of, properties_of
from firnlake.table.segment import TAIL, Segments
from firnlake.table.segments import read
from firnlake.table.summaries import CommitClock, CommitSummary
from firnlake.table.topic_partition import TopicPartition
from firnlake.validate.cases import Case, JudgedFile, JudgedRecords, ListedFacts
from firnlake.validate.deletes import Moved, SnapshotDeletes
from firnlake.validate.deletes import files as files_of
from firnlake_expectations.claim import Claim
from firnlake_expectations.tables import AFTER, BEFORE, IN_PLACE

if TYPE_CHECKING:
    from firnlake_expectations.claim import Lane as JudgedLane


_COPIES = (Lane.CONVERT, Lane.MERGE)
"""Lanes that keep every record."""
_MICROS = 1000
"""Microseconds per millisecond."""


@dataclass(frozen=True)
class VerifiedCommit:
    """A commit of Firn, and its cases. ``ends`` are the possible log ends at planning time, by plan id, each with the
    first offset that may have been the highest that readers saw.

    There can be several, because records appended between plan and commit are in the commit's parent snapshot.
    """

    snapshot_id: int
    records: JudgedRecords
    cases: tuple[Case, ...]
    ends: Mapping[str, tuple[tuple[int, int], ...]]


def published_commit(lake: Lake, identifier: str, snapshot_id: int | None) -> VerifiedCommit:
    """The commit that made snapshot ``snapshot_id`` of the table, by default Firn's newest commit with a result.

    Raises RefusedError if there is no such commit, if it has no result to judge, or if its parent snapshot has expired.
    """
    table = lake.table(identifier)
    columns = ColumnRoles.of(table, identifier)
    snapshot = _snapshot(table, identifier, snapshot_id)
    before = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None
    if before is None:
        raise RefusedError(
            f"table {identifier}: the snapshot before {snapshot.snapshot_id} has expired; allowed: a commit whose "
            "parent snapshot is kept"
        )
    looked_at = _PublishedCommit(lake, identifier, table, columns, snapshot, before)
    cases = [looked_at.case(plan) for plan in plans_of(table, snapshot)]
    records = JudgedRecords.of(looked_at.files, columns)
    ends = {
        case.claim.plan_id: tuple(
            (end, looked_at.kept_from(case.claim, end))
            for end in dict.fromkeys((case.claim.log_end_offset, *looked_at.last_of(case)))
        )
        for case in cases
    }
    return VerifiedCommit(snapshot.snapshot_id, records, tuple(cases), ends)


def _snapshot(table: Table, identifier: str, snapshot_id: int | None) -> Snapshot:
    if snapshot_id is not None:
        snapshot = table.snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise RefusedError(
                f"table {identifier} has no snapshot {snapshot_id}; allowed: a snapshot that it still holds"
            )
        if not _has_result(table, snapshot):
            raise RefusedError(
                f"table {identifier}: snapshot {snapshot_id} was not published by Firn; allowed: a commit by "
                f"one of the lanes {', '.join(STAGED)}"
            )
        return snapshot
    for one in ancestors(table):
        if _has_result(table, one):
            return one
    raise RefusedError(
        f"table {identifier} has no commit to verify; required: a commit by one of the lanes {', '.join(STAGED)}"
    )


def _has_result(table: Table, snapshot: Snapshot) -> bool:
    plans = plans_of(table, snapshot)
    return bool(plans) and all(plan.lane in {lane.value for lane in STAGED} for plan in plans)


@dataclass(frozen=True)
class _PublishedCommit:
    lake: Lake
    identifier: str
    table: Table
    columns: ColumnRoles
    snapshot: Snapshot
    before: Snapshot

    @property
    def files(self) -> DataFiles:
        return DataFiles.of(self.table)

    def case(self, plan: PublishedPlan) -> Case:
        """The case of one plan."""
        owner, lane = plan.topic_partition, Lane(plan.lane)
        if lane is Lane.ERASE:
            job_id = self._job_id(plan)
            erasing = ErasingCommit(self.identifier, self.table, self.columns, self.before, self.snapshot, job_id)
            return erasing.case(plan, self._segments, self._deletes)
        moved = Moved.between(self.table, self.columns, self.before, self.snapshot, owner)
        removed, stayed, added = map(files_of, (moved.removed, moved.stayed, moved.added))
        if lane in POSITION_DELETING:
            inputs = self._hiding.files(plan, stayed)
            return Case(self._claim(plan, lane, {one.source.path for one in inputs}, (), ()), inputs, None)
        left = [file for file in stayed if lane is Lane.FULL and self._level(file) == TAIL]
        listed = self._deletes.among((*removed, *left), self._number_of(added))
        files = [self._listing.file(BEFORE, file, listed.get(file.file_path)) for file in removed]
        files += [self._listing.file(IN_PLACE, file, listed.get(file.file_path)) for file in left]
        files += [self._listing.file(AFTER, file) for file in added]
        if lane is not Lane.MERGE:
            files += self._beside(plan)
        taken = {file.file_path for file in (*removed, *left)}
        return Case(self._claim(plan, lane, taken, removed, added), tuple(files), None)

    def last_of(self, case: Case) -> Iterator[int]:
        """Yield the highest offset that the plan read; nothing if it read no records."""
        read_paths = {file.source.path for file in case.files if file.side != AFTER}
        owner = TopicPartition(case.claim.topic, case.claim.partition)
        ends = [one.last_offset for one in self._segments.by_partition.get(owner, ()) if one.path in read_paths]
        if ends:
            yield max(ends)

    def _number_of(self, added: Sequence[DataFile]) -> int | None:
        """The data sequence number of the files that the plan wrote; None if that is the commit's own number."""
        paths = {file.file_path for file in added}
        if self.columns.levels_apart or not paths:
            return None
        manifests = [one for one in self.snapshot.manifests(self.table.io) if one.content == ManifestContent.DATA]
        entries = Manifests(self.table.io).live(manifests)
        return min(one.sequence_number or 0 for one in entries if one.data_file.file_path in paths)

    def kept_from(self, claim: Claim, end: int) -> int:
        """The first offset that might have been the highest that readers saw when the log ended at ``end``."""
        owner = TopicPartition(claim.topic, claim.partition)
        segments = self._segments.by_partition.get(owner, ())
        return HideMemory(self._hide_memory.compared_in(owner)).kept_from(segments, end)

    def _level(self, file: DataFile) -> int | None:
        return self.columns.level_of(self.table, file)

    def _beside(self, plan: PublishedPlan) -> Iterator[JudgedFile]:
        """Files that the commit added to side branches, and the removed tombstones that were on their branch before."""
        job_id = self._job_id(plan)
        for branch in SIDE_BRANCHES:
            for file in self._on_branch(branch, job_id):
                own = job_of(file.file_path) == job_id
                if TopicPartition(*self.columns.owner(self.table, file)) != plan.topic_partition:
                    continue
                if own or branch == REMOVED_TOMBSTONES:
                    yield self._listing.file(AFTER if own else BEFORE, file)

    def _on_branch(self, branch: str, job_id: str) -> Iterator[DataFile]:
        """The data files of ``branch`` right after the commit."""
        for snapshot in ancestors(on_branch(at_snapshot(self.table, self.snapshot.snapshot_id), branch)):
            told = properties_of(snapshot).get(JOB_ID) == job_id
            # The commit's snapshot on the branch follows its snapshot on main by one sequence number, like others may.
            if told or (snapshot.sequence_number or 0) < (self.snapshot.sequence_number or 0):
                manifests = [one for one in snapshot.manifests(self.table.io) if one.content == ManifestContent.DATA]
                yield from (entry.data_file for entry in Manifests(self.table.io).live(manifests))
                return

    def _job_id(self, plan: PublishedPlan) -> str:
        told = CommitSummary.of(self.snapshot)
        return told.job_id if told else plan.id

    @cached_property
    def _segments(self) -> Segments:
        """The segments of the parent snapshot."""
        return read(at_snapshot(self.table, self.before.snapshot_id), self.identifier)

    @cached_property
    def _deletes(self) -> SnapshotDeletes:
        """The row-level deletes of the parent snapshot."""
        return SnapshotDeletes.of(self.table, self.before, (one.path for one in self._segments))

    @cached_property
    def _hiding(self) -> HidingCommit:
        return HidingCommit(self.identifier, self.table, self._listing, self.snapshot, self._segments, self._deletes)

    @cached_property
    def _listing(self) -> ListedFacts:
        return ListedFacts(self.table.schema(), self.columns)

    @cached_property
    def _hide_memory(self) -> TableHideMemory:
        """The memory of lane `hide` when the commit was planned; empty if it is no longer known."""
        try:
            return hide_memory_at(self.table, self.before.snapshot_id)
        except RefusedError:
            return TableHideMemory()

    def _claim(
        self, plan: PublishedPlan, lane: Lane, taken: set[str], removed: Sequence[DataFile], added: Sequence[DataFile]
    ) -> Claim:
        segments = self._segments
        own = segments.by_partition.get(plan.topic_partition, ())
        outside = [one for one in own if one.path not in taken and one.records]
        strays = segments.strays_of(plan.topic_partition)
        bases = [*(one.base_offset for one in outside), *(stray.base_offset for stray in strays)]
        transactional = lane not in _COPIES and any(
            one.transactional or one.control for one in own if one.path in taken
        )
        now_ms = CommitClock.of(self.snapshot).at_ms
        return Claim(
            table=self.identifier,
            lane=cast("JudgedLane", lane.value),
            plan_id=plan.id,
            topic=plan.topic,
            partition=plan.partition,
            now_ms=now_ms,
            level_out=LEVEL_OUT.get(lane, 0),
            clean_below=min(bases, default=None),
            log_end_offset=max((one.last_offset for one in own if one.records), default=-1),
            delete_retention_ms=self._retention(removed, added, now_ms) if lane not in _COPIES else 0,
            transactional=transactional,
            markers=tuple(self._markers(one.path for one in outside if one.control)) if transactional else (),
            **plan.counts.model_dump(exclude={"expired"}),
        )

    def _retention(self, removed: Iterable[DataFile], added: Iterable[DataFile], now_ms: int) -> int:
        """Delete retention: the time from the plan's clock to the delete horizon of most newly stamped tombstones.

        It is derived, because the table's earlier properties are unknown. The judge requires that all horizons agree.
        """
        stamped = dict(chain.from_iterable(self._horizons(file) for file in removed if self._level(file) in (2, TAIL)))
        new = Counter(
            horizon for file in added for offset, horizon in self._horizons(file) if stamped.get(offset) != horizon
        )
        ((horizon, _),) = new.most_common(1) or ((now_ms * _MICROS, 0),)
        return max(0, horizon // _MICROS - now_ms)

    def _horizons(self, file: DataFile) -> Iterator[tuple[int, int]]:
        """Offset and delete horizon (epoch microseconds) of each record of ``file`` that has a horizon."""
        column = self.table.schema().find_field(self.columns.delete_horizon)
        if (file.null_value_counts or {}).get(column.field_id) == file.record_count:
            return
        names = [self.columns.offset, self.columns.delete_horizon]
        for batch in self.files.batches(Source.of(file), names):
            has = batch.filter(batch.column(names[1]).is_valid())
            yield from zip(
                has.column(names[0]).to_pylist(), pc.cast(has.column(names[1]), "int64").to_pylist(), strict=True
            )

    def _markers(self, paths: Iterable[str]) -> Iterator[tuple[int, int, bool]]:
        """The transaction markers in segments outside the inputs."""
        wanted = set(paths)
        manifests = [one for one in self.before.manifests(self.table.io) if one.content == ManifestContent.DATA]
        columns = ["key", "offset", "is_control", "producer_id"]
        for entry in Manifests(self.table.io).live(manifests):
            if entry.data_file.file_path not in wanted:
                continue
            for batch in self.files.batches(Source.of(entry.data_file), columns):
                for row in batch.filter(pc.fill_null(batch.column("is_control"), fill_value=False)).to_pylist():
                    if row["key"] and row["key"][2:4] in _ENDS:
                        yield row["producer_id"], row["offset"], _ENDS[row["key"][2:4]]


_ENDS = {b"\0\1": True, b"\0\0": False}
"""Control record types that end a transaction: true for committed, false for aborted."""


def ended_at(case: Case, end: int, kept_from: int) -> Case:
    """The case under the assumption that at planning time the log ended at offset ``end``, and ``kept_from`` was the
    first offset that may have been the highest that readers saw."""
    return replace(case, claim=replace(case.claim, log_end_offset=end, kept_from=kept_from))
