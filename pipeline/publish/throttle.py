"""Throttle Firn's commits to a busy table, where others commit all the time.

Every commit costs each append in progress a try, and clients give up after a few: PyIceberg after five. Firn has time:
a plan stays valid, and the next one carries out more with one commit. On a table that is not busy nothing waits.
"""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import uniform
from typing import Final

from pyiceberg.table import Table

from pipeline.history import others_since, others_since_firn
from pipeline.lake import Lake

log = logging.getLogger(__name__)

COMMITS_BETWEEN: Final = 20
"""Number of other writers' commits between two of Firn's on a busy table."""
BUSY: Final = 3
"""Number of other writers' commits since a plan was made that make its table busy, when they follow closely."""
BUSY_MS: Final = 15_000
"""Maximum time, in milliseconds, from the first to the last of these commits, by their writers' clocks."""
QUIET_SECONDS: Final = 4.0
"""Time without a commit after which a table is busy no more."""
PATIENCE_SECONDS: Final = 60.0
"""Maximum wait for a table, over all commits that share a throttle and all their tries."""
LOOK_SECONDS: Final = 0.5
"""Average pause between two looks at a busy table."""


@dataclass(frozen=True)
class Time:
    """The time that a wait passes, in seconds of any origin; a test has one of its own."""

    now: Callable[[], float] = time.monotonic
    pass_by: Callable[[float], None] = time.sleep


class Throttle:
    """Holds back commits that belong together, such as those of a run's jobs.

    Only the first commit to a table waits: another one right after it meets the same appends in progress.
    """

    def __init__(self, lake: Lake, own_time: Time | None = None) -> None:
        self._lake = lake
        self._time = own_time or Time()
        self._until: dict[str, float] = {}
        self._committed: set[str] = set()

    def committed(self, table: str) -> None:
        """Record a commit to ``table``: the others that share this throttle follow without a wait."""
        self._committed.add(table)

    def wait(self, table: str, planned_on: Collection[int]) -> Table:
        """Wait until plans made on the snapshots ``planned_on`` may be committed; returns the table as loaded then."""
        until = self._until.setdefault(table, self._time.now() + PATIENCE_SECONDS)
        seen, seen_at, told = None, self._time.now(), False
        while True:
            current, now = self._lake.table(table), self._time.now()
            if current.metadata.current_snapshot_id != seen:
                seen, seen_at = current.metadata.current_snapshot_id, now
            free = table in self._committed or _is_free(current, planned_on)
            if free or now - seen_at >= QUIET_SECONDS or now >= until:
                return current
            if not told:
                log.info("table %s is busy: its writers go first, for %.0f s at most", table, until - now)
                told = True
            # Not all at the same moment: several publishers may wait.
            self._time.pass_by(uniform(0.5, 1.5) * LOOK_SECONDS)  # noqa: S311  # nothing is secret about it


def _is_free(current: Table, planned_on: Collection[int]) -> bool:
    newest = others_since(current, planned_on, BUSY)
    busy = len(newest) == BUSY and newest[0].timestamp_ms - newest[-1].timestamp_ms <= BUSY_MS
    return not busy or others_since_firn(current, COMMITS_BETWEEN) == COMMITS_BETWEEN
