"""The due work of one lane: the plans of this run, and what is left out of it, in words."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from firnlake.job.failures import FailedPlan
from firnlake.job.job import Job
from firnlake.job.plan import Plan
from firnlake.plan.order import Postponed
from firnlake.table.state import State

log = logging.getLogger(__name__)

SHOWN = 20
"""Maximum number of lines for each kind of omission, because a table may have a million topic partitions."""


@dataclass(frozen=True)
class LanePlans:
    """The due work in one lane of a table: the plans that this run takes, in the order of work, and the other plans."""

    table: str
    plans: list[Plan]
    jobs: list[Job]
    postponed: list[Postponed]
    """Due plans without room in this run's budgets; they wait for the next run."""
    failed: list[FailedPlan]
    """Due plans that failed before on the same segments (C20)."""
    states: list[State]
    """The states of the topic partitions from which the plans were made."""
    behind: tuple[str, ...] = ()
    """A line if the clock is behind that of an earlier commit of Firn; the same for all lanes of a run."""

    def left(self) -> Iterator[str]:
        """Yield a line for each failed plan, and those of ``later``."""
        yield from map(str, self.failed)
        yield from self.later()

    def later(self) -> Iterator[str]:
        """Yield a line for the first ``SHOWN`` plans that wait for the next run."""
        yield from _first(map(str, self.postponed), len(self.postponed), "waiting for the next run")

    def warn(self) -> None:
        """Log a warning for each plan that is left out."""
        for line in self.left():
            log.warning("%s: %s", self.table, line)

    def oversized(self) -> Iterator[str]:
        """Yield a line for each segment that is too large for any plan (C17, C18), with what was found and is allowed.

        After ``SHOWN`` lines, a last line has only the number of further segments.
        """
        problems = [problem for state in self.states for problem in state.oversized]
        yield from _first(problems, len(problems), "segments too large for any plan (firn status names all)")


def _first(lines: Iterable[str], count: int, rest: str) -> Iterator[str]:
    yield from islice(lines, SHOWN)
    if count > SHOWN:
        yield f"{rest}: {count - SHOWN} more"
