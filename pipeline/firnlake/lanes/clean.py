"""Lane `clean`: cleans neighbouring merged segments into one run, without the tail (C14)."""

from firnlake.lanes.answer import Traits, Waits, Work, enough, too_few
from firnlake.table.segment import MERGED, RUN
from firnlake.table.state import State
from firnlake_expectations.wording import count


def look(state: State, force: bool) -> Work | Waits:
    """The oldest series that is long enough; with ``force``, any series."""
    whole = state.policy.clean_segments
    longest = 0
    for series in state.series(MERGED, state.may_clean):
        longest = max(longest, len(series))
        if force or len(series) >= whole:
            return Work(state.budget().oldest(series), f"{len(series)} of {count(whole, 'L1 segment')}")
    return too_few("C14", longest, state.policy, "clean_segments", "adjacent cleanable L1 segments")


TRAITS = Traits("C14", look, enough(MERGED, "clean_segments"), level_in=MERGED, level_out=RUN, cleans=True)
