"""When lane `convert` is due: many equality delete files apply to a segment, or some hold up the other lanes (C27)."""

from firnlake.lanes.answer import Figures, Traits, Waits, Work
from firnlake.table.segment import Bools
from firnlake.table.state import State
from firnlake_expectations.wording import count


def look(state: State, force: bool) -> Work | Waits:
    """All segments to which equality deletes apply; with ``force``, one such file is enough."""
    reached = tuple(one for one in state.segments if one.equality_deletes)
    for segment in reached:
        if problem := state.excess(segment):
            return Waits("C18", problem)
    most = max((one.equality_deletes for one in reached), default=0)
    holds = any(one.holding_deletes for one in reached)
    needed = 1 if force or holds else state.policy.convert_equality_deletes
    told = f"{most} of {count(needed, 'equality delete file')}"
    if reached and most >= needed:
        return Work(reached, told)
    if not most and any(one.holding_deletes for one in state.segments):
        return Waits("C27", "each equality delete file applies to a data file that no plan takes")
    return Waits("C27", told)


def may_be_due(figures: Figures) -> Bools:
    """[P] True where enough equality delete files apply to a segment, or some hold up the other lanes."""
    wanted = figures.each_segment(lambda policy: policy.convert_equality_deletes)
    deletes, holding = figures.fact("equality_deletes"), figures.fact("holding_deletes")
    due: Bools = figures.number((deletes >= wanted) | (holding > 0)) > 0
    return due


TRAITS = Traits("C27", look, may_be_due, writes="deletes")
