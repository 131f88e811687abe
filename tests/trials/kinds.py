"""The kinds of seeds, and everything that is injected."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.trials import erasures, hands, neighbours, poison, stores, writers
from tests.trials.acts import settle
from tests.trials.commits import commits
from tests.trials.faults import Deletion, Fate, Load
from tests.trials.histories import histories
from tests.trials.world import World


def _settled(play: Callable[[World], None]) -> Callable[[World], None]:
    """``play``, and rounds without a fault after it."""

    def both(world: World) -> None:
        play(world)
        settle(world)

    return both


KINDS: Final[Mapping[str, Callable[[World], None]]] = {
    "commit": _settled(commits),
    "history": _settled(histories),
    "writers": _settled(writers.writers),
    "store": _settled(stores.stores),
    "neighbours": _settled(neighbours.neighbours),
    "poison": _settled(poison.poison),
    "erasure": erasures.erasures,
}

SHARES: Final = {"commit": 4, "history": 3, "writers": 2, "store": 1, "neighbours": 3, "poison": 2, "erasure": 8}
"""How often a kind has its turn beside the others: so that a thousand seeds bring each injection twenty times.

Their sum is a prime number: all that a kind takes in turn by the seed then has its turn in that kind."""

INJECTIONS: Final = (
    *(*Fate, *Load, *Deletion),
    *(name for one in (hands, neighbours, writers, stores, poison, erasures) for name in one.EVENTS),
)
"""Everything that can go wrong, or that others can do; each is counted."""
