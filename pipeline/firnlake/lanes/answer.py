"""What a lane is, and what it says of a topic partition: the work that it has to do there, or why it waits."""

from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from firnlake.table.policy import INT_MAX, Policies, Policy
from firnlake.table.segment import TAIL, Bools, Ints, Segment, Segments, TopicPartition
from firnlake.table.state import State

FEWEST: Final = 2
"""The smallest number of segments, or of runs, that can be combined into one."""
ALMOST: Final = 1 - 1e-9
"""Sums are floating-point numbers, because those of damaged metadata may exceed 64 bits."""


@dataclass(frozen=True)
class Reason:
    """A rule of the contract, a reason in words, and the epoch milliseconds at which the reason ends by itself."""

    rule: str
    text: str
    until_ms: int | None = None


class Waits(Reason):
    """Why a lane has nothing to do, with the figures that it found and those that it needs."""


@dataclass(frozen=True)
class Work:
    """Work of a lane on the segments ``inputs``, in offset order, which fit a plan together (C17)."""

    inputs: tuple[Segment, ...]
    reason: str
    beside: tuple[Segment, ...] = ()
    """Segments of removed tombstones that the plan reads as well."""
    inputs_per_segment: int | None = None
    """Lane `merge`: number of inputs of each segment that the plan writes."""
    requests: tuple[str, ...] = ()
    """Ids of the requests that the work serves (C30)."""


@dataclass
class Figures:
    """Counts, bytes and ages of all ``segments`` of a table at ``now_ms`` (epoch milliseconds), which may be a clock of
    its own for each topic partition [P].

    Arrays [N] have an element for each segment, arrays [P] for each topic partition.

    With these figures, a lane tells where it may have work (``Traits.may_be_due``) without a look at each topic
    partition. What holds segments back (lags, the active segment, open transactions) is left out: it makes fewer lanes
    due, and never more.
    """

    segments: Segments
    policies: Policies
    now_ms: int | Ints
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
        return self.now_ms - self.each(lambda policy: duration(policy) if duration(policy) >= 0 else np.inf)

    def have_passed(self, moments: Ints) -> Bools:
        """[N] True where the moment [N] of a segment is not later than the clock of its topic partition."""
        clocks = np.repeat(self.now_ms, np.diff(self.segments.starts)) if np.ndim(self.now_ms) else self.now_ms
        passed: Bools = moments <= clocks
        return passed

    def at(self, clocks: Ints) -> "Figures":
        """The same at other ``clocks`` [P]."""
        later = copy(self)  # with what it has computed of the segments, which does not depend on the clock
        later.now_ms = clocks
        return later

    @cached_property
    def _starts(self) -> NDArray[Any]:
        return self.segments.starts[:-1]

    @cached_property
    def _policy(self) -> NDArray[np.intp]:
        """[P] The index of each topic partition's policy: the default policy, then those of single topics."""
        by_topic = {topic: number for number, topic in enumerate(self.policies.topics, start=1)}
        return np.array([by_topic.get(owner.topic, 0) for owner in self.segments], dtype=np.intp)


@dataclass(frozen=True)
class Traits:
    """What a lane is: when it has work, and what those must know who carry out any lane's plans."""

    rule: str
    """The rule of the contract that says when the lane is due."""
    look: Callable[[State, bool], Work | Waits]
    """Finds the lane's work; the flag ignores thresholds. `Lane.look` asks it unless something blocks it."""
    may_be_due: Callable[[Figures], Bools]
    """[P] False for topic partitions in which ``look`` surely waits, unless it is forced."""
    writes: Literal["segments", "deletes", "nothing"] = "segments"
    level_in: int | None = None
    """The level of all segments that the lane takes; None if it takes segments of several levels."""
    level_out: int | None = None
    """The level of the segments that the lane makes of its inputs; None if it makes none, or keeps their levels."""
    cleans: bool = False
    """The lane removes records because of newer ones, which needs a compacted topic (C19)."""
    serves_requests: bool = False
    """The lane does what requests ask for (C30): no segment may hold a requested record afterwards."""
    removal: str = ""
    """Why every record that the lane removes goes, in words; empty if each record has a reason of its own."""

    @property
    def copies(self) -> bool:
        """True if the lane copies records, each as often as its file is listed, instead of cleaning them."""
        return self.writes == "segments" and not self.cleans

    @property
    def decides(self) -> bool:
        """True if the lane treats control records and the records of transactions specially (C10)."""
        return self.cleans or self.serves_requests

    @property
    def replaces(self) -> bool:
        """True if readers see the same records after the lane's commits (Iceberg's operation `replace`)."""
        return self.writes == "deletes" or (self.copies and not self.serves_requests)


def enough(level: int, threshold: str) -> Callable[[Figures], Bools]:
    """[P] True where there are as many segments of ``level`` as the field ``threshold`` of the policy asks for."""

    def may_be_due(figures: Figures) -> Bools:
        due: Bools = figures.number(figures.head(level)) >= figures.each(attrgetter(threshold))
        return due

    return may_be_due


def too_few(rule: str, number: int, policy: Policy, threshold: str, what: str, fewest: int | None = None) -> Waits:
    """Why the lane of ``rule`` waits: the largest ``number`` of ``what`` that lie together is below the field
    ``threshold`` of the policy, or not even the ``fewest`` of them (None: as many as the threshold) fit a plan."""
    needed = getattr(policy, threshold)
    if needed >= INT_MAX:
        name = Policy.model_fields[threshold].alias
        return Waits(rule, f"no number of segments makes the lane due (firn.{name} = {needed})")
    if number >= needed:
        return Waits("C17", f"{number} {what}, but no {fewest or needed} of them fit a plan together")
    return Waits(rule, f"{number} of {needed} {what}")
