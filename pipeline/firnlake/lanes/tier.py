"""Lane `tier`: combines neighbouring runs of similar size into one (C15).

A run consists of the segments that one cleaning wrote at level 2. Their common data sequence number identifies the run:
Iceberg gives that number to every file of a commit, and keeps it when manifests are rewritten, so Firn need not store
which segments form a run.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from firnlake.lanes.answer import FEWEST, Traits, Waits, Work, enough, too_few
from firnlake.table.segment import RUN, Segment
from firnlake.table.state import Budget, State

SIMILAR: Final = 2.0
"""Runs are of similar size when the largest has at most this many times the bytes of the smallest (WarpStream tiers
files "of similar size"; the figure is Firn's)."""


def look(state: State, force: bool) -> Work | Waits:
    """The oldest runs of similar size that fit a plan, if there are enough; with ``force``, two."""
    wanted, budget = state.policy.tier_runs, state.budget()
    every, longest = runs(state), 0
    for start in range(len(every)):
        similar = series(every[start:])
        longest = max(longest, len(similar))
        if len(similar) >= (FEWEST if force else wanted) and (fitting := _fitting(similar, budget)):
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


def series(every: Sequence[Run]) -> tuple[Run, ...]:
    """The longest beginning of ``every`` whose runs are of similar size and neighbours: no other segment lies between
    them in offset order. Their offset ranges may overlap, because late segments become runs as well."""
    smallest = largest = every[0].bytes if every else 0
    places: set[int] = set()
    whole = 0
    for number, run in enumerate(every, start=1):
        smallest, largest = min(smallest, run.bytes), max(largest, run.bytes)
        if largest > SIMILAR * smallest:
            break
        places.update(run.places)
        if max(places) - min(places) + 1 == len(places):
            whole = number
    return tuple(every[:whole])


def _fitting(similar: Sequence[Run], budget: Budget) -> tuple[Segment, ...]:
    """The segments, in offset order, of the oldest of ``similar`` that fit the budget together; empty for a single
    run."""
    taken = series(similar[: len(budget.fitting([run.segments for run in similar]))])
    if len(taken) < FEWEST:
        return ()
    return tuple(sorted((segment for run in taken for segment in run.segments), key=lambda segment: segment.order))


TRAITS = Traits("C15", look, enough(RUN, "tier_runs"), level_in=RUN, level_out=RUN, cleans=True)
