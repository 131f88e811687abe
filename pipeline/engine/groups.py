"""Group tasks by equal weight: each call of a worker costs about 40 ms."""

import heapq
from collections.abc import Sequence

BYTES_PER_GROUP = 256 * 2**20
MOST_ROUNDS = 4
"""Maximum number of groups per worker: more groups even out wrong weights, but past four the calls cost more."""


def balanced(weights: Sequence[int], workers: int) -> list[list[int]]:
    """Positions of ``weights`` (bytes) in groups, the heaviest group first, and in each the heaviest position first.

    There are as many groups as workers, up to four times as many for large work, and never more than positions.
    """
    rounds = min(max(sum(weights) // (workers * BYTES_PER_GROUP), 1), MOST_ROUNDS)
    groups: list[list[int]] = [[] for _ in range(min(workers * rounds, len(weights)))]
    # The next heaviest goes to the lightest group; a zero weight still counts, because a call does.
    lightest = [(0, number) for number in range(len(groups))]
    for position in heaviest_first(weights):
        weight, number = lightest[0]
        groups[number].append(position)
        heapq.heapreplace(lightest, (weight + max(weights[position], 1), number))
    by_group = {number: weight for weight, number in lightest}
    return [groups[number] for number in sorted(by_group, key=lambda number: (-by_group[number], number))]


def heaviest_first(weights: Sequence[int]) -> list[int]:
    """Positions of ``weights`` from the heaviest to the lightest; ties keep their order."""
    return sorted(range(len(weights)), key=lambda position: -weights[position])
