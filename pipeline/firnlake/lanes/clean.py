"""Lane `clean`: cleans neighbouring merged segments into one run, without the tail (C14)."""

from firnlake.job.lane import Lane
from firnlake.lanes.answer import Waits, Work, too_few
from firnlake.table.segment import MERGED
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
        return Work(Lane.CLEAN, state.budget().oldest(series), reason)
    return too_few(Lane.CLEAN, longest, state.policy, "clean_segments", "adjacent cleanable L1 segments")
