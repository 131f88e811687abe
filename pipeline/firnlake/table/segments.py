"""The segments of a snapshot as rows of a table, so that a million of them need no objects.

Each column holds one fact of every segment, and means the same as the field of that name in ``Segment``. The rows are
grouped by topic partition and in offset order within each group. ``Segment`` objects are made on demand.

    segments[TopicPartition("t", 0)]      # those of a topic partition, as objects
    segments.fact("records")              # [N] of all segments
    segments.starts                       # [P + 1] where the segments of each topic partition start
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firnlake.table.segment import LANDED, Segment, UnassignedFile
from firnlake.table.topic_partition import TopicPartition

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

UNKNOWN: Final = int(np.iinfo(np.int64).min)
"""Integer that stands for None."""

_KINDS: Final[Mapping[Any, tuple[pa.DataType, bool]]] = {
    int: (pa.int64(), False),
    int | None: (pa.int64(), True),
    bool: (pa.bool_(), False),
    str: (pa.string(), False),
    str | None: (pa.string(), True),
}
"""The Arrow type of a fact, by its type in Python, and whether it may be null."""
SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int64(), nullable=False),
        *(pa.field(one.name, *_KINDS[one.type]) for one in fields(Segment) if one.name != "topic_partition"),
    ]
)
"""A row per segment."""


@dataclass(frozen=True, eq=False)
class Segments(Mapping[TopicPartition, tuple[Segment, ...]]):
    """The N segments of one snapshot, in P topic partitions."""

    identifier: str
    table_uuid: str
    snapshot_id: int | None
    owners: tuple[TopicPartition, ...]
    """[P] The topic partitions, sorted by topic and partition."""
    starts: Ints
    """[P + 1] Index of the first segment of each topic partition; the last entry is N."""
    rows: pa.Table
    """[N] The segments, in the schema ``SCHEMA``."""
    strays: tuple[UnassignedFile, ...] = ()
    sequence_number: int | None = None
    """Data sequence number that rewritten records get: the number of the snapshot, so that equality deletes that land
    during the rewrite apply. None if the table is partitioned by level; then the records get their commit's number."""
    snapshot_number: int | None = None
    """Sequence number of the snapshot; None if the table has no snapshot."""
    relieved: Callable[[Collection[str]], Collection[str]] | None = None
    """Of the data files at some paths, those with an equality delete file that reaches no other file
    (``Deletes.relieved``); None if the snapshot has no equality delete files."""
    mapping: str | None = None
    """What ``firn adopt`` recorded about the columns; None if the table has Kafka's columns."""
    newest_clock_ms: int | None = None
    """Latest clock (epoch milliseconds) of a plan that Firn published on the table; None if there is no such plan."""

    @classmethod
    def of(cls, table: pa.Table, identifier: str, table_uuid: str, snapshot_id: int | None) -> "Segments":
        """Sort and group the segments in ``table``, which has the schema ``SCHEMA``."""
        names = pc.unique(table["topic"])
        topics = names.take(pc.sort_indices(names))
        codes = pc.index_in(table["topic"], value_set=topics)  # numbers sort twice as fast as texts
        keys = {"topic": codes, **{name: table[name] for name in ("partition", "base_offset", "last_offset", "path")}}
        order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys]).to_numpy()
        topic, partition = codes.to_numpy()[order], table["partition"].to_numpy()[order]
        first = np.ones(len(topic), dtype=np.bool_)
        first[1:] = (topic[1:] != topic[:-1]) | (partition[1:] != partition[:-1])
        starts = np.flatnonzero(first)
        owners = map(TopicPartition, topics.take(topic[starts]).to_pylist(), partition[starts].tolist())
        rows = table.combine_chunks().take(pa.array(order))
        return cls(identifier, table_uuid, snapshot_id, tuple(owners), np.append(starts, table.num_rows), rows)

    def fact(self, name: str) -> NDArray[Any]:
        """[N] A fact that is a number, with ``UNKNOWN`` for None, or a flag."""
        column = self.rows[name]
        values: NDArray[Any] = (column.fill_null(UNKNOWN) if column.null_count else column).to_numpy()
        return values

    def at(self, place: int) -> tuple[Segment, ...]:
        """The segments of the topic partition at index ``place``, as objects, in offset order."""
        start, end = self.starts[place : place + 2].tolist()
        return tuple(segments_in([column.slice(start, end - start) for column in self._columns]))

    @cached_property
    def _columns(self) -> Sequence[pa.Array]:
        # Slices of a table cost three times as much as those of arrays.
        return [column.combine_chunks() for column in self.rows.columns]

    @cached_property
    def places(self) -> Mapping[TopicPartition, int]:
        """The index of each topic partition among the P topic partitions."""
        return {owner: place for place, owner in enumerate(self.owners)}

    def disordered(self) -> list[int]:
        """The places of the topic partitions whose segments have perhaps not landed in offset order, without
        overlaps."""
        owner = np.repeat(np.arange(len(self)), np.diff(self.starts))
        landed = np.where(self.fact("level") == LANDED, self.fact("sequence_number"), 0)
        disorder = (landed[1:] < landed[:-1]) | (self.fact("base_offset")[1:] <= self.fact("last_offset")[:-1])
        places: list[int] = np.unique(owner[1:][disorder & (owner[1:] == owner[:-1])]).tolist()
        return places

    def strays_of(self, topic_partition: TopicPartition) -> tuple[UnassignedFile, ...]:
        """The strays that may hold records of ``topic_partition``."""
        return tuple(stray for stray in self.strays if stray.may_hold(topic_partition))

    def each(self) -> Iterator[Segment]:
        """Every segment, topic partition by topic partition."""
        return chain.from_iterable(self.values())

    def __getitem__(self, topic_partition: TopicPartition) -> tuple[Segment, ...]:
        return self.at(self.places[topic_partition])

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self.places

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.owners)

    def __len__(self) -> int:
        return len(self.owners)


def segments_in(columns: Iterable[pa.Array | pa.ChunkedArray]) -> Iterator[Segment]:
    """The segments in the ``columns`` of a table of the schema ``SCHEMA``, in the same order."""
    for topic, partition, path, *facts in zip(*(column.to_pylist() for column in columns), strict=True):
        yield Segment(path, TopicPartition(topic, partition), *facts)
