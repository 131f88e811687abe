"""The kinds of seeds, and everything that is injected."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.nightly.trials import hands, neighbours, processes, stores, writers
from tests.nightly.trials.acts import settle
from tests.nightly.trials.commits import commits
from tests.nightly.trials.faults import FAULTS
from tests.nightly.trials.histories import histories
from tests.nightly.trials.world import World


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
    "processes": _settled(processes.processes),
}

SHARES: Final = {"commit": 4, "history": 3, "writers": 2, "store": 1, "neighbours": 3, "processes": 6}
"""How often a kind has its turn beside the others: so that a thousand seeds bring each injection twenty times.

Their sum is a prime number: all that a kind takes in turn by the seed then has its turn in that kind."""

INJECTIONS: Final = (
    *FAULTS,
    *(name for one in (hands, neighbours, writers, stores, processes) for name in one.EVENTS),
)
"""Everything that can go wrong, or that others can do; each is counted."""
