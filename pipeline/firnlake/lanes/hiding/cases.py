"""The files that the judge reads to verify a commit of lane `hide` or `convert` in a table's history (C27, C28).

The data files are the same before and after the commit. The judge reads each file twice: with the row-level deletes of
the snapshot before the commit, and with those of the commit's snapshot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import HIDDEN
from firnlake.job.lane import Lane
from firnlake.lanes.hiding.memory import HideMemory, TableHideMemory, hide_memory_at
from firnlake.table.published_plans import PublishedPlan
from firnlake.table.segment import Segments
from firnlake.validate.cases import JudgedFile, ListedFacts
from firnlake.validate.deletes import SnapshotDeletes
from firnlake_expectations.tables import SHOWN


@dataclass(frozen=True)
class HidingCommit:
    """The commit of lane `hide` or `convert` that made ``snapshot``.

    ``segments`` and row-level ``deletes`` are those of the snapshot before ``snapshot``.
    """

    identifier: str
    table: Table
    listing: ListedFacts
    snapshot: Snapshot
    segments: Segments
    deletes: SnapshotDeletes

    def files(self, plan: PublishedPlan, stayed: Sequence[DataFile]) -> tuple[JudgedFile, ...]:
        """The inputs of ``plan``, each with the row-level deletes before and after the commit.

        The inputs are among ``stayed``, the files that the commit left in the table. Raises RefusedError when the
        snapshots that are needed to identify the inputs have expired.
        """
        told_by = self._converted if plan.lane == Lane.CONVERT else self._hidden
        inputs, known = told_by(plan, stayed)
        before, after = (deletes.among(inputs, known) for deletes in (self.deletes, self._deletes_after))
        return tuple(
            self.listing.file(SHOWN, file, before.get(file.file_path), after.get(file.file_path)) for file in inputs
        )

    def _converted(self, plan: PublishedPlan, stayed: Sequence[DataFile]) -> tuple[list[DataFile], int | None]:
        """The inputs of a `convert` plan, and the data sequence number of the last equality deletes that the plan knew.

        More equality deletes may have landed between plan and commit. The number is found by trial: the equality
        deletes up to the right number apply to as many files and records as the plan's counts say.
        """
        counts = plan.counts
        took = (counts.segments_in_place, counts.records_in + counts.deleted)
        reached = [(file, self.deletes.first_by_value(file)) for file in stayed]
        known, inputs = None, list(stayed)
        for number in sorted({one.file.sequence_number for one in self.deletes.deletes if one.file.is_equality}):
            possible = [file for file, first in reached if first is not None and first <= number]
            if (len(possible), sum(file.record_count for file in possible)) == took:
                known, inputs = number, possible
        return inputs, known

    def _hidden(self, plan: PublishedPlan, stayed: Sequence[DataFile]) -> tuple[list[DataFile], int | None]:
        """The inputs of a `hide` plan, and the data sequence number of the last equality deletes that the plan knew.

        Both come from the memory that the plan's commit stored on branch `firn_hidden`.
        """
        compared = self._hide_memory.compared_in(plan.topic_partition)
        if compared is None or compared.snapshot_id != self.snapshot.snapshot_id:
            raise RefusedError(
                f"table {self.identifier}: the list of segments of {plan.topic_partition} that were compared for "
                f"snapshot {self.snapshot.snapshot_id} is gone; allowed: a commit whose snapshot on branch {HIDDEN} "
                "is kept"
            )
        hide_memory, segments = HideMemory(compared), self.segments.by_partition.get(plan.topic_partition, ())
        taken = {one.path for one in segments if one.records and hide_memory.knows(one)}
        return [file for file in stayed if file.file_path in taken], compared.sequence_number

    @cached_property
    def _deletes_after(self) -> SnapshotDeletes:
        """The row-level deletes of the commit's snapshot."""
        return SnapshotDeletes.of(self.table, self.snapshot, (one.path for one in self.segments))

    @cached_property
    def _hide_memory(self) -> TableHideMemory:
        """The memory of lane `hide` right after the commit."""
        return hide_memory_at(self.table, self.snapshot.snapshot_id)
