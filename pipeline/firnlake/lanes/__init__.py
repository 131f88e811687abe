"""The lanes, Firn's kinds of work: what each has to do in a topic partition, or why it waits there.

`Lane.look` is the only answer to whether a lane is due: plans, `firn status`, `firn explain`, the trigger and dry runs
all show it. From when on a lane will have work is found by asking at other clocks.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import replace
from enum import StrEnum
from typing import Final, Self

import numpy as np

from firnlake.lanes import clean, convert, erase, full, merge, retain, tier
from firnlake.lanes.answer import Figures, Traits, Waits, Work
from firnlake.table.policy import DAY_MS
from firnlake.table.segment import LANDED, Bools, Ints
from firnlake.table.state import State


class Lane(StrEnum):
    """The lanes, in the order in which a run does their work."""

    traits: Traits
    """What distinguishes the lane."""

    def __new__(cls, name: str, traits: Traits | None = None) -> Self:
        assert traits is not None  # type checkers take a look-up by name, such as ``Lane("full")``, for a call of this
        lane = str.__new__(cls, name)
        lane._value_ = name
        lane.traits = traits
        return lane

    RETAIN = "retain", retain.TRAITS
    ERASE = "erase", erase.TRAITS
    CONVERT = "convert", convert.TRAITS
    MERGE = "merge", merge.TRAITS
    CLEAN = "clean", clean.TRAITS
    TIER = "tier", tier.TRAITS
    FULL = "full", full.TRAITS

    def look(self, state: State, force: bool = False) -> Work | Waits:
        """The lane's work in ``state``, or why it waits.

        ``force`` ignores thresholds, but never the rules on which records may be removed, such as retention times.
        """
        # A lane that drops or keeps whole segments works on a blocked topic partition as well (C20).
        if state.blockers and self.traits.writes == "segments":
            return Waits("C20", state.blockers[0])
        if state.policy.problem and self.traits.writes == "nothing":
            return Waits("C20", state.policy.problem)
        if self.traits.cleans and not state.policy.compacts:
            return Waits("C19", f"the topic is not compacted (cleanup.policy = {state.policy.cleanup_policy})")
        answer = self.traits.look(state, force)
        mixed = state.requested.mixed if state.requested and self.traits.level_out is not None else ""
        if isinstance(answer, Work) and mixed in {one.path for one in (*answer.inputs, *answer.beside)}:
            return Waits("C30", f"segment {mixed} must first be read for a new request to erase keys")
        return answer


TOP: Final = max(Lane, key=lambda lane: lane.traits.level_out or LANDED)
"""The lane that writes the highest level, and takes segments of all."""
SERVING: Final = next(lane for lane in Lane if lane.traits.serves_requests)
"""The lane that does what requests ask for (C30)."""


def has_work(state: State, lanes: Iterable[Lane]) -> bool:
    """True when one of ``lanes`` has work."""
    return any(isinstance(lane.look(state), Work) for lane in lanes)


def until(state: State, lanes: Collection[Lane] = tuple(Lane), quiet_until_ms: int = 0) -> int | None:
    """The earliest clock (epoch milliseconds) after the state's own at which one of ``lanes`` has work, if nothing is
    written; None when only new data can change that, or something blocks the topic partition.

    As time passes, more segments become cleanable or pass a limit, and never fewer, so a lane that is due stays due.
    Therefore a binary search finds the first such clock among the few at which anything changes. None has work before
    ``quiet_until_ms`` (function ``quiet_until``), which mostly is that clock.
    """
    if state.blockers:
        return None
    # The later lanes of a run become due more often with time, so they are asked first.
    asked = [*lanes][::-1]

    def is_due(clock: int) -> bool:
        return has_work(replace(state, now_ms=clock), asked)

    if quiet_until_ms > state.now_ms and is_due(quiet_until_ms):
        return quiet_until_ms
    clocks = state.turning_points
    first = bisect_left(clocks, True, key=is_due)  # noqa: FBT003  # the value
    return clocks[first] if first < len(clocks) else None


def quiet_until(figures: Figures) -> Ints:
    """[P] A clock (epoch milliseconds) before which no lane has work unless something is written: that of ``figures``
    where one may have work now, and at most that of a year later."""
    now = np.full(len(figures.segments), figures.now_ms)
    latest = now + _YEAR_MS
    while (now < latest).any():
        middle = (now + latest) // 2
        silent = quiet(figures.at(middle))
        now, latest = np.where(silent, middle + 1, now), np.where(silent, latest, middle)
    return latest


_YEAR_MS: Final = 366 * DAY_MS


def quiet(figures: Figures) -> Bools:
    """[P] True where no lane has work unless it is forced, and no segment is too large for a plan.

    Most topic partitions of a large table are quiet most of the time; only the others are looked at exactly.
    """
    fact, each_segment = figures.fact, figures.each_segment
    large = fact("bytes") > each_segment(lambda policy: policy.small_segment[0])
    large |= fact("records") > each_segment(lambda policy: policy.small_segment[1])
    silent: Bools = figures.number(large) == 0
    for lane in Lane:
        silent &= ~lane.traits.may_be_due(figures)
    return silent
