"""Walk through the arrivals of one topic partition: let the real planner look at every tick, and do what it says."""

from bisect import bisect_left
from dataclasses import dataclass
from math import isinf

import numpy as np

from pipeline.plan import plan_partition
from pipeline.policy import Policy
from pipeline.segments import Segments
from pipeline.segments.segment import TAIL
from pipeline.sense import Lane, PartitionState, due
from pipeline.simulate.arrivals import Stream
from pipeline.simulate.books import Books
from pipeline.simulate.table import TOPIC_PARTITION, ModelTable

TABLE = "simulated.table"
SNAPSHOT = 1
"""The planner names the snapshot that it looked at; the model has no others."""


@dataclass(frozen=True)
class Contender:
    """Whose rules a table is kept by."""

    name: str
    policy: Policy
    leaves_in_place: bool
    """Whether segments of the tail that lose nothing are not written again. Kafka and WarpStream write whole logs."""


def replay(stream: Stream, contender: Contender, books: Books) -> None:
    """Add to ``books`` what becomes of one topic partition under the rules of ``contender``.

    A lane does at most one plan per tick, in the order of a run.
    """
    walk = _Walk(ModelTable(stream, contender.leaves_in_place), stream, contender.policy, books)
    tick: int | None = 0
    while tick is not None:
        tick = walk.work_from(tick)
    books.close(walk.table.segments)


@dataclass(frozen=True)
class _Walk:
    table: ModelTable
    stream: Stream
    policy: Policy
    books: Books

    def work_from(self, first: int) -> int | None:
        """Go to the next tick from ``first`` on with work, and do it; the tick after that, or None at the end."""
        last = len(self.books.ticks) - 1
        found = self._next_due(first)
        reached = last if found is None else found
        self._wait(first, reached)
        self.table.land(self._landed(reached))
        if found is None:
            return None
        for lane in Lane:
            state = self._state(found)
            segments = Segments(TABLE, TABLE, SNAPSHOT, {TOPIC_PARTITION: state.segments})
            if plan := plan_partition(lane, segments, state):
                self.books.apply(found, lane, self.table.apply(plan))
        return found + 1 if found < last else None

    def _next_due(self, first: int) -> int | None:
        """The next tick from ``first`` on with work, every guess answered by the planner itself.

        More time only ever makes more due, and so do more records unless lanes leave work to `full`: ticks between can
        be skipped, and the one to stop at is found by halving.
        """
        last = len(self.books.ticks) - 1
        before, step = first - 1, 1
        while before < last:
            guess = min(before + step, last)
            if not isinf(self.policy.leave_to_full_fraction):
                guess = max(before + 1, self._before_landing(before + 1))
            if self._is_due(guess):
                return bisect_left(range(last + 1), 1, before + 1, guess, key=self._is_due)
            before, step = guess, 2 * step
        return None

    def _before_landing(self, tick: int) -> int:
        """The last tick before which nothing lands that has not by ``tick``."""
        landed = self._landed(tick)
        if landed == self.stream.segments:
            return len(self.books.ticks) - 1
        return int(np.searchsorted(self.books.ticks, self.stream.landed_ms[landed])) - 1

    def _is_due(self, tick: int) -> bool:
        state = self._state(tick)
        return any(due(lane, state) for lane in Lane)

    def _state(self, tick: int) -> PartitionState:
        now_ms = int(self.books.ticks[tick])
        return PartitionState(TOPIC_PARTITION, self.table.landed(self._landed(tick)), self.policy, now_ms)

    def _landed(self, tick: int) -> int:
        """How many segments have landed by ``tick``."""
        return int(np.searchsorted(self.stream.landed_ms, self.books.ticks[tick], side="right"))

    def _wait(self, first: int, last: int) -> None:
        """Book how long the oldest record that is not in the tail has waited from tick ``first`` through ``last``."""
        head = [segment.oldest_ms for segment in self.table.segments if segment.level != TAIL]
        following = self.table.arrived
        if head:
            self.books.wait(first, last, min(head))
        elif following < self._landed(last):
            # The tail holds all of it: what waits is the next to land.
            at = int(np.searchsorted(self.books.ticks, self.stream.landed_ms[following]))
            oldest = self.stream.record_at_ms(following * self.stream.workload.records_per_segment)
            self.books.wait(max(first, at), last, oldest)
