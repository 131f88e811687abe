"""The lanes, which are the kinds of work, and what they have in common."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from firnlake.table.segment import LANDED, MERGED, RUN, TAIL


@dataclass(frozen=True)
class Traits:
    """What distinguishes a lane, for those who carry out any lane's plans."""

    rule: str
    """The rule of the contract that says when the lane is due."""
    writes: Literal["segments", "deletes", "nothing"] = "segments"
    level_in: int | None = None
    """The level of all segments that the lane takes; None if it takes segments of several levels."""
    level_out: int | None = None
    """The level of the segments that the lane makes of its inputs; None if it makes none, or keeps their levels."""
    cleans: bool = False
    """The lane removes records because of newer ones, which needs a compacted topic (C19)."""
    copies: bool = False
    """The lane copies records, each as often as its file is listed, instead of cleaning them."""
    decides: bool = False
    """The lane treats control records and the records of transactions specially (C10)."""
    whole: bool = False
    """The lane works on a whole topic partition at once; then its inputs may all stay in place."""
    serves_requests: bool = False
    """The lane does what requests ask for (C30): no segment may hold a requested record afterwards."""
    unblocked: bool = False
    """The lane also works on a blocked topic partition (C20), because it drops or keeps whole segments."""
    removal: str = ""
    """Why every record that the lane removes goes, in words; empty if each record has a reason of its own."""

    @property
    def replaces(self) -> bool:
        """True if readers see the same records after the lane's commits (Iceberg's operation `replace`)."""
        return self.writes == "deletes" or (self.copies and not self.serves_requests)


class Lane(StrEnum):
    """The kinds of work, in the order in which a run does them."""

    RETAIN = "retain"
    ERASE = "erase"
    CONVERT = "convert"
    MERGE = "merge"
    CLEAN = "clean"
    TIER = "tier"
    FULL = "full"

    @property
    def traits(self) -> Traits:
        """What distinguishes the lane."""
        return _TRAITS[self]


_TRAITS: Final = {
    Lane.RETAIN: Traits("C19", writes="nothing", unblocked=True, removal="past the retention of its topic"),
    Lane.ERASE: Traits("C30", copies=True, decides=True, whole=True, serves_requests=True, removal="erased on request"),
    Lane.CONVERT: Traits("C27", writes="deletes", whole=True, unblocked=True),
    Lane.MERGE: Traits("C13", level_in=LANDED, level_out=MERGED, copies=True),
    Lane.CLEAN: Traits("C14", level_in=MERGED, level_out=RUN, cleans=True, decides=True),
    Lane.TIER: Traits("C15", level_in=RUN, level_out=RUN, cleans=True, decides=True),
    Lane.FULL: Traits("C12", level_out=TAIL, cleans=True, decides=True),
}

TOP: Final = max(Lane, key=lambda lane: lane.traits.level_out or LANDED)
"""The lane that writes the highest level, and takes segments of all."""
