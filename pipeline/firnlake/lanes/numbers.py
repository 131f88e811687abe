"""Lanes that wait for a number of segments or runs."""

from typing import Final

from firnlake.job.lane import Lane
from firnlake.lanes.answer import Waits
from firnlake.table.policy import INT_MAX, Policy

FEWEST: Final = 2
"""The smallest number of segments, or of runs, that can be combined into one."""


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
