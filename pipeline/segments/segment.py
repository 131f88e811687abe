"""What a segment is. Everything here comes from file metadata; no record was read for it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from pipeline.errors import RefusedError

LANDED, MERGED, RUN, TAIL = 0, 1, 2, 3
"""The levels: 0 landed, 1 merged, 2 cleaned run, 3 tail. NULL in the table means 0."""


class TopicPartition(NamedTuple):
    """Kafka's unit of order, and Firn's unit of cleaning."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """As Kafka writes it: ``orders-3``."""
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> "TopicPartition":
        """The topic partition that Kafka writes as ``text``; RefusedError when it is none."""
        topic, _, partition = text.rpartition("-")
        if not topic or not (partition.isascii() and partition.isdigit()):
            raise RefusedError(f"{text!r} is not a topic partition; allowed: <topic>-<partition>, such as orders-0")
        return cls(topic, int(partition))


@dataclass(frozen=True, slots=True)
class Segment:
    """One live data file. Offsets are inclusive, times are epoch milliseconds, sizes are file bytes.

    A segment without records has ``base_offset`` = ``last_offset`` = -1 and no timestamps worth using (0).
    """

    path: str
    topic_partition: TopicPartition
    level: int
    base_offset: int
    last_offset: int
    records: int
    bytes: int
    tombstones: int
    null_keys: int
    oldest_ms: int
    newest_ms: int
    sequence_number: int
    row_deletes: int
    """Row-level delete files that may apply to this segment."""

    @property
    def order(self) -> tuple[int, int, str]:
        """Offset order; the path breaks ties so that plans are deterministic."""
        return (self.base_offset, self.last_offset, self.path)

    def __str__(self) -> str:
        """How messages name a segment."""
        return f"{self.topic_partition} L{self.level} [{self.base_offset}..{self.last_offset}] {self.path}"


@dataclass(frozen=True)
class Segments:
    """All segments of one snapshot, in offset order within their topic partition."""

    identifier: str
    table_uuid: str
    snapshot_id: int | None
    by_partition: Mapping[TopicPartition, tuple[Segment, ...]]

    @classmethod
    def of(cls, identifier: str, table_uuid: str, snapshot_id: int | None, segments: Iterable[Segment]) -> "Segments":
        """Sort and group ``segments``."""
        ordered = sorted(segments, key=lambda segment: (segment.topic_partition, segment.order))
        grouped = groupby(ordered, key=lambda segment: segment.topic_partition)
        return cls(identifier, table_uuid, snapshot_id, {key: tuple(group) for key, group in grouped})

    def __iter__(self) -> Iterator[Segment]:
        """Every segment, topic partition by topic partition."""
        return (segment for segments in self.by_partition.values() for segment in segments)
