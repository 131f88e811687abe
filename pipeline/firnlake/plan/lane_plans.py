"""The due work of one lane: the plans that a run takes, and what is left out of it, in words."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from firnlake.job.failures import FailedPlan
from firnlake.job.job import Job, Packing
from firnlake.job.plan import Plan
from firnlake.table.state import State

log = logging.getLogger(__name__)

SHOWN = 20
"""Maximum number of lines for each kind of omission, because a table may have a million topic partitions."""


MOST_JOBS: Final = 1000
"""Maximum number of jobs per run of a lane; Airflow's default allows 1024 mapped tasks (``core.max_map_length``)."""


@dataclass(frozen=True)
class Postponed:
    """A due plan for which this run has no room."""

    plan: Plan
    reason: str
    too_large: bool
    """True when the plan does not fit into any run."""

    def __str__(self) -> str:
        """A message that says which plan waits, for which budget, and what ends the wait."""
        until = "for a larger budget" if self.too_large else "for the next run"
        return f"{self.plan.topic_partition} {self.plan.lane} waits {until}: its plan {self.reason}"


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


def admit(plans: Iterable[Plan], most_bytes: int, most_jobs: int = MOST_JOBS) -> tuple[list[Plan], list[Postponed]]:
    """Those of ``plans``, which are in the order of work, that one run takes, and the others.

    All that it takes together have up to ``most_bytes`` in files, and make up to ``most_jobs`` jobs. A plan that does
    not fit waits for the next run, while smaller plans after it are taken. If it is first in the next run, that run has
    room for it. A plan larger than the whole budget is never taken (C17).
    """
    taken: list[Plan] = []
    postponed: list[Postponed] = []
    packing, available = Packing(), most_bytes
    for plan in plans:
        if plan.bytes > available:
            reason = f"needs {plan.bytes} bytes; available: {available} of {most_bytes} (firn.run.max.bytes)"
        elif len(packing) >= most_jobs and not packing.has_room(plan):
            reason = f"needs one more job; a run of a lane has at most {most_jobs}"
        else:
            packing.add(plan)
            taken.append(plan)
            available -= plan.bytes
            continue
        postponed.append(Postponed(plan, reason, too_large=plan.bytes > most_bytes))
    return taken, postponed


def _first(lines: Iterable[str], count: int, rest: str) -> Iterator[str]:
    yield from islice(lines, SHOWN)
    if count > SHOWN:
        yield f"{rest}: {count - SHOWN} more"
