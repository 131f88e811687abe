"""How much of a plan pass 2 writes at a time, so that memory is bounded by configuration and not by data.

What pass 1 found out is broadcast to every task. A plan for whose words that would be too much is written in several
rounds, each over a range of offsets with the words of that range.
"""

from collections.abc import Collection
from typing import NamedTuple

from pipeline.plan import Plan
from pipeline.plan.plan import Input
from pipeline.plan.staying import series

WORDS_PER_ROUND = 8_000_000
"""So many words are broadcast at a time: some 500 MB as Spark's hash table of them."""


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
        words += _words(segment)
        if words > WORDS_PER_ROUND and segment.base_offset > end >= 0:
            cuts.append(segment.base_offset)
            words = _words(segment)
        end = max(end, segment.last_offset)
    lowest = [None, *cuts]
    highest = [*(cut - 1 for cut in cuts), None]
    return [Round(*bounds) for bounds in zip(lowest, highest, strict=True)]


def _words(segment: Input) -> int:
    """At most so many words hold the segment's records: a word for 64 offsets, and none without a record."""
    return min(segment.records, (segment.last_offset >> 6) - (segment.base_offset >> 6) + 1)
