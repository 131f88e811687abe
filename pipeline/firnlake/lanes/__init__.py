"""The lanes, Firn's kinds of work: what each has to do in a topic partition, or why it waits there."""

from enum import StrEnum
from typing import Final, Self

from firnlake.lanes import clean, convert, erase, full, merge, retain, tier
from firnlake.lanes.answer import Traits
from firnlake.table.segment import LANDED


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


TOP: Final = max(Lane, key=lambda lane: lane.traits.level_out or LANDED)
"""The lane that writes the highest level, and takes segments of all."""
SERVING: Final = next(lane for lane in Lane if lane.traits.serves_requests)
"""The lane that does what requests ask for (C30)."""
