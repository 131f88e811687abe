"""What a lane says of a topic partition: the work that it has to do there, or why it waits."""

from dataclasses import dataclass
from typing import Final

from firnlake.job.lane import Lane
from firnlake.table.policy import INT_MAX, Policy
from firnlake.table.segment import Segment

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
    """Work of ``lane`` on the segments ``inputs``, in offset order, which fit a plan together (C17)."""

    lane: Lane
    inputs: tuple[Segment, ...]
    reason: str
    beside: tuple[Segment, ...] = ()
    """Segments of removed tombstones that the plan reads as well."""
    staying: frozenset[str] = frozenset()
    """Paths of those inputs that change only if another input has a newer record of one of their keys."""
    waiting_segments: int = 0
    """Lane `full`: number of cleanable segments past the inputs, for which the plan has no room."""
    inputs_per_segment: int | None = None
    """Lane `merge`: number of inputs of each segment that the plan writes."""
    requests: tuple[str, ...] = ()
    """Ids of the requests that the work serves (C30)."""


def too_few(lane: Lane, number: int, policy: Policy, threshold: str, what: str, fewest: int | None = None) -> Waits:
    """Why ``lane`` waits: the largest ``number`` of ``what`` that lie together is below the field ``threshold`` of the
    policy, or not even the ``fewest`` of them (None: as many as the threshold) fit a plan."""
    needed = getattr(policy, threshold)
    if needed >= INT_MAX:
        name = Policy.model_fields[threshold].alias
        return Waits(lane.traits.rule, f"no number of segments makes the lane due (firn.{name} = {needed})")
    if number >= needed:
        return Waits("C17", f"{number} {what}, but no {fewest or needed} of them fit a plan together")
    return Waits(lane.traits.rule, f"{number} of {needed} {what}")
