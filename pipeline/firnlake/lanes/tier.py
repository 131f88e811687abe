"""Lane `tier`: combines neighbouring runs of similar size into one (C15).

A run consists of the segments that one cleaning wrote at level 2. Their common data sequence number identifies the run:
Iceberg gives that number to every file of a commit, and keeps it when manifests are rewritten, so Firn need not store
which segments form a run.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from firnlake.lanes.answer import FEWEST, Traits, Waits, Work, too_few
from firnlake.lanes.figures import Figures
from firnlake.table.segment import RUN, Segment
from firnlake.table.segments import Bools
from firnlake.table.state import Budget, State

SIMILAR: Final = 2.0
"""Runs are of similar size when the largest has at most this many times the bytes of the smallest (WarpStream tiers
files "of similar size"; the figure is Firn's)."""


def look(state: State, force: bool) -> Work | Waits:
    """The oldest runs of similar size that fit a plan, if there are enough; with ``force``, two."""
    wanted, budget = state.policy.tier_runs, state.budget()
    longest = 0
    for similar in similar_runs(state):
        longest = max(longest, len(similar))
        if len(similar) >= (FEWEST if force else wanted) and (fitting := fitting_runs(similar, budget)):
            return Work(fitting, f"{len(similar)} of {wanted} runs of similar size")
    what = "adjacent cleanable runs of similar size"
    return too_few("C15", longest, state.policy, "tier_runs", what, FEWEST)


@dataclass(frozen=True)
class Run:
    """The level-2 segments of one topic partition that one commit added, in offset order."""

    segments: tuple[Segment, ...]
    places: tuple[int, ...]
    """The positions of ``segments`` among all segments of the topic partition that hold a record, in offset order."""

    @property
    def bytes(self) -> int:
        """Bytes of all segments of the run (``Segment.data_bytes``)."""
        return sum(segment.data_bytes for segment in self.segments)


def runs(state: State) -> list[Run]:
    """The runs of which every segment can be cleaned, in the order of their first segments.

    A run with a segment that can't be cleaned is left out as a whole.
    """
    by_run: dict[int, dict[int, Segment]] = defaultdict(dict)
    for place, segment in enumerate(segment for segment in state.segments if segment.records):
        if segment.level == RUN:
            by_run[segment.sequence_number][place] = segment
    return [Run(tuple(own.values()), tuple(own)) for own in by_run.values() if all(map(state.may_clean, own.values()))]


def similar_runs(state: State) -> Iterator[tuple[Run, ...]]:
    """Series of neighbouring runs of similar size, each as long as possible, the oldest first.

    Runs are similar when the largest has at most ``SIMILAR`` times the bytes of the smallest. They are neighbours when
    no other segment lies between them in offset order.
    """
    every = runs(state)
    for start in range(len(every)):
        yield tuple(_neighbours(_similar(every[start:])))


def fitting_runs(similar: Sequence[Run], budget: Budget) -> tuple[Segment, ...]:
    """The segments, in offset order, of the oldest runs in ``similar`` that fit the budget together.

    Empty when fewer than two runs fit.
    """
    fitting = len(budget.fitting([run.segments for run in similar]))
    taken = _neighbours(similar[:fitting])
    if len(taken) < FEWEST:
        return ()
    return tuple(sorted((segment for run in taken for segment in run.segments), key=lambda segment: segment.order))


def _similar(candidates: Sequence[Run]) -> Iterator[Run]:
    """The first ``candidates``, as long as they are similar."""
    smallest = largest = candidates[0].bytes
    for run in candidates:
        smallest, largest = min(smallest, run.bytes), max(largest, run.bytes)
        if largest > SIMILAR * smallest:
            return
        yield run


def _neighbours(series: Iterator[Run] | Sequence[Run]) -> list[Run]:
    """The longest beginning of ``series`` whose runs have no other segment between them.

    The offset ranges of runs may overlap, because late segments become runs as well.
    """
    taken: list[Run] = []
    first, last, held, whole = sys.maxsize, 0, 0, 0
    for run in series:
        taken.append(run)
        first, last, held = min(first, *run.places), max(last, *run.places), held + len(run.places)
        if last - first + 1 == held:
            whole = len(taken)
    return taken[:whole]


def may_be_due(figures: Figures) -> Bools:
    """[P] True where there are enough segments of runs."""
    due: Bools = figures.number(figures.head(RUN)) >= figures.each(lambda policy: policy.tier_runs)
    return due


TRAITS = Traits("C15", look, may_be_due, level_in=RUN, level_out=RUN, cleans=True, decides=True)
