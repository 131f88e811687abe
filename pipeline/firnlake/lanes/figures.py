"""Counts, bytes and ages of the segments of all topic partitions of a table at once.

With them, a lane tells where it may have work (``Traits.may_be_due``) without a look at each topic partition. What
holds segments back (lags, the active segment, open transactions) is left out: it makes fewer lanes due, and never more.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from firnlake.table.policy import Policies, Policy
from firnlake.table.segment import TAIL, Bools, Segment, Segments, TopicPartition

ALMOST: Final = 1 - 1e-9
"""Sums are floating-point numbers, because those of damaged metadata may exceed 64 bits."""


@dataclass(frozen=True)
class Figures:
    """The figures of ``segments`` at ``now_ms`` (epoch milliseconds). Arrays [N] have an element for each segment,
    arrays [P] for each topic partition."""

    segments: Segments
    policies: Policies
    now_ms: int
    removed_tombstones: Mapping[TopicPartition, Collection[Segment]]
    requested: Collection[TopicPartition]
    """The topic partitions with requests to erase keys."""

    def fact(self, name: str) -> NDArray[Any]:
        """[N] A field of the segments."""
        return self.segments.fact(name)

    @cached_property
    def filled(self) -> Bools:
        """[N] The segments that hold a record."""
        filled: Bools = self.fact("records") > 0
        return filled

    @cached_property
    def tail(self) -> Bools:
        """[N] The segments of the tail."""
        tail: Bools = self.fact("level") == TAIL
        return tail

    def head(self, level: int | None = None) -> Bools:
        """[N] The segments of the head that hold a record; only those of ``level``, unless it is None."""
        head: Bools = self.filled & ~self.tail
        return head if level is None else head & (self.fact("level") == level)

    def number(self, which: Bools) -> NDArray[Any]:
        """[P] The number of segments ``which`` are chosen."""
        return np.add.reduceat(which, self._starts, dtype=np.int64)

    def total(self, name: str, which: Bools) -> NDArray[Any]:
        """[P] The sum of a field of the segments ``which`` are chosen."""
        return np.add.reduceat(np.where(which, self.fact(name), 0), self._starts, dtype=np.float64)

    def least(self, values: NDArray[Any], which: Bools) -> NDArray[Any]:
        """[P] The lowest of ``values`` [N] of the segments ``which`` are chosen; infinite without any."""
        return np.minimum.reduceat(np.where(which, values, np.inf), self._starts)

    def most(self, values: NDArray[Any], which: Bools, otherwise: int) -> NDArray[Any]:
        """[P] The highest of ``values`` [N] of the segments ``which`` are chosen; all others have ``otherwise``."""
        return np.maximum.reduceat(np.where(which, values, otherwise), self._starts)

    def each(self, value: Callable[[Policy], float]) -> NDArray[Any]:
        """[P] ``value`` of each topic partition's policy."""
        distinct = (self.policies.default, *self.policies.topics.values())
        array: NDArray[Any] = np.array([float(value(policy)) for policy in distinct])[self._policy]
        return array

    def each_segment(self, value: Callable[[Policy], float]) -> NDArray[Any]:
        """[N] ``value`` of the policy of each segment's topic partition."""
        return np.repeat(self.each(value), np.diff(self.segments.starts))

    def before(self, duration: Callable[[Policy], float]) -> NDArray[Any]:
        """[P] The clock ``duration`` ago; no clock is before it if the duration has no limit."""
        return self.each(lambda policy: self.now_ms - duration(policy) if duration(policy) >= 0 else -np.inf)

    def of(self, known: Mapping[TopicPartition, int], otherwise: int) -> NDArray[Any]:
        """[P] The value that is ``known`` of each topic partition, or ``otherwise``."""
        values = np.full(len(self.segments), otherwise, dtype=np.int64)
        for owner, value in known.items():
            if (place := self.segments.places.get(owner)) is not None:
                values[place] = value
        return values

    @cached_property
    def _starts(self) -> NDArray[Any]:
        return self.segments.starts[:-1]

    @cached_property
    def _policy(self) -> NDArray[np.intp]:
        """[P] The index of each topic partition's policy: the default policy, then those of single topics."""
        by_topic = {topic: number for number, topic in enumerate(self.policies.topics, start=1)}
        return np.array([by_topic.get(owner.topic, 0) for owner in self.segments], dtype=np.intp)
