"""What a lane is, and what it says of a topic partition: the work that it has to do there, or why it waits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from firnlake.table.policy import INT_MAX, Policy
from firnlake.table.segment import Segment
from firnlake.table.state import State

FEWEST: Final = 2
"""The smallest number of segments, or of runs, that can be combined into one."""


@dataclass(frozen=True)
class Reason:
    """A rule of the contract, a reason in words, and the epoch milliseconds at which the reason ends by itself."""

    rule: str
    text: str
    until_ms: int | None = None


class Waits(Reason):
    """Why a lane has nothing to do, with the figures that it found and those that it needs."""


@dataclass(frozen=True)
class Work:
    """Work of a lane on the segments ``inputs``, in offset order, which fit a plan together (C17)."""

    inputs: tuple[Segment, ...]
    reason: str
    beside: tuple[Segment, ...] = ()
    """Segments of removed tombstones that the plan reads as well."""
    inputs_per_segment: int | None = None
    """Lane `merge`: number of inputs of each segment that the plan writes."""
    requests: tuple[str, ...] = ()
    """Ids of the requests that the work serves (C30)."""


@dataclass(frozen=True)
class Traits:
    """What a lane is: when it has work, and what those must know who carry out any lane's plans."""

    rule: str
    """The rule of the contract that says when the lane is due."""
    look: Callable[[State, bool], Work | Waits]
    """Finds the lane's work; the flag ignores thresholds. `Lane.look` asks it unless something blocks it."""
    writes: Literal["segments", "deletes", "nothing"] = "segments"
    level_in: int | None = None
    """The level of all segments that the lane takes; None if it takes segments of several levels."""
    level_out: int | None = None
    """The level of the segments that the lane makes of its inputs; None if it makes none, or keeps their levels."""
    cleans: bool = False
    """The lane removes records because of newer ones, which needs a compacted topic (C19)."""
    serves_requests: bool = False
    """The lane does what requests ask for (C30): no segment may hold a requested record afterwards."""
    removal: str = ""
    """Why every record that the lane removes goes, in words; empty if each record has a reason of its own."""

    @property
    def copies(self) -> bool:
        """True if the lane copies records, each as often as its file is listed, instead of cleaning them."""
        return self.writes == "segments" and not self.cleans

    @property
    def decides(self) -> bool:
        """True if the lane treats control records and the records of transactions specially (C10)."""
        return self.cleans or self.serves_requests

    @property
    def whole(self) -> bool:
        """True if the lane works on a whole topic partition at once; then its inputs may all stay in place."""
        return self.writes == "deletes" or self.serves_requests

    @property
    def replaces(self) -> bool:
        """True if readers see the same records after the lane's commits (Iceberg's operation `replace`)."""
        return self.writes == "deletes" or (self.copies and not self.serves_requests)


def too_few(rule: str, number: int, policy: Policy, threshold: str, what: str, fewest: int | None = None) -> Waits:
    """Why the lane of ``rule`` waits: the largest ``number`` of ``what`` that lie together is below the field
    ``threshold`` of the policy, or not even the ``fewest`` of them (None: as many as the threshold) fit a plan."""
    needed = getattr(policy, threshold)
    if needed >= INT_MAX:
        name = Policy.model_fields[threshold].alias
        return Waits(rule, f"no number of segments makes the lane due (firn.{name} = {needed})")
    if number >= needed:
        return Waits("C17", f"{number} {what}, but no {fewest or needed} of them fit a plan together")
    return Waits(rule, f"{number} of {needed} {what}")
