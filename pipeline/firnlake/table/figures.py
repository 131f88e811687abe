"""The figures that the survey needs, computed as arrays for all topic partitions of a table at once.

``PartitionState`` has the same figures under the same names: head, tail, active and cleanable segments, and the dirty
ratio. P is the number of topic partitions and N the number of segments, as in ``firnlake.table.arrays``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
    """Figures about the topic partitions in ``arrays`` under their policies, at the time ``now_ms`` (epoch ms)."""

    arrays: Arrays
    policies: Policies
    now_ms: int
    removed_tombstones: Mapping[TopicPartition, tuple[Segment, ...]]
    transactions: Mapping[TopicPartition, Transactions]

    @cached_property
    def dirty_ratio(self) -> Floats:
        """[P] Cleanable head bytes / (tail bytes + cleanable head bytes); 0 when both sizes are 0 (C12)."""
        total = self.tail_bytes + self.cleanable_bytes
        ratio: Floats = np.divide(self.cleanable_bytes, total, out=np.zeros(len(total)), where=total > 0)
        return ratio

    @cached_property
    def may_overflow(self) -> bool:
        """True when sums could exceed 64 bits, so that the survey can't rule out any topic partition."""
        largest = max(float(np.abs(column).max()) for column in (self.arrays.bytes, self.arrays.records))
        return largest * len(self.arrays.records) >= 2**62

    @cached_property
    def owner(self) -> NDArray[np.intp]:
        """[N] The index of each segment's topic partition."""
        return np.repeat(np.arange(len(self.arrays.topic)), np.diff(self.arrays.starts))

    @cached_property
    def distinct(self) -> tuple[Policy, ...]:
        """The default policy, then the policies of single topics."""
        return (self.policies.default, *self.policies.topics.values())

    @cached_property
    def policy(self) -> NDArray[np.intp]:
        """[P] The index of each topic partition's policy in ``distinct``."""
        by_topic = {topic: number for number, topic in enumerate(self.policies.topics, start=1)}
        return np.array([by_topic.get(topic, 0) for topic in self.arrays.topics], dtype=np.intp)[self.arrays.topic]

    def each(self, value: Callable[[Policy], float]) -> NDArray[Any]:
        """[P] ``value`` of each topic partition's policy, capped at 64 bits; a scalar if all share one policy."""
        values: list[Any] = [value(policy) for policy in self.distinct]
        array = np.array([min(one, _HIGHEST) if isinstance(one, int) else one for one in values])
        return array[0, ...] if len(array) == 1 else array[self.policy]

    def each_segment(self, value: Callable[[Policy], float]) -> NDArray[Any]:
        """[N] ``value`` of the policy of each segment's topic partition; a scalar if all share one policy."""
        array = self.each(value)
        return array if array.ndim == 0 else array[self.owner]

    def before(self, duration: Callable[[Policy], int]) -> Callable[[Policy], int]:
        """A function from a policy to the time ``duration`` before ``now_ms``, computed without overflow."""
        return lambda policy: min(max(self.now_ms - duration(policy), _LOWEST), _HIGHEST)

    def sum(self, values: Ints | Bools, which: Bools) -> Ints:
        """[P] The sum of ``values`` over the segments for which ``which`` is true."""
        return np.add.reduceat(np.where(which, values, 0), self.arrays.starts[:-1], dtype=np.int64)

    def count(self, which: Bools) -> Ints:
        """[P] The number of segments for which ``which`` is true."""
        return np.add.reduceat(which, self.arrays.starts[:-1], dtype=np.int64)

    def least(self, values: Ints, which: Bools) -> Ints:
        """[P] The smallest of ``values`` where ``which`` is true; the largest integer if no segment is in ``which``."""
        return np.minimum.reduceat(np.where(which, values, _HIGHEST), self.arrays.starts[:-1])

    def most(self, values: Ints, which: Bools) -> Ints:
        """[P] The largest of ``values`` where ``which`` is true; the smallest integer if no segment is in ``which``."""
        return np.maximum.reduceat(np.where(which, values, _LOWEST), self.arrays.starts[:-1])

    def first(self, which: Bools) -> Ints:
        """[P] The index of the first segment for which ``which`` is true; N if there is none."""
        return np.minimum(self.least(np.arange(len(which)), which), len(which))

    @cached_property
    def filled(self) -> Bools:
        """[N] True for segments that hold a record."""
        flags: Bools = self.arrays.records > 0
        return flags

    @cached_property
    def head(self) -> Bools:
        """[N] True for segments of levels 0, 1 and 2 that hold a record."""
        return self.filled & ~self.tail

    @cached_property
    def tail(self) -> Bools:
        """[N] True for segments of level 3."""
        flags: Bools = self.arrays.level == TAIL
        return flags

    @cached_property
    def landed(self) -> Bools:
        """[N] True for segments of level 0 that hold a record."""
        flags: Bools = self.head & (self.arrays.level == LANDED)
        return flags

    @cached_property
    def active(self) -> Bools:
        """[N] True for the newest landed segments, which count as Kafka's active segment (``firn.active.segments``)."""
        if not any(policy.active_segments for policy in self.distinct):
            return np.zeros(len(self.landed), dtype=np.bool_)
        through = np.cumsum(self.landed)
        last = through[self.arrays.starts[1:] - 1]
        return self.landed & (last[self.owner] - through < self.each_segment(lambda policy: policy.active_segments))

    @cached_property
    def undecided(self) -> Ints | None:
        """[P] The offset of the first undecided record, or the largest integer if all records are decided.

        None if no topic partition has an undecided record.
        """
        known = {where: own.undecided for where, own in self.transactions.items() if own.undecided}
        return self.at({where: undecided.offset for where, undecided in known.items()}, _HIGHEST) if known else None

    def at(self, known: Mapping[TopicPartition, int], otherwise: int) -> Ints:
        """[P] The value that ``known`` has for each topic partition; ``otherwise`` if it has none."""
        values = np.full(len(self.arrays.topic), otherwise, dtype=np.int64)
        for where, value in known.items():
            place = self.arrays.place(where)
            if place is not None:
                values[place] = value
        return values

    @cached_property
    def cleanable(self) -> Bools:
        """[N] True for head segments before the first one to be left alone (C10, C11), if the policy compacts."""
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
        return self.sum(self.arrays.data_bytes, self.cleanable)

    @cached_property
    def tail_bytes(self) -> Ints:
        """[P] Bytes of the tail."""
        return self.sum(self.arrays.data_bytes, self.tail)
