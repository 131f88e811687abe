"""Shared by the tests of the collector: its call, its output, side branches to look at."""

from collections.abc import Iterable
from pathlib import Path

from firnlake import clock
from firnlake.iceberg.branches import QUARANTINE, QUARANTINED, REMOVED, REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.maintain.maintain import maintain_table
from firnlake.table.policy import DAY_MS
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.lakes import TABLE, Fates, append_two, only_plan, ready, row
from tests.support.publishing import publish

HOUR_MS = 3_600_000
LATER = 4 * DAY_MS
"""Past the default age of orphans."""


def collect(lake: Lake, after_ms: int = 0, *, remove: bool = True) -> list[Finding]:
    """The findings at a later time."""
    return maintain_table(lake, TABLE, clock.now_ms() + after_ms, remove=remove)


def gone(found: Iterable[Finding], kind: Kind) -> dict[str, str]:
    """Name and reason of what goes."""
    return {one.name: one.reason for one in found if one.goes and one.kind is kind}


def kept(found: Iterable[Finding], kind: Kind) -> dict[str, str]:
    """Name and reason of what stays."""
    return {one.name: one.reason for one in found if not one.goes and one.kind is kind}


def files_on(lake: Lake, branch: str) -> set[Path]:
    """The data files of ``branch`` as it is now."""
    return {on_disk(path) for path in lakes.paths(on_branch(lake.table(TABLE), branch))}


def quarantined(lake: Lake, start: int = 0) -> Path:
    """Land a record without a key at offset ``start`` and a newer one, and publish a cleaning; the file in quarantine
    that it has added."""
    before = files_on(lake, QUARANTINE)
    append_two(lake, row(start, key=None, headers=[]), row(start + 1, headers=[]))
    plan = only_plan(lake)
    seen = lake.table(TABLE).scan().to_arrow().to_pylist()
    rows = [one | {"level": QUARANTINED if one["key"] is None else 3} for one in seen if one["offset"] >= start]
    superseded = plan.records - len(rows)
    publish(lake, ready(lake, plan, rows, Fates(superseded=superseded, quarantined=1)).identifier)
    (file,) = files_on(lake, QUARANTINE) - before
    return file


def removed_tombstone(lake: Lake, start: int = 0) -> Path:
    """Land a tombstone at offset ``start`` and a newer record, and publish a cleaning that removes the tombstone; the
    file of removed tombstones that it has added."""
    before = files_on(lake, REMOVED_TOMBSTONES)
    append_two(lake, row(start, value=None, headers=[]), row(start + 1, headers=[]))
    plan = only_plan(lake)
    rows = [row(start, value=None, headers=[], level=REMOVED), row(start + 1, headers=[])]
    fates = Fates(superseded=plan.records - 2, tombstones_removed=1)
    publish(lake, ready(lake, plan, rows, fates).identifier)
    (file,) = files_on(lake, REMOVED_TOMBSTONES) - before
    return file
