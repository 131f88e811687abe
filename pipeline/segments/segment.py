"""What a segment is. Everything here comes from file metadata; no record was read for it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pipeline.lake.topic_partition import TopicPartition

LANDED, MERGED, RUN, TAIL = 0, 1, 2, 3
"""The levels: 0 landed, 1 merged, 2 cleaned run, 3 tail. NULL in the table means 0."""

LEVELS = range(LANDED, TAIL + 1)


@dataclass(frozen=True, slots=True)
class Segment:
    """One live data file. Offsets are inclusive, times are epoch milliseconds, sizes are file bytes.

    A segment without records has ``base_offset`` = ``last_offset`` = -1 and no timestamps worth using (0), and so has
    one whose metadata does not tell them: then ``problem`` says what is missing.
    """

    path: str
    topic_partition: TopicPartition
    level: int
    base_offset: int
    last_offset: int
    records: int
    bytes: int
    tombstones: int | None
    """None where only the records tell which are tombstones (an adopted table's condition)."""
    null_keys: int
    oldest_ms: int
    newest_ms: int
    sequence_number: int
    row_deletes: int
    """Row-level delete files that may apply to this segment."""
    committed_ms: int | None = None
    """Clock of the commit that added the file; None when the table has forgotten that snapshot."""
    by_firn: bool = False
    """Whether that commit is one of Firn's own: then the clock is the plan's."""
    whole: bool = False
    """Whether Firn's commit left nothing cleanable out for want of room: only then a full clean was one."""
    keys: int | None = None
    """Distinct user keys where metadata tells; None: at most as many as records."""
    stamped: int = 0
    """Records known to carry a delete horizon; 0 as well when the metrics do not say."""
    first_horizon_ms: int | None = None
    """The earliest delete horizon; None when there is none or the metrics do not say."""
    last_horizon_ms: int | None = None
    """The latest delete horizon; None when there is none or the metrics do not say."""
    transactional: bool = False
    """Whether it may hold records of transactions, markers included (C10)."""
    control: bool = False
    """Whether it may hold control records, such as markers of transactions."""
    problem: str | None = None
    """Why nothing in its topic partition can be cleaned while this segment is there, and what is allowed (C20)."""
    copies: int = 1
    """How often the table lists the file: readers see its records so many times, and records and bytes say so."""

    @property
    def order(self) -> tuple[int, int, str]:
        """Offset order; the path breaks ties so that plans are deterministic."""
        return (self.base_offset, self.last_offset, self.path)

    def __str__(self) -> str:
        """How messages name a segment."""
        known = self.base_offset >= 0 or not self.records
        offsets = f"[{self.base_offset}..{self.last_offset}]" if known else "[offsets unknown]"
        return f"{self.topic_partition} L{self.level} {offsets} {self.path}"


@dataclass(frozen=True, slots=True)
class Stray:
    """A live data file that belongs to no topic partition, or to more than metadata can tell. Bounds are inclusive.

    It is never an input. What it may hold still counts: a tombstone is not clean while a stray may hold an older record
    of its topic partition (C7).
    """

    path: str
    problem: str
    topics: tuple[str | None, str | None] | None
    """Lowest and highest topic it may hold, None where unknown. None altogether: its records have no topic."""
    partitions: tuple[int | None, int | None] | None
    """Lowest and highest partition it may hold, likewise."""
    base_offset: int
    """Lowest offset it may hold; 0 when its metadata does not say."""

    def may_hold(self, topic_partition: TopicPartition) -> bool:
        """Whether a record of ``topic_partition`` may be in it."""
        return _within(self.topics, topic_partition.topic) and _within(self.partitions, topic_partition.partition)

    def __str__(self) -> str:
        """What it is and what is allowed."""
        return f"segment {self.path} {self.problem}"


def _within(bounds: tuple[Any, Any] | None, value: str | int) -> bool:
    if bounds is None:
        return False
    lowest, highest = bounds
    return (lowest is None or lowest <= value) and (highest is None or value <= highest)


@dataclass(frozen=True)
class Segments:
    """All segments of one snapshot, in offset order within their topic partition."""

    identifier: str
    table_uuid: str
    snapshot_id: int | None
    by_partition: Mapping[TopicPartition, tuple[Segment, ...]]
    strays: tuple[Stray, ...] = ()
    newest_clock_ms: int | None = None
    """The latest clock of a plan that Firn published on the table; None where its history has none."""

    @classmethod
    def of(
        cls,
        identifier: str,
        table_uuid: str,
        snapshot_id: int | None,
        segments: Iterable[Segment],
        strays: Iterable[Stray] = (),
    ) -> "Segments":
        """Sort and group ``segments``."""
        ordered = sorted(segments, key=lambda segment: (segment.topic_partition, segment.order))
        grouped = groupby(ordered, key=lambda segment: segment.topic_partition)
        by_partition = {key: tuple(group) for key, group in grouped}
        return cls(identifier, table_uuid, snapshot_id, by_partition, tuple(strays))

    def strays_of(self, topic_partition: TopicPartition) -> tuple[Stray, ...]:
        """The strays that may hold records of ``topic_partition``."""
        return tuple(stray for stray in self.strays if stray.may_hold(topic_partition))

    def __iter__(self) -> Iterator[Segment]:
        """Every segment, topic partition by topic partition."""
        return (segment for segments in self.by_partition.values() for segment in segments)
