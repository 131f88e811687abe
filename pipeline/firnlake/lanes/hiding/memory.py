"""The memory of lane `hide`: which segments of a table were compared, and how many records are hidden in each (C28).

The memory saves comparisons, and says how many bytes of a segment are garbage. No record depends on it: if it is lost,
the lane compares everything once more. It is kept in the statistics file of a snapshot of branch `firn_hidden`, which
the lane's commits change together with main. Main names the snapshot that belongs to its history: after a rollback,
hidden records may be visible again.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.branch_snapshot import BranchSnapshot
from firnlake.iceberg.branches import HIDDEN, at_snapshot, head_of
from firnlake.iceberg.side_branches import Blob, BranchFile, file_of, location_on, read_puffin, rows_as_bytes, rows_of
from firnlake.table.segment import TAIL, Segment
from firnlake.table.topic_partition import PartitionRow, TopicPartition


@dataclass(frozen=True, slots=True)
class Compared(PartitionRow):
    """How far the segments of one topic partition were compared with each other.

    After the commit, readers saw one record per key in all segments that have a file sequence number up to
    ``sequence_number`` and are of the tail or begin below offset ``before``.
    """

    sequence_number: int
    """Sequence number of the snapshot on which the comparison was planned."""
    before: int | None
    """None if the comparison covered all offsets."""
    snapshot_id: int
    """Id of the snapshot that the commit made on main."""
    end: int | None
    """Highest offset that readers saw in these segments, or in later ones; None if no record was visible or the
    comparison did not determine the offset."""
    end_path: str
    """Path of the segment that holds offset ``end``; empty if ``end`` is None."""
    committed: int = 0
    """Sequence number of main's snapshot ``snapshot_id``; the commit itself fills it in."""


@dataclass(frozen=True, slots=True)
class Hidden(PartitionRow):
    """Number of ``records`` in segment ``path`` that were hidden, by lane `hide` or others, at its last comparison."""

    path: str
    records: int


@dataclass(frozen=True)
class TableHideMemory:
    """The memory of lane `hide` about a table."""

    compared: tuple[Compared, ...] = ()
    """One entry per topic partition."""
    hidden: tuple[Hidden, ...] = ()
    """One entry per segment with hidden records."""

    def compared_in(self, topic_partition: TopicPartition) -> Compared | None:
        """How far ``topic_partition`` was compared; None if it never was."""
        return self._compared.get(topic_partition)

    def hidden_in(self, topic_partition: TopicPartition) -> Mapping[str, int]:
        """Number of hidden records in the segments of ``topic_partition``, by path."""
        return self._hidden.get(topic_partition, {})

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The topic partitions with at least one entry, sorted."""
        return tuple(sorted({*self._compared, *self._hidden}))

    def after(self, compared: Iterable[Compared], hidden: Iterable[Hidden]) -> "TableHideMemory":
        """This memory, in which ``compared`` and ``hidden`` replace all entries of their topic partitions."""
        new = {one.topic_partition: one for one in compared}
        kept = (one for one in self.compared if one.topic_partition not in new)
        others = (one for one in self.hidden if one.topic_partition not in new)
        return TableHideMemory(
            tuple(sorted((*kept, *new.values()), key=lambda one: one.topic_partition)),
            tuple(sorted((*others, *hidden), key=lambda one: (one.topic_partition, one.path))),
        )

    @cached_property
    def _compared(self) -> dict[TopicPartition, Compared]:
        return {one.topic_partition: one for one in self.compared}

    @cached_property
    def _hidden(self) -> dict[TopicPartition, dict[str, int]]:
        by_partition: dict[TopicPartition, dict[str, int]] = {}
        for one in self.hidden:
            by_partition.setdefault(one.topic_partition, {})[one.path] = one.records
        return by_partition


log = logging.getLogger(__name__)

COMPARED = "firn-hidden-compared-v1"
RECORDS = "firn-hidden-records-v1"
_ANEW = "all segments are compared anew"


def blobs_of(memory: TableHideMemory) -> list[Blob]:
    """The blobs that hold ``memory``."""
    return [
        Blob(COMPARED, rows_as_bytes(Compared, memory.compared)),
        Blob(RECORDS, rows_as_bytes(Hidden, memory.hidden)),
    ]


def read_hide_memory(table: Table) -> TableHideMemory:
    """The memory of lane `hide` about ``table``; empty if nothing was compared, or if its file is lost or unreadable.

    Raises UnavailableError when the store does not answer.
    """
    try:
        location = location_on(table, HIDDEN, _ANEW)
        return TableHideMemory() if location is None else _read_file(table, location)
    except RefusedError as error:
        log.warning("%s", error)
        return TableHideMemory()


def hide_memory_at(table: Table, snapshot_id: int) -> TableHideMemory:
    """The memory of lane `hide` that belongs to snapshot ``snapshot_id`` of main.

    Raises RefusedError when that memory has expired.
    """
    head = head_of(at_snapshot(table, snapshot_id), HIDDEN)
    location = file_of(table, head.snapshot_id) if head else None
    if location is None:
        raise RefusedError(
            f"table {'.'.join(table.name())}: the list of segments that lane hide had compared at snapshot "
            f"{snapshot_id} is gone; allowed: a commit whose snapshot on branch {HIDDEN} is kept"
        )
    return _read_file(table, location)


def _read_file(table: Table, location: str) -> TableHideMemory:
    subject = f"table {'.'.join(table.name())}: the memory of lane hide"
    blobs = {one.type: one for one in read_puffin(table, location, subject)}
    try:
        return TableHideMemory(rows_of(Compared, blobs[COMPARED]), rows_of(Hidden, blobs[RECORDS]))
    except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise RefusedError(f"{subject} in {location} is not readable: {error}; {_ANEW}") from error


@dataclass(frozen=True)
class HideMemoryChange:
    """A change of branch `firn_hidden`, as part of a commit.

    Every try of the commit calls ``edit`` to make the new memory from the current one. ``edit`` may raise
    ConflictError. A comparison without ``committed`` gets the commit's sequence number.
    """

    edit: Callable[[TableHideMemory], TableHideMemory]

    def on(self, branch: str, snapshot_id: int) -> BranchSnapshot:
        """The part of a commit that makes this change on ``branch``, as snapshot ``snapshot_id``."""
        return BranchFile(branch, snapshot_id, "hidden", self._blobs)

    def _blobs(self, target: Table, committed: int) -> list[Blob]:
        new = self.edit(read_hide_memory(target))
        compared = tuple(one if one.committed else replace(one, committed=committed) for one in new.compared)
        return blobs_of(replace(new, compared=compared))


@dataclass(frozen=True)
class HideMemory:
    """The memory of lane `hide` about one topic partition.

    ``compared`` is None if nothing was compared yet; ``hidden`` maps segment paths to numbers of hidden records.
    """

    compared: Compared | None = None
    hidden: Mapping[str, int] = field(default_factory=dict)

    def knows(self, segment: Segment) -> bool:
        """True when ``segment`` was compared with all other segments for which this method returns true."""
        compared = self.compared
        if compared is None or segment.sequence_number > compared.sequence_number:
            return False
        return segment.level == TAIL or compared.before is None or segment.base_offset < compared.before

    def hidden_in(self, segment: Segment) -> int:
        """Number of records of ``segment`` that are known to be hidden."""
        return min(self.hidden.get(segment.path, 0), segment.records) if segment.row_deletes else 0

    def counted(self, segment: Segment) -> int | None:
        """Number of records in ``segment`` that row-level deletes hide; None if unknown.

        The number is exact if the last comparison has seen all deletes that apply; otherwise it is ``Segment.hidden``,
        but at least 1.
        """
        if not segment.row_deletes:
            return 0
        compared = self.compared
        if compared and self.knows(segment) and _untouched(segment, compared):
            return self.hidden_in(segment)
        # No delete file is empty, so at least one of its rows may apply to this segment.
        return None if segment.hidden is None else max(1, segment.hidden)

    def kept_from(self, segments: Collection[Segment], end: int) -> int:
        """A lower bound for the highest offset that readers see in ``segments`` up to offset ``end``.

        The bound is the log end, unless row-level deletes may hide it (C4, C27); -1 if they may hide every record.
        """
        shown = max((one.shown_from for one in segments if one.last_offset <= end), default=-1)
        seen = self._shows_end(segments)
        return shown if seen is None or seen > end else max(shown, seen)

    def _shows_end(self, segments: Collection[Segment]) -> int | None:
        """The highest offset of ``segments`` that readers are known to see; None if not known.

        The offset is known if the last comparison saw its record, and since then no delete other than the lane's was
        added for the record's segment; the lane itself never hides the record (C4).
        """
        compared = self.compared
        if compared is None or compared.end is None:
            return None
        is_seen = any(one.path == compared.end_path and _untouched(one, compared) for one in segments)
        return compared.end if is_seen else None


NOTHING_COMPARED = HideMemory()


def _untouched(segment: Segment, compared: Compared) -> bool:
    """True when no delete, apart from the lane's own deletes, was added for ``segment`` since its comparison.

    Equality deletes may land between plan and commit, whereas position deletes that land then are a conflict.
    """
    return segment.newest_delete <= (compared.sequence_number if segment.equality_deletes else compared.committed)


def hide_memory_of(table: Table) -> Mapping[TopicPartition, HideMemory]:
    """The memory of lane `hide` by topic partition; topic partitions without any entry are left out."""
    memory = read_hide_memory(table)
    return {place: HideMemory(memory.compared_in(place), memory.hidden_in(place)) for place in memory.topic_partitions}


def dirty_bytes(hide_memory: HideMemory, segment: Segment) -> int:
    """Bytes of ``segment`` that may be garbage (C12, C28).

    All bytes count if the segment is of the head and was not compared. Otherwise only its hidden records count, each
    with the average size of the segment's records.
    """
    if segment.level != TAIL and not hide_memory.knows(segment):
        return segment.data_bytes
    hidden = hide_memory.hidden_in(segment)
    return segment.data_bytes * hidden // segment.records if hidden else 0
