"""What each lane says of a topic partition: `look` is the only answer to whether a lane is due.

Plans, `firn status`, `firn explain`, the trigger and dry runs all show it. From when on a lane will have work is found
by asking at other clocks.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, chain

import numpy as np

from firnlake.lanes import Lane
from firnlake.lanes.answer import Waits, Work
from firnlake.lanes.figures import Figures
from firnlake.table.policy import LONG_MAX
from firnlake.table.segment import Bools
from firnlake.table.state import State


def look(lane: Lane, state: State, force: bool = False) -> Work | Waits:
    """The work of ``lane`` in ``state``, or why it waits.

    ``force`` ignores thresholds, but never the rules on which records may be removed, such as retention times.
    """
    # A lane that drops or keeps whole segments works on a blocked topic partition as well (C20).
    if state.blockers and lane.traits.writes == "segments":
        return Waits("C20", state.blockers[0])
    if state.policy.problem and lane.traits.writes == "nothing":
        return Waits("C20", state.policy.problem)
    if lane.traits.cleans and not state.policy.compacts:
        return Waits("C19", f"the topic is not compacted (cleanup.policy = {state.policy.cleanup_policy})")
    answer = lane.traits.look(state, force)
    mixed = state.requested.mixed if state.requested and lane.traits.level_out is not None else ""
    if isinstance(answer, Work) and mixed in {one.path for one in (*answer.inputs, *answer.beside)}:
        return Waits("C30", f"segment {mixed} must first be read for a new request to erase keys")
    return answer


def has_work(state: State, lanes: Iterable[Lane]) -> bool:
    """True when one of ``lanes`` has work."""
    return any(isinstance(look(lane, state), Work) for lane in lanes)


def until(state: State, lanes: Collection[Lane] = tuple(Lane)) -> int | None:
    """The earliest clock (epoch milliseconds) after the state's own at which one of ``lanes`` has work, if nothing is
    written; None when only new data can change that, or something blocks the topic partition.

    As time passes, more segments become cleanable or pass a limit, and never fewer, so a lane that is due stays due.
    Therefore a binary search finds the first such clock among the few at which anything changes.
    """
    if state.blockers:
        return None
    clocks = sorted({clock for clock in _turning_points(state) if state.now_ms < clock <= LONG_MAX})
    # The later lanes of a run become due more often with time, so they are asked first.
    asked = [*lanes][::-1]
    first = bisect_left(clocks, True, key=lambda clock: has_work(replace(state, now_ms=clock), asked))  # noqa: FBT003  # the value
    return clocks[first] if first < len(clocks) else None


def _turning_points(state: State) -> Iterator[int]:
    """Every clock at which something in ``state`` passes a limit of time."""
    # A segment that is too young holds back all segments after it, so only the newest so far matter, in offset order.
    newest = set(accumulate((segment.newest_ms for segment in state.head), max))
    yield from (clock + state.policy.min_compaction_lag_ms for clock in newest)
    yield from chain.from_iterable(lane.traits.clocks(state) for lane in Lane)


def quiet(figures: Figures) -> Bools:
    """[P] True where no lane has work unless it is forced, and no segment is too large for a plan.

    Most topic partitions of a large table are quiet most of the time; only the others are looked at exactly.
    """
    fact, each_segment = figures.fact, figures.each_segment
    large = fact("bytes") > each_segment(lambda policy: policy.small_segment[0])
    large |= np.maximum(fact("records"), fact("keys")) > each_segment(lambda policy: policy.small_segment[1])
    silent: Bools = figures.number(large) == 0
    for lane in Lane:
        silent &= ~lane.traits.may_be_due(figures)
    return silent
