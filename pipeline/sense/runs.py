"""Runs: what one cleaning left at level 2, and which of them lane ``tier`` makes into one (C15).

A run is known by its data sequence number, which Iceberg gives to every file of a commit and keeps when manifests are
rewritten: no state of Firn's own is needed.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.segments import Segment
from pipeline.segments.segment import RUN
from pipeline.sense.budget import Budget
from pipeline.sense.state import PartitionState

FEWEST = 2
"""Fewer runs can't become one."""


@dataclass(frozen=True)
class Run:
    """The level-2 segments of one topic partition that one commit added, in offset order."""

    segments: tuple[Segment, ...]
    places: tuple[int, ...]
    """Their positions among all segments of the topic partition that hold a record, in offset order."""

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


def runs(state: PartitionState) -> list[Run]:
    """The runs that can be cleaned whole, by their first segment. One that can't, even in part, is no input at all."""
    cleanable = {segment.path for segment in state.cleanable}
    by_run: dict[int, dict[int, Segment]] = defaultdict(dict)
    for place, segment in enumerate(segment for segment in state.segments if segment.records):
        if segment.level == RUN:
            by_run[segment.sequence_number][place] = segment
    return [
        Run(tuple(own.values()), tuple(own))
        for own in by_run.values()
        if all(
            segment.path in cleanable and not state.too_large(segment) and state.bounds.hold(segment)
            for segment in own.values()
        )
    ]


def similar_runs(state: PartitionState, fewest: int) -> Iterator[tuple[Run, ...]]:
    """Stretches of at least ``fewest`` neighbouring runs of similar size, each as long as it gets, the oldest first.

    Similar: largest ≤ ``tier.size.ratio`` × smallest. No other segment lies between them in offset order.
    """
    every = runs(state)
    for start in range(len(every) - fewest + 1):
        together = _neighbours(_similar(every[start:], state.policy.tier_size_ratio))
        if len(together) >= fewest:
            yield tuple(together)


def fitting_runs(similar: Sequence[Run], budget: Budget) -> tuple[Segment, ...]:
    """The segments of the oldest of ``similar`` that fit the budget, in offset order; empty when fewer than two do."""
    fitting = len(budget.fitting([run.segments for run in similar]))
    taken = _neighbours(similar[:fitting])
    if len(taken) < FEWEST:
        return ()
    return tuple(sorted((segment for run in taken for segment in run.segments), key=lambda segment: segment.order))


def _similar(candidates: Sequence[Run], ratio: float) -> Iterator[Run]:
    """The first of ``candidates``, for as long as the largest is not too large beside the smallest."""
    smallest = largest = candidates[0].bytes
    for run in candidates:
        smallest, largest = min(smallest, run.bytes), max(largest, run.bytes)
        if largest > ratio * smallest:
            return
        yield run


def _neighbours(series: Iterator[Run] | Sequence[Run]) -> list[Run]:
    """The longest start of ``series`` without a gap. Runs over late segments may lie across each other."""
    taken: list[Run] = []
    first, last, held, whole = sys.maxsize, 0, 0, 0
    for run in series:
        taken.append(run)
        first, last, held = min(first, *run.places), max(last, *run.places), held + len(run.places)
        if last - first + 1 == held:
            whole = len(taken)
    return taken[:whole]
