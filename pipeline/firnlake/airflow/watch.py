"""Polling of tables for due plans, from metadata alone. A table is planned only if its due plans may have changed."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.plan.make import plan_lanes

log = logging.getLogger(__name__)

LONGEST_MS = 60_000
"""Maximum milliseconds between two plannings of a table, because time alone can make a plan due."""

Place = tuple[str, str, int]
"""Lane, topic and partition."""


@dataclass(frozen=True)
class Look:
    """The plans that are due in ``table`` at its snapshot ``snapshot_id``: their titles, by place."""

    table: str
    snapshot_id: int | None
    due: Mapping[Place, str]

    def beyond(self, announced: Collection[Place]) -> list[str]:
        """The titles of the plans that were not ``announced``."""
        return [title for place, title in self.due.items() if place not in announced]


@dataclass
class Watch:
    """Memory of the snapshot and the time at which each table was last planned, and of tables that can't be read."""

    lake: Lake
    _seen: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    _failing: dict[str, str] = field(default_factory=dict)

    def look(self, table: str, now_ms: int) -> Look | None:
        """The plans that are due in ``table`` at ``now_ms`` (epoch milliseconds); None if they can't have changed.

        Also None if the table can't be read, for example while the catalog is down; the log says so once. No error of
        one table may keep the other tables from being watched.
        """
        try:
            seen = self._look(table, now_ms)
        except Exception as error:
            # A damaged file or a wrong property may raise any exception, with a text that varies.
            foreseen = isinstance(error, FirnError)
            cause = str(error) if foreseen else type(error).__name__
            if self._failing.get(table) != cause:
                log.warning("%s can't be watched at the moment: %s", table, error, exc_info=not foreseen)
            self._failing[table] = cause
            return None
        if self._failing.pop(table, None):
            log.info("%s is watched again", table)
        return seen

    def _look(self, table: str, now_ms: int) -> Look | None:
        snapshot_id = self.lake.table(table).metadata.current_snapshot_id
        if table in self._seen:
            last, at_ms = self._seen[table]
            if last == snapshot_id and now_ms - at_ms < LONGEST_MS:
                return None
        plans = [plan for work in plan_lanes(self.lake, table, now_ms) for plan in work.plans]
        self._seen[table] = (snapshot_id, now_ms)
        return Look(table, snapshot_id, {(str(one.lane), one.topic, one.partition): one.title for one in plans})
