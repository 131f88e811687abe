"""Topic partitions, their segments, and strays: files of no single topic partition. No record is read for their facts.

One more fact about a segment is a field of ``Segment``, and its value in ``Classifier.of`` if a manifest entry tells
it, or in ``manifest_reader.read`` if the table's snapshots and delete files tell it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic_core import CoreSchema, core_schema

from firnlake.errors import RefusedError

LANDED, MERGED, RUN, TAIL = 0, 1, 2, 3
"""The levels: 0 landed, 1 merged, 2 cleaned run, 3 tail. NULL in the table means 0."""

LEVELS = range(LANDED, TAIL + 1)

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

UNKNOWN: Final = int(np.iinfo(np.int64).min)
"""Integer that stands for None."""


class TopicPartition(NamedTuple):
    """A topic and the number of one of its partitions."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """The name in Kafka's form: ``orders-3``."""
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> "TopicPartition":
        """Parse Kafka's form, such as ``orders-3``; raises RefusedError for any other ``text``."""
        topic, dash, partition = text.rpartition("-")
        if not dash or not (partition.isascii() and partition.isdigit()):
            raise RefusedError(f"{text!r} is not a topic partition; allowed: <topic>-<partition>, such as orders-0")
        return cls(topic, int(partition))

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> CoreSchema:
        """In documents, it is its name."""
        named = core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls.parse(str(value))
        )
        named["serialization"] = core_schema.to_string_ser_schema()
        return named


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


TIMES: Final = tuple(one.name for one in fields(Segment) if one.name.endswith("_ms"))
"""The facts that are times."""


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
    def of(cls, table: pa.Table, identifier: str, snapshot_id: int | None) -> "Segments":
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
        return cls(identifier, snapshot_id, tuple(owners), np.append(starts, table.num_rows), rows)

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
