"""Replay the arrivals of one topic partition: run the real planner at every tick, and apply its plans."""

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
from pipeline.simulate.table import TOPIC_PARTITION, ModelTable
from pipeline.simulate.totals import Totals

TABLE = "simulated.table"
SNAPSHOT = 1
"""Snapshot id for the planner, which names the snapshot it read; the model has only this one."""


@dataclass(frozen=True)
class Contender:
    """A set of rules by which a table is maintained."""

    name: str
    policy: Policy
    leaves_in_place: bool
    """True when segments of the tail that lose nothing are not rewritten. Kafka and WarpStream rewrite whole logs."""


def replay(stream: Stream, contender: Contender, books: Totals) -> None:
    """Add the results of one topic partition under the rules of ``contender`` to ``books``.

    A lane runs at most one plan per tick, in the order of a run.
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
    books: Totals

    def work_from(self, first: int) -> int | None:
        """Advance to the next tick with work, from ``first``, and do it; returns the tick after it, None at the end."""
        last = len(self.books.ticks) - 1
        step = self._next_due(first)
        reached = last if step is None else step
        self._wait(first, reached)
        self.table.land(self._landed(reached))
        if step is None:
            return None
        for lane in Lane:
            state = self._state(step)
            if lane is Lane.MASK:
                self._mask(step, state)
                continue
            segments = Segments(TABLE, TABLE, SNAPSHOT, {TOPIC_PARTITION: state.segments})
            if plan := plan_partition(lane, segments, state):
                self.books.apply(step, lane, self.table.apply(plan))
        return step + 1 if step < last else None

    def _mask(self, tick: int, state: PartitionState) -> None:
        """Hide what is superseded, when that is due. No plan is made, as its thousands of inputs all stay."""
        work = due(Lane.MASK, state)
        if work and work.comparison:
            self.books.mask(tick, self.table.mask(work.comparison, self.policy.position_deletes_max))

    def _next_due(self, first: int) -> int | None:
        """The next tick with work, from ``first``; the planner itself answers every guess.

        More time only ever makes more due, and so do more records unless lanes leave work to `full`: so ticks in
        between can be skipped, and a binary search finds the tick to stop at.
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
        """The last tick before the next landing after ``tick``."""
        landed = self._landed(tick)
        if landed == self.stream.segments:
            return len(self.books.ticks) - 1
        return int(np.searchsorted(self.books.ticks, self.stream.landed_ms[landed])) - 1

    def _is_due(self, tick: int) -> bool:
        state = self._state(tick)
        return any(due(lane, state) for lane in Lane)

    def _state(self, tick: int) -> PartitionState:
        now_ms = int(self.books.ticks[tick])
        segments = self.table.landed(self._landed(tick))
        return PartitionState(TOPIC_PARTITION, segments, self.policy, now_ms, masking=self.table.masks.known)

    def _landed(self, tick: int) -> int:
        """Number of segments that have landed by ``tick``."""
        return int(np.searchsorted(self.stream.landed_ms, self.books.ticks[tick], side="right"))

    def _wait(self, first: int, last: int) -> None:
        """Record the wait of the oldest record outside the tail, from tick ``first`` through ``last``."""
        head = [segment.oldest_ms for segment in self.table.segments if segment.level != TAIL]
        following = self.table.arrived
        if head:
            self.books.wait(first, last, min(head))
        elif following < self._landed(last):
            # Everything is in the tail: the next segment to land is the one that waits.
            at = int(np.searchsorted(self.books.ticks, self.stream.landed_ms[following]))
            oldest = self.stream.record_at_ms(following * self.stream.workload.records_per_segment)
            self.books.wait(max(first, at), last, oldest)
