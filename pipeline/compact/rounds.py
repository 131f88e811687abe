"""How much of a plan pass 2 writes at a time, so that memory is bounded by configuration and not by data.

What pass 1 found out is broadcast to every task. A plan for whose words that would be too much is written in several
rounds, each over a range of offsets with the words of that range.
"""

from collections.abc import Collection
from typing import NamedTuple

from pipeline.plan import Plan
from pipeline.plan.job import LIMITS, words_between
from pipeline.plan.staying import series

WORDS_PER_ROUND = LIMITS.words
"""So many words are broadcast at a time, as for a job of several plans."""


class Round(NamedTuple):
    """From which offset to which, inclusive; None: no bound."""

    lowest: int | None
    highest: int | None


EVERYTHING = Round(None, None)


def rounds(plan: Plan, stay: Collection[str]) -> list[Round]:
    """The rounds of a job with this one plan, in offset order.

    Each is of at most WORDS_PER_ROUND words, if segments allow it.
    """
    if plan.buried or plan.transactional:
        # What is told of one record depends on others, wherever they are.
        return [EVERYTHING]
    held = [segment for found in series(plan, stay) for segment in found if segment.records]
    cuts = []
    words = 0
    end = -1
    for segment in held:
        own = words_between(segment.base_offset, segment.last_offset, segment.records)
        words += own
        if words > WORDS_PER_ROUND and segment.base_offset > end >= 0:
            cuts.append(segment.base_offset)
            words = own
        end = max(end, segment.last_offset)
    lowest = [None, *cuts]
    highest = [*(cut - 1 for cut in cuts), None]
    return [Round(*bounds) for bounds in zip(lowest, highest, strict=True)]
