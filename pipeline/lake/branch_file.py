"""The Puffin file of a side branch that holds no data files: the statistics file of the branch's head.

Every Iceberg client keeps such a file as long as its snapshot, and readers of main never see it.
"""

import uuid
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyiceberg.table import Table
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import SetStatisticsUpdate, TableUpdate

from pipeline.errors import RefusedError
from pipeline.lake.branch_snapshot import BranchSnapshot, SnapshotContents, place
from pipeline.lake.branches import head_of
from pipeline.lake.manifests import Manifests
from pipeline.lake.puffin import Blob, write_puffin

if TYPE_CHECKING:
    from pyiceberg.table.statistics import StatisticsFile

_SUFFIX: Final = ".puffin"


class BranchFile(BranchSnapshot):
    """The part of a commit that writes the file of a branch anew, in every try on what the branch then holds."""

    def __init__(self, name: str, snapshot_id: int, title: str) -> None:
        super().__init__(name, snapshot_id)
        self._title = title
        self._written: list[StatisticsFile] = []

    @abstractmethod
    def blobs(self, target: Table, committed: int) -> Sequence[Blob]:
        """The content that the file has after a commit on ``target``; ConflictError when it does not fit there.

        ``committed`` is the sequence number of the commit's snapshot on main.
        """

    @property
    def prepared(self) -> list[str]:
        return [one.statistics_path for one in self._written]

    @property
    def unused(self) -> list[str]:
        return self.prepared[:-1]

    def contents(self, target: Table, parent: Snapshot | None, manifests: Manifests) -> SnapshotContents:  # noqa: ARG002
        # Main's snapshot is the first of the commit.
        blobs = self.blobs(target, target.metadata.next_sequence_number())
        location = place(target, f"{self._title}-{self.snapshot_id}-{uuid.uuid4()}{_SUFFIX}")
        self._written.append(write_puffin(target, location, blobs, self.snapshot_id, self.sequence_number))
        totals = Summary(operation=Operation.APPEND, **SnapshotSummaryCollector().build())
        return SnapshotContents([], [], update_snapshot_summaries(totals, parent.summary if parent else None))

    def updates(self, snapshot: Snapshot) -> tuple[TableUpdate, ...]:
        """Add ``snapshot`` and its statistics file, and move the branch to it."""
        return *super().updates(snapshot), SetStatisticsUpdate.model_validate({"statistics": self._written[-1]})


def location_on(table: Table, branch: str, lost: str) -> str | None:
    """Location of the file that ``branch`` of ``table`` holds; None without the branch.

    Raises RefusedError as ``head_of``, and when another tool took the file off its snapshot; ``lost`` says what that
    means.
    """
    head = head_of(table, branch)
    return None if head is None else location_at(table, branch, head.snapshot_id, lost)


def location_at(table: Table, branch: str, snapshot_id: int, lost: str) -> str:
    """Location of the file that snapshot ``snapshot_id`` of ``branch`` holds; raises as ``location_on``."""
    location = file_of(table, snapshot_id)
    if location is None:
        raise RefusedError(
            f"table {'.'.join(table.name())}: snapshot {snapshot_id} of branch {branch} has no statistics file any "
            f"more, so {lost}"
        )
    return location


def file_of(table: Table, snapshot_id: int) -> str | None:
    """Location of the statistics file of snapshot ``snapshot_id``; None without one."""
    files = (one.statistics_path for one in table.metadata.statistics if one.snapshot_id == snapshot_id)
    return next(files, None)
