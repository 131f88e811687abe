"""The segments of a table as arrays, so that a million topic partitions need no objects.

Each array holds one fact of every segment. The segments are grouped by topic partition and in offset order within each
group; ``starts`` holds the index at which each group starts. ``Segment`` objects are made on demand, per topic
partition. ``UNKNOWN`` stands for a fact that is not known.

    arrays = arrays_of(segments)                 # ``segments`` as ``read`` returns them
    ByPartition(arrays)[TopicPartition("t", 0)]  # the segments of one topic partition, as objects
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from firnlake.table.segment import Segment, Segments
from firnlake.table.topic_partition import TopicPartition

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

UNKNOWN: Final = int(np.iinfo(np.int64).min)
"""Integer that stands for None."""

_INTEGERS: Final = (
    "level",
    "base_offset",
    "last_offset",
    "records",
    "bytes",
    "data_bytes",
    "null_keys",
    "oldest_ms",
    "newest_ms",
    "sequence_number",
    "row_deletes",
    "stamped",
    "copies",
    "holding_deletes",
    "deletes",
    "equality_deletes",
)
_OPTIONAL: Final = ("tombstones", "committed_ms", "written_ms", "keys", "first_horizon_ms", "last_horizon_ms", "hidden")
_BOOLEANS: Final = ("by_firn", "whole", "transactional", "control")
_TEXTS: Final = ("path", "problem")
_FIELDS: Final = tuple(field.name for field in fields(Segment) if field.name != "topic_partition")

SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int64(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in _INTEGERS),
        *(pa.field(name, pa.int64()) for name in _OPTIONAL),
        *(pa.field(name, pa.bool_(), nullable=False) for name in _BOOLEANS),
        *(pa.field(name, pa.string()) for name in _TEXTS),
    ]
)
"""Input schema of ``Arrays.of_rows``: a row per segment, in any order."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """The facts of a table's N segments in P topic partitions. Each field means the same as in ``Segment``."""

    topics: Sequence[str]
    """Names of the topics, sorted."""
    topic: Ints
    """[P] The index into ``topics`` of each topic partition. Topic partitions are sorted by topic and partition."""
    partition: Ints
    """[P] Partition numbers."""
    starts: Ints
    """[P + 1] Index of the first segment of each topic partition; the last entry is N."""
    path: pa.Array
    """[N] Paths, as strings."""
    problem: pa.Array
    """[N] Problems, as strings; null for a segment without a problem."""
    level: Ints
    base_offset: Ints
    last_offset: Ints
    records: Ints
    bytes: Ints
    data_bytes: Ints
    tombstones: Ints
    null_keys: Ints
    oldest_ms: Ints
    newest_ms: Ints
    sequence_number: Ints
    row_deletes: Ints
    committed_ms: Ints
    written_ms: Ints
    by_firn: Bools
    whole: Bools
    keys: Ints
    stamped: Ints
    first_horizon_ms: Ints
    last_horizon_ms: Ints
    transactional: Bools
    control: Bools
    copies: Ints
    holding_deletes: Ints
    hidden: Ints
    deletes: Ints
    equality_deletes: Ints

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> "Arrays":
        """The arrays of ``segments``, which may come in any order."""
        return cls.of_rows(rows(segments))

    @classmethod
    def of_rows(cls, table: pa.Table) -> "Arrays":
        """The arrays of the segments in ``table``, which has the schema ``SCHEMA``; its rows may be in any order."""
        topics, codes = _ranked(table["topic"])
        keys = {"topic": codes, **{name: table[name] for name in ("partition", "base_offset", "last_offset", "path")}}
        order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys]).to_numpy()
        topic = codes[order]
        partition = table["partition"].to_numpy()[order]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = (topic[1:] != topic[:-1]) | (partition[1:] != partition[:-1])
        starts = np.flatnonzero(first)
        return cls(
            topics=topics,
            topic=topic[starts],
            partition=partition[starts],
            starts=np.append(starts, len(order)),
            **{name: table[name].to_numpy()[order] for name in (*_INTEGERS, *_BOOLEANS)},
            **{name: table[name].fill_null(UNKNOWN).to_numpy()[order] for name in _OPTIONAL},
            **{name: table[name].combine_chunks().take(pa.array(order)) for name in _TEXTS},
        )

    def topic_partition(self, place: int) -> TopicPartition:
        """The topic partition at index ``place``, from 0 to P - 1."""
        return TopicPartition(self.topics[self.topic[place]], int(self.partition[place]))

    def segments(self, place: int) -> tuple[Segment, ...]:
        """The segments of the topic partition at index ``place``, as objects, in offset order."""
        own = slice(int(self.starts[place]), int(self.starts[place + 1]))
        where = self.topic_partition(place)
        columns = {name: getattr(self, name)[own].tolist() for name in (*_INTEGERS, *_BOOLEANS)}
        columns |= {name: getattr(self, name)[own].to_pylist() for name in _TEXTS}
        for name in _OPTIONAL:
            columns[name] = [None if value == UNKNOWN else value for value in getattr(self, name)[own].tolist()]
        return tuple(
            Segment(facts[0], where, *facts[1:]) for facts in zip(*(columns[name] for name in _FIELDS), strict=True)
        )

    def place(self, topic_partition: TopicPartition) -> int | None:
        """The index of ``topic_partition`` among the P topic partitions; None when it has no segment."""
        code = bisect_left(self.topics, topic_partition.topic)
        if code == len(self.topics) or self.topics[code] != topic_partition.topic:
            return None
        first, last = np.searchsorted(self.topic, [code, code + 1])
        row = int(first + np.searchsorted(self.partition[first:last], topic_partition.partition))
        return row if row < last and self.partition[row] == topic_partition.partition else None


@dataclass(frozen=True, eq=False)
class ByPartition(Mapping[TopicPartition, tuple[Segment, ...]]):
    """The segments in ``arrays`` by topic partition; the ``Segment`` objects are made on demand."""

    arrays: Arrays

    def __getitem__(self, topic_partition: TopicPartition) -> tuple[Segment, ...]:
        place = self.arrays.place(topic_partition)
        if place is None:
            raise KeyError(topic_partition)
        return self.arrays.segments(place)

    def __iter__(self) -> Iterator[TopicPartition]:
        return map(self.arrays.topic_partition, range(len(self)))

    def __len__(self) -> int:
        return len(self.arrays.topic)


def arrays_of(segments: Segments) -> Arrays:
    """The arrays from which ``segments`` was made; new arrays if it was not made from arrays."""
    by_partition = segments.by_partition
    return by_partition.arrays if isinstance(by_partition, ByPartition) else Arrays.of(segments)


def rows(segments: Iterable[Segment]) -> pa.Table:
    """A table with a row of ``SCHEMA`` for each of ``segments``, in the same order."""
    facts = attrgetter("topic_partition.topic", "topic_partition.partition", *SCHEMA.names[2:])
    columns = list(zip(*map(facts, segments), strict=True)) or [()] * len(SCHEMA.names)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def _ranked(topics: pa.ChunkedArray) -> tuple[tuple[str, ...], Ints]:
    """The distinct topics, sorted, and the index of each row's topic."""
    encoded = topics.combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    return tuple(names[place] for place in order), rank[encoded.indices.to_numpy()]
