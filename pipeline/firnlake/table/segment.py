"""Segments and strays. All their facts come from file metadata; no record is read.

One more fact about a segment is a field of ``Segment``, and its value in ``Classifier.of`` if a manifest entry tells
it, or in ``manifest_reader.read`` if the table's snapshots and delete files tell it.
"""

from dataclasses import dataclass
from typing import Any

from firnlake.table.topic_partition import TopicPartition

LANDED, MERGED, RUN, TAIL = 0, 1, 2, 3
"""The levels: 0 landed, 1 merged, 2 cleaned run, 3 tail. NULL in the table means 0."""

LEVELS = range(LANDED, TAIL + 1)


@dataclass(frozen=True, slots=True)
class Segment:
    """One live data file. Offsets are inclusive, times are epoch milliseconds, ``bytes`` is the size of the file.

    A segment without records has ``base_offset`` = ``last_offset`` = -1 and meaningless timestamps (0). The same is
    true of a segment whose metadata lacks these values; then ``problem`` says what is missing.
    """

    path: str
    topic_partition: TopicPartition
    level: int
    base_offset: int
    last_offset: int
    records: int
    bytes: int
    data_bytes: int
    """The bytes that ratios and thresholds count (C12): those of the columns, without the footer, or the file's size if
    its manifest entry has no ``column_sizes``."""
    tombstones: int | None
    """Number of tombstones; None when an adopted table's condition decides, so that only the records can tell."""
    null_keys: int
    oldest_ms: int
    newest_ms: int
    sequence_number: int
    """File sequence number: the sequence number of the commit that added the file."""
    committed_ms: int | None = None
    """Time of the commit that added the file; None when the commit's snapshot has expired."""
    written_ms: int | None = None
    """Time of writing as the store reports it; None if every record has a timestamp, or if the time is unknown."""
    by_firn: bool = False
    """True when a lane except `erase`, which keeps levels, added the file; then its commit time is the plan's clock."""
    keys: int | None = None
    """Number of distinct user keys; None when metadata does not tell, so that each record may have a different key."""
    stamped: int = 0
    """Number of records known to carry a delete horizon; also 0 when the metrics do not say."""
    first_horizon_ms: int | None = None
    """The earliest delete horizon; None when there is none or the metrics do not say."""
    last_horizon_ms: int | None = None
    """The latest delete horizon; None when there is none or the metrics do not say."""
    transactional: bool = False
    """True when the segment may hold records of transactions, markers included (C10)."""
    control: bool = False
    """True when the segment may hold control records, such as transaction markers."""
    problem: str | None = None
    """Why this segment blocks the cleaning of its topic partition, and what is allowed (C20); None if it does not."""
    copies: int = 1
    """Number of times that the table lists the file. Readers see every copy, so ``records`` and ``bytes`` count all."""
    row_deletes: int = 0
    """Number of row-level delete files that may apply to this segment."""
    holding_deletes: int = 0
    """Number of equality delete files that hold up the segment, because the table is partitioned by level, so that
    later equality deletes would not reach the segment's records after a rewrite (C27)."""
    hidden: int | None = 0
    """Maximum number of records that row-level deletes hide; None if equality deletes may apply."""
    deletes: int = 0
    """Digest of the row-level delete files that may apply; 0 if there are none (``firnlake.iceberg.deletes``)."""
    equality_deletes: int = 0
    """Number of equality delete files that may apply. Also 0 if none of them can be removed from the table, because
    each also reaches a data file that no plan takes."""
    snapshot_id: int | None = None
    """Id of the snapshot that added the file, even after manifests were rewritten."""
    place: str = ""
    """Partition spec and values, which decide which row-level deletes apply (``firnlake.iceberg.deletes``)."""
    data_sequence_number: int = 0
    """The number that decides which row-level deletes apply; ``sequence_number``, unless the file was rewritten."""

    @property
    def order(self) -> tuple[int, int, str]:
        """Offset order; the path breaks ties so that plans are deterministic."""
        return (self.base_offset, self.last_offset, self.path)

    @property
    def arrived_ms(self) -> int:
        """When the segment came into the table: the time of its commit, or its newest timestamp if the snapshot has
        expired."""
        return self.newest_ms if self.committed_ms is None else self.committed_ms

    @property
    def shown_from(self) -> int:
        """An offset at or past which readers surely see a record of the segment; -1 if metadata does not tell (C27).

        Position deletes may hide the last records, but not more records than they have positions.
        """
        if not self.row_deletes:
            return self.last_offset
        return self.base_offset if self.hidden is not None and self.hidden < self.records else -1

    def __str__(self) -> str:
        """The segment's name in messages."""
        known = self.base_offset >= 0 or not self.records
        offsets = f"[{self.base_offset}..{self.last_offset}]" if known else "[offsets unknown]"
        return f"{self.topic_partition} L{self.level} {offsets} {self.path}"


@dataclass(frozen=True, slots=True)
class UnassignedFile:
    """A stray: a live data file that metadata assigns to no single topic partition. Bounds are inclusive.

    A stray is never an input, but the records that it may hold matter: a tombstone is not clean while a stray may hold
    an older record of the tombstone's topic partition (C7).
    """

    path: str
    problem: str
    topics: tuple[str | None, str | None] | None
    """Lowest and highest topic that the file may hold, each None when unknown; None if every record has NULL."""
    partitions: tuple[int | None, int | None] | None
    """Lowest and highest partition that the file may hold, with None as in ``topics``."""
    base_offset: int
    """Lowest offset that the file may hold; 0 when its metadata does not say."""
    place: str = ""
    """Partition spec and values, which decide which row-level deletes apply (``firnlake.iceberg.deletes``)."""
    data_sequence_number: int = 0

    def may_hold(self, topic_partition: TopicPartition) -> bool:
        """True when the file may hold a record of ``topic_partition``."""
        return _within(self.topics, topic_partition.topic) and _within(self.partitions, topic_partition.partition)

    def __str__(self) -> str:
        """Description of the file in messages, and what is allowed."""
        return f"segment {self.path} {self.problem}"


def _within(bounds: tuple[Any, Any] | None, value: str | int) -> bool:
    if bounds is None:
        return False
    lowest, highest = bounds
    return (lowest is None or lowest <= value) and (highest is None or value <= highest)
