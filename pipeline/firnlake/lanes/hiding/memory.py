"""The memory of lane `hide`: which segments of a table were compared, and how many records are hidden in each (C28).

It saves work, and counts as garbage what is hidden; no record depends on it. Lost, it costs one comparison of
everything. It is the statistics file of the head of branch `firn_hidden`, which the lane's commits change with main.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.branch_snapshot import BranchSnapshot
from firnlake.iceberg.branches import HIDDEN, on_branch
from firnlake.iceberg.side_branches import Blob, BranchFile, file_of, location_on, read_puffin, rows_as_bytes, rows_of
from firnlake.iceberg.snapshots import ancestors
from firnlake.table.segment import TAIL, Segment
from firnlake.table.topic_partition import PartitionRow, TopicPartition


@dataclass(frozen=True, slots=True)
class Compared(PartitionRow):
    """How far the segments of one topic partition were compared with each other.

    Of all segments with a file sequence number up to ``sequence_number``, those of the tail and those that begin below
    offset ``before`` showed one record per key after the commit.
    """

    sequence_number: int
    """That of the snapshot which the comparison was planned on."""
    before: int | None
    """None: all offsets."""
    snapshot_id: int
    """Main's snapshot that the commit made."""
    end: int | None
    """Highest offset that readers saw among these, or past them; None: none was seen, or nobody looked."""
    end_path: str
    """The segment that holds it; empty without one."""
    committed: int = 0
    """Sequence number of main's snapshot; the commit itself fills it in."""


@dataclass(frozen=True, slots=True)
class Hidden(PartitionRow):
    """``records`` of the segment ``path`` were hidden when it was compared last, by lane `hide` or by other deletes."""

    path: str
    records: int


@dataclass(frozen=True)
class TableHideMemory:
    """The memory of lane `hide` about a table."""

    compared: tuple[Compared, ...] = ()
    """One per topic partition."""
    hidden: tuple[Hidden, ...] = ()
    """Of segments with hidden records."""

    def compared_in(self, topic_partition: TopicPartition) -> Compared | None:
        """How far ``topic_partition`` is compared; None: not at all."""
        return self._compared.get(topic_partition)

    def hidden_in(self, topic_partition: TopicPartition) -> Mapping[str, int]:
        """Number of hidden records in the segments of ``topic_partition``, by path."""
        return self._hidden.get(topic_partition, {})

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The topic partitions of which anything is known, sorted."""
        return tuple(sorted({*self._compared, *self._hidden}))

    def after(self, compared: Iterable[Compared], hidden: Iterable[Hidden]) -> "TableHideMemory":
        """This memory once ``compared`` and ``hidden`` hold for the topic partitions of ``compared``."""
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
_ANEW = "everything is compared anew"


def blobs_of(memory: TableHideMemory) -> list[Blob]:
    """The blobs that hold ``memory``."""
    return [
        Blob(COMPARED, rows_as_bytes(Compared, memory.compared)),
        Blob(RECORDS, rows_as_bytes(Hidden, memory.hidden)),
    ]


def read_hide_memory(table: Table) -> TableHideMemory:
    """The memory of lane `hide` about ``table``; empty when nothing was compared, or its file is lost or unreadable.

    Topic partitions whose last comparison main's history no longer has (a rollback, an expired snapshot) are not
    compared: what it hid may be visible again. UnavailableError when the store does not answer.
    """
    try:
        location = location_on(table, HIDDEN, _ANEW)
        memory = TableHideMemory() if location is None else _read_file(table, location)
    except RefusedError as error:
        log.warning("%s", error)
        return TableHideMemory()
    history = {snapshot.snapshot_id for snapshot in ancestors(table)}
    return TableHideMemory(tuple(one for one in memory.compared if one.snapshot_id in history), memory.hidden)


def hide_memory_at(table: Table, number: int) -> TableHideMemory:
    """The memory of lane `hide` when the newest snapshot of ``table`` had the sequence number ``number``.

    Raises RefusedError when that is no longer known.
    """
    until = (one for one in ancestors(on_branch(table, HIDDEN)) if (one.sequence_number or 0) <= number)
    head = next(until, None)
    location = file_of(table, head.snapshot_id) if head else None
    if location is None:
        raise RefusedError(
            f"table {'.'.join(table.name())}: what lane hide had compared at sequence number {number} is no longer "
            f"known; allowed: a commit whose snapshot on branch {HIDDEN} is kept"
        )
    return _read_file(table, location)


def _read_file(table: Table, location: str) -> TableHideMemory:
    subject = f"table {'.'.join(table.name())}: what lane hide has compared"
    blobs = {one.type: one for one in read_puffin(table, location, subject)}
    try:
        return TableHideMemory(rows_of(Compared, blobs[COMPARED]), rows_of(Hidden, blobs[RECORDS]))
    except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise RefusedError(f"{subject} in {location} is not readable: {error}; {_ANEW}") from error


@dataclass(frozen=True)
class HideMemoryChange:
    """``edit`` makes the new content of the branch from the one that the commit is made on, at every try anew. It may
    raise ConflictError where it does not fit. A comparison without ``committed`` gets the commit's sequence number."""

    edit: Callable[[TableHideMemory], TableHideMemory]

    def on(self, target: Table, branch: str) -> BranchSnapshot:
        """The branch's part of a commit to ``target``."""
        return BranchFile(branch, target.metadata.new_snapshot_id(), "hidden", self._blobs)

    def _blobs(self, target: Table, committed: int) -> list[Blob]:
        new = self.edit(read_hide_memory(target))
        compared = tuple(one if one.committed else replace(one, committed=committed) for one in new.compared)
        return blobs_of(replace(new, compared=compared))


@dataclass(frozen=True)
class HideMemory:
    """``compared`` is None where nothing was compared yet; ``hidden`` are numbers of records by segment path."""

    compared: Compared | None = None
    hidden: Mapping[str, int] = field(default_factory=dict)

    def knows(self, segment: Segment) -> bool:
        """True when ``segment`` was compared with all others of which this is true."""
        compared = self.compared
        if compared is None or segment.sequence_number > compared.sequence_number:
            return False
        return segment.level == TAIL or compared.before is None or segment.base_offset < compared.before

    def hidden_in(self, segment: Segment) -> int:
        """Number of records of ``segment`` that are known to be hidden."""
        return min(self.hidden.get(segment.path, 0), segment.records) if segment.row_deletes else 0

    def counted(self, segment: Segment) -> int | None:
        """Number of records of ``segment`` that row-level deletes hide: exact where the last comparison has seen
        them all, else as ``Segment.hidden``."""
        if not segment.row_deletes:
            return 0
        compared = self.compared
        if compared and self.knows(segment) and _untouched(segment, compared):
            return self.hidden_in(segment)
        # No delete file is without rows: at least one may be of this segment.
        return None if segment.hidden is None else max(1, segment.hidden)

    def kept_from(self, segments: Collection[Segment], end: int) -> int:
        """The first offset that may be the highest that readers see of ``segments`` up to ``end``: their log end, or
        less where row-level deletes may hide it (C4, C27); -1 when they may hide every record."""
        shown = max((one.shown_from for one in segments if one.last_offset <= end), default=-1)
        seen = self._shows_end(segments)
        return shown if seen is None or seen > end else max(shown, seen)

    def _shows_end(self, segments: Collection[Segment]) -> int | None:
        """The highest offset of ``segments`` that readers are known to see; None: not known.

        The last comparison saw it, and no delete has reached its segment since: the lane itself never hides it (C4).
        """
        compared = self.compared
        if compared is None or compared.end is None:
            return None
        is_seen = any(one.path == compared.end_path and _untouched(one, compared) for one in segments)
        return compared.end if is_seen else None


NOTHING_COMPARED = HideMemory()


def _untouched(segment: Segment, compared: Compared) -> bool:
    """True when no delete but the lane's own has reached ``segment`` since it was compared.

    Equality deletes may land between plan and commit, position deletes are a conflict.
    """
    return segment.newest_delete <= (compared.sequence_number if segment.equality_deletes else compared.committed)


def hide_memory_of(table: Table) -> Mapping[TopicPartition, HideMemory]:
    """The memory of lane `hide` by topic partition; without those that it knows nothing of."""
    memory = read_hide_memory(table)
    return {place: HideMemory(memory.compared_in(place), memory.hidden_in(place)) for place in memory.topic_partitions}


def dirty_bytes(hide_memory: HideMemory, segment: Segment) -> int:
    """Bytes of ``segment`` that may be garbage (C12, C28): those of hidden records, which are of average size, and all
    of a segment of the head that was not compared."""
    if segment.level != TAIL and not hide_memory.knows(segment):
        return segment.bytes
    hidden = hide_memory.hidden_in(segment)
    return segment.bytes * hidden // segment.records if hidden else 0
