"""Lane `merge`: joins neighbouring landed segments, and keeps every record (C13).

Compaction lags don't matter, because a merge removes nothing. A group has ``merge.segments`` segments, so that every L1
segment is made of the same number of L0 segments.
"""

from collections.abc import Sequence
from itertools import takewhile

from firnlake.lanes.answer import FEWEST, Traits, Waits, Work, enough, too_few
from firnlake.table.segment import LANDED, MERGED, Segment
from firnlake.table.state import State, keys_of
from firnlake_expectations.wording import count


def look(state: State, force: bool) -> Work | Waits:
    """The oldest groups that fit a plan; with ``force``, two neighbours are enough."""
    whole = state.policy.merge_segments

    def possible(segment: Segment) -> bool:
        return segment.path not in state.active and not state.excess(segment)

    longest = 0
    for series in state.series(LANDED, possible):
        longest = max(longest, len(series))
        # If the oldest segments are too large together, the lane takes later ones.
        for start in range(len(series) - (FEWEST if force else whole) + 1):
            if groups := _groups(series[start:], state, force):
                reason = f"{len(series)} of {count(whole, 'L0 segment')}"
                return Work(groups, reason, inputs_per_segment=whole)
    return too_few("C13", longest, state.policy, "merge_segments", "adjacent L0 segments")


def _groups(series: tuple[Segment, ...], state: State, force: bool) -> tuple[Segment, ...]:
    """The segments of the first groups of ``series`` that fit a plan together.

    The segments of an incomplete group wait for later neighbours, unless ``force`` is set.
    """
    whole = state.policy.merge_segments
    groups = (series[first : first + whole] for first in range(0, len(series), whole))
    possible = takewhile(lambda group: (force or len(group) == whole) and _can_be_cleaned_as_one(group, state), groups)
    taken = state.budget(compares_keys=False).fitting(possible)
    return tuple(segment for group in taken for segment in group)


def _can_be_cleaned_as_one(group: Sequence[Segment], state: State) -> bool:
    """True when a segment made of ``group`` would fit a cleaning; otherwise ``group`` must not be merged."""
    return not state.policy.compacts or keys_of(group) <= state.policy.keys_per_plan


TRAITS = Traits("C13", look, enough(LANDED, "merge_segments"), level_in=LANDED, level_out=MERGED)
