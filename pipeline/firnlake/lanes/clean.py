"""Lane `clean`: cleans neighbouring merged segments into one run, without the tail (C14)."""

import numpy as np

from firnlake.lanes.answer import Traits, Waits, Work, too_few
from firnlake.lanes.figures import ALMOST, Figures
from firnlake.table.segment import MERGED, RUN
from firnlake.table.segments import Bools
from firnlake.table.state import State
from firnlake_expectations.wording import count


def look(state: State, force: bool) -> Work | Waits:
    """The oldest series that is long enough, or large enough compared with the tail; with ``force``, any series."""
    whole = state.policy.clean_segments
    share = state.policy.clean_tail_fraction * state.tail_bytes
    longest = 0
    for series in state.series(MERGED, state.may_clean):
        longest = max(longest, len(series))
        size = sum(segment.data_bytes for segment in series)
        if force or len(series) >= whole:
            reason = f"{len(series)} of {count(whole, 'L1 segment')}"
        elif state.tail_bytes and size >= share:
            reason = f"{size} of {share:.0f} L1 bytes ({state.policy.clean_tail_fraction} of the tail)"
        else:
            continue
        return Work(state.budget().oldest(series), reason)
    return too_few("C14", longest, state.policy, "clean_segments", "adjacent cleanable L1 segments")


def may_be_due(figures: Figures) -> Bools:
    """[P] True where there are enough merged segments, or enough of their bytes."""
    merged = figures.head(MERGED)
    number, tail_bytes = figures.number(merged), figures.total("data_bytes", figures.tail)
    share = figures.each(lambda policy: min(policy.clean_tail_fraction, 1e18)) * np.maximum(tail_bytes, 1)
    due: Bools = number >= figures.each(lambda policy: policy.clean_segments)
    due |= (number > 0) & (figures.total("data_bytes", merged) >= ALMOST * share)
    return due


TRAITS = Traits("C14", look, may_be_due, level_in=MERGED, level_out=RUN, cleans=True)
