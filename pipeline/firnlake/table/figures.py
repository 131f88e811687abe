"""Figures of the survey, for all topic partitions of a table at once: arrays from arrays.

The same figures as in ``PartitionState``, under the same names: head and tail, what is active, what is cleanable, how
dirty that is. P is the number of topic partitions, N that of segments, as in ``firnlake.table.arrays``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firnlake.lanes.hiding.memory import HideMemory
from firnlake.table.arrays import Arrays, Bools, Ints
from firnlake.table.policies import Policies
from firnlake.table.policy import Policy
from firnlake.table.segment import LANDED, TAIL, Segment
from firnlake.table.topic_partition import TopicPartition
from firnlake.table.transactions import Transactions

Floats: TypeAlias = NDArray[np.float64]

_LOWEST, _HIGHEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Figures:
    """The topic partitions in ``arrays`` under their policies at ``now_ms`` (epoch milliseconds)."""

    arrays: Arrays
    policies: Policies
    now_ms: int
    removed_tombstones: Mapping[TopicPartition, tuple[Segment, ...]]
    transactions: Mapping[TopicPartition, Transactions]
    hide_memory: Mapping[TopicPartition, HideMemory] = field(default_factory=dict)

    @cached_property
    def dirty_ratio(self) -> Floats:
        """[P] Dirty bytes / (tail bytes + cleanable head bytes); 0 where there is neither (C12)."""
        total = self.tail_bytes + self.cleanable_bytes
        ratio: Floats = np.divide(self.dirty_bytes, total, out=np.zeros(len(total)), where=total > 0)
        return ratio

    @cached_property
    def may_overflow(self) -> bool:
        """True when sums could leave 64 bits: then the survey makes no statement."""
        largest = max(float(np.abs(column).max()) for column in (self.arrays.bytes, self.arrays.records))
        return largest * len(self.arrays.records) >= 2**62

    @cached_property
    def owner(self) -> NDArray[np.intp]:
        """[N] The topic partition of each segment."""
        return np.repeat(np.arange(len(self.arrays.topic)), np.diff(self.arrays.starts))

    @cached_property
    def distinct(self) -> tuple[Policy, ...]:
        """The default policy, then those of single topics."""
        return (self.policies.default, *self.policies.topics.values())

    @cached_property
    def policy(self) -> NDArray[np.intp]:
        """[P] Which of the distinct policies."""
        by_topic = {topic: number for number, topic in enumerate(self.policies.topics, start=1)}
        return np.array([by_topic.get(topic, 0) for topic in self.arrays.topics], dtype=np.intp)[self.arrays.topic]

    def each(self, value: Callable[[Policy], float]) -> NDArray[Any]:
        """[P] What policies say; without a dimension where there is one policy. Integers are cut to 64 bits."""
        values: list[Any] = [value(policy) for policy in self.distinct]
        array = np.array([min(one, _HIGHEST) if isinstance(one, int) else one for one in values])
        return array[0, ...] if len(array) == 1 else array[self.policy]

    def each_segment(self, value: Callable[[Policy], float]) -> NDArray[Any]:
        """[N] Likewise for every segment."""
        array = self.each(value)
        return array if array.ndim == 0 else array[self.owner]

    def before(self, duration: Callable[[Policy], int]) -> Callable[[Policy], int]:
        """The clock so long ago. Whatever the durations, nothing is computed in 64 bits."""
        return lambda policy: min(max(self.now_ms - duration(policy), _LOWEST), _HIGHEST)

    @cached_property
    def compacts(self) -> Bools:
        """[P] Where cleaning removes older records of a key (C19)."""
        return np.broadcast_to(self.each(lambda policy: policy.compacts), len(self.arrays.topic))

    def sum(self, values: Ints | Bools, which: Bools) -> Ints:
        """[P] The sum of ``values`` over the segments that are so."""
        return np.add.reduceat(np.where(which, values, 0), self.arrays.starts[:-1], dtype=np.int64)

    def count(self, which: Bools) -> Ints:
        """[P] The number of segments that are so."""
        return np.add.reduceat(which, self.arrays.starts[:-1], dtype=np.int64)

    def least(self, values: Ints, which: Bools) -> Ints:
        """[P] The smallest of ``values`` over the segments that are so; the largest integer where none is."""
        return np.minimum.reduceat(np.where(which, values, _HIGHEST), self.arrays.starts[:-1])

    def most(self, values: Ints, which: Bools) -> Ints:
        """[P] The largest of ``values`` over the segments that are so; the smallest integer where none is."""
        return np.maximum.reduceat(np.where(which, values, _LOWEST), self.arrays.starts[:-1])

    def first(self, which: Bools) -> Ints:
        """[P] The first segment that is so; N where none is."""
        return np.minimum(self.least(np.arange(len(which)), which), len(which))

    @cached_property
    def filled(self) -> Bools:
        """[N] Segments with a record."""
        flags: Bools = self.arrays.records > 0
        return flags

    @cached_property
    def head(self) -> Bools:
        """[N] Segments of levels 0, 1 and 2 that hold a record."""
        return self.filled & ~self.tail

    @cached_property
    def tail(self) -> Bools:
        """[N] Segments of level 3."""
        flags: Bools = self.arrays.level == TAIL
        return flags

    @cached_property
    def landed(self) -> Bools:
        """[N] Segments of level 0 that hold a record."""
        flags: Bools = self.head & (self.arrays.level == LANDED)
        return flags

    @cached_property
    def active(self) -> Bools:
        """[N] The newest landed segments, which count as Kafka's active segment (``firn.active.segments``)."""
        if not any(policy.active_segments for policy in self.distinct):
            return np.zeros(len(self.landed), dtype=np.bool_)
        through = np.cumsum(self.landed)
        last = through[self.arrays.starts[1:] - 1]
        return self.landed & (last[self.owner] - through < self.each_segment(lambda policy: policy.active_segments))

    @cached_property
    def undecided(self) -> Ints | None:
        """[P] The offset of the first undecided record, the largest integer where there is none; None: nowhere."""
        known = {where: own.undecided for where, own in self.transactions.items() if own.undecided}
        return self.at({where: undecided.offset for where, undecided in known.items()}, _HIGHEST) if known else None

    def at(self, known: Mapping[TopicPartition, int], otherwise: int) -> Ints:
        """[P] The ``known`` value of each topic partition, else ``otherwise``."""
        values = np.full(len(self.arrays.topic), otherwise, dtype=np.int64)
        for where, value in known.items():
            place = self.arrays.place(where)
            if place is not None:
                values[place] = value
        return values

    @cached_property
    def cleanable(self) -> Bools:
        """[N] The head up to the first segment that must be left alone (C10, C11); none where nothing is compacted."""
        held = self.active
        if any(policy.min_compaction_lag_ms for policy in self.distinct):
            lag = self.each_segment(lambda policy: policy.min_compaction_lag_ms)
            since = self.each_segment(self.before(lambda policy: policy.min_compaction_lag_ms))
            held = held | ((lag > 0) & (self.arrays.newest_ms > since))
        if self.undecided is not None:
            held = held | (self.arrays.last_offset >= self.undecided[self.owner])
        held = held & self.head
        flags: Bools = self.head & self.each_segment(lambda policy: policy.compacts)
        if held.any():
            flags &= np.arange(len(held)) < self.first(held)[self.owner]
        return flags

    @cached_property
    def cleanable_bytes(self) -> Ints:
        """[P] Bytes of the cleanable head."""
        return self.sum(self.arrays.bytes, self.cleanable)

    @cached_property
    def tail_bytes(self) -> Ints:
        """[P] Bytes of the tail."""
        return self.sum(self.arrays.bytes, self.tail)

    @cached_property
    def hidden(self) -> Ints:
        """[N] Number of records of each segment that are known to be hidden, as in ``HideMemory``."""
        counts = np.zeros(len(self.arrays.records), dtype=np.int64)
        for where, hide_memory in self.hide_memory.items():
            place = self.arrays.place(where) if hide_memory.hidden else None
            if place is not None:
                own = slice(int(self.arrays.starts[place]), int(self.arrays.starts[place + 1]))
                counts[own] = [hide_memory.hidden.get(path, 0) for path in self.arrays.path[own].to_pylist()]
        return np.where(self.arrays.row_deletes > 0, np.minimum(counts, self.arrays.records), 0)

    @cached_property
    def compared(self) -> Bools:
        """[N] Segments that lane `hide` has compared with each other, as in ``HideMemory.knows``."""
        arrays, known = self.arrays, {where: own.compared for where, own in self.hide_memory.items() if own.compared}
        through = self.at({where: own.sequence_number for where, own in known.items()}, -1)[self.owner]
        ends = {where: _HIGHEST if own.before is None else own.before for where, own in known.items()}
        before = self.at(ends, _LOWEST)[self.owner]
        flags: Bools = (arrays.sequence_number <= through) & (
            self.tail | (before == _HIGHEST) | (arrays.base_offset < before)
        )
        return flags

    @cached_property
    def dirty_bytes(self) -> Ints:
        """[P] As in ``PartitionState``."""
        if not self.hide_memory:
            return self.cleanable_bytes
        # Exact in integers of any size, as there.
        hidden = self.arrays.bytes.astype(object) * self.hidden // np.maximum(self.arrays.records, 1)
        each = np.where(self.tail | self.compared, hidden.astype(np.int64), self.arrays.bytes)
        return self.sum(each, self.tail | self.cleanable)

    @cached_property
    def bytes_until_full(self) -> Floats:
        """[P] As in ``PartitionState``."""
        ratio = self.each(lambda policy: policy.min_cleanable_dirty_ratio)
        with np.errstate(divide="ignore", invalid="ignore"):  # a ratio of 1 is never exceeded
            clean = self.cleanable_bytes - self.dirty_bytes
            enough = ratio / (1 - ratio) * self.tail_bytes + clean / (1 - ratio)
        missing: Floats = np.where(ratio < 1, enough, np.inf) - self.sum(self.arrays.bytes, self.head)
        return missing
