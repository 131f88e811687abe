"""Looks at tables, from metadata alone: what is due in them, told again only when that may have changed."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline import clock
from pipeline.errors import FirnError
from pipeline.lake import Lake
from pipeline.plan import plan_lanes

log = logging.getLogger(__name__)

LONGEST_MS = 60_000
"""So long after the last look a table is looked at again though nothing was written: time alone makes things due."""

Place = tuple[str, str, int]
"""Lane, topic and partition."""


@dataclass(frozen=True)
class Look:
    """What was due in ``table`` at its snapshot ``snapshot_id``: the titles of the plans that a run would take."""

    table: str
    snapshot_id: int | None
    due: Mapping[Place, str]


@dataclass
class Watch:
    """Remembers the snapshot and the time of the last look at each table, and which ones can't be looked at."""

    lake: Lake
    _seen: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    _failing: dict[str, str] = field(default_factory=dict)

    def look_now(self, table: str) -> Look | None:
        """``look`` by the machine's clock."""
        return self.look(table, clock.now_ms())

    def look(self, table: str, now_ms: int) -> Look | None:
        """What is due in ``table`` at ``now_ms`` (epoch milliseconds); None when nothing can have changed.

        None as well when it can't be told, while the catalog is down say: told once in the log, and looked past.
        """
        try:
            found = self._look(table, now_ms)
        except FirnError as error:
            if self._failing.get(table) != str(error):
                log.warning("%s is not watched at the moment: %s", table, error)
            self._failing[table] = str(error)
            return None
        if self._failing.pop(table, None):
            log.info("%s is watched again", table)
        return found

    def _look(self, table: str, now_ms: int) -> Look | None:
        snapshot_id = self.lake.table(table).metadata.current_snapshot_id
        if table in self._seen:
            last, at_ms = self._seen[table]
            if last == snapshot_id and now_ms - at_ms < LONGEST_MS:
                return None
        plans = [plan for work in plan_lanes(self.lake, table, now_ms).values() for plan in work.plans]
        self._seen[table] = (snapshot_id, now_ms)
        return Look(table, snapshot_id, {(str(one.lane), one.topic, one.partition): one.title for one in plans})
