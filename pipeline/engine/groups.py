"""Tasks in groups of equal weight: a call of a worker costs about 40 ms, whatever it does."""

import heapq
from collections.abc import Sequence

BYTES_PER_GROUP = 256 * 2**20
MOST_ROUNDS = 4
"""More groups than workers even out weights that were guessed wrong; past four a worker the calls cost more."""


def balanced(weights: Sequence[int], workers: int) -> list[list[int]]:
    """Positions of ``weights`` (bytes) in groups, the heaviest group first, and in each the heaviest position first.

    There are as many groups as workers, up to four times as many for large work, and never more than positions.
    """
    rounds = min(max(sum(weights) // (workers * BYTES_PER_GROUP), 1), MOST_ROUNDS)
    groups: list[list[int]] = [[] for _ in range(min(workers * rounds, len(weights)))]
    # The next heaviest goes to the lightest group; a weight of nothing still counts, as a call does.
    lightest = [(0, number) for number in range(len(groups))]
    for position in heaviest_first(weights):
        weight, number = lightest[0]
        groups[number].append(position)
        heapq.heapreplace(lightest, (weight + max(weights[position], 1), number))
    by_group = {number: weight for weight, number in lightest}
    return [groups[number] for number in sorted(by_group, key=lambda number: (-by_group[number], number))]


def heaviest_first(weights: Sequence[int]) -> list[int]:
    """Positions of ``weights`` from the heaviest to the lightest; equal ones in their own order."""
    return sorted(range(len(weights)), key=lambda position: -weights[position])
