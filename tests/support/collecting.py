"""What the tests of the collector share: how it is called, what it says, a quarantine to look at."""

from collections.abc import Iterable
from pathlib import Path

from pyiceberg.table import Table

from pipeline import clock
from pipeline.gc import Finding, Kind, collect_table
from pipeline.lake import Lake
from pipeline.publish import publish
from pipeline.quarantine.quarantine import find
from pipeline.stage import QUARANTINED
from tests.support import lakes
from tests.support.lakes import TABLE, Fates, append_two, only_plan, ready, row

HOUR_MS = 3_600_000


def collect(lake: Lake, after_ms: int = 0, *, remove: bool = True) -> list[Finding]:
    """What the collector finds when it is so much later than now."""
    return collect_table(lake, TABLE, clock.now_ms() + after_ms, remove=remove)


def gone(found: Iterable[Finding], kind: Kind) -> dict[str, str]:
    """Name and reason of what goes."""
    return {one.name: one.reason for one in found if one.goes and one.kind is kind}


def kept(found: Iterable[Finding], kind: Kind) -> dict[str, str]:
    """Name and reason of what stays."""
    return {one.name: one.reason for one in found if not one.goes and one.kind is kind}


def quarantined(lake: Lake, start: int = 0) -> set[Path]:
    """Land a record without a key and a newer one, and publish a cleaning; the files in quarantine."""
    append_two(lake, row(start, key=None, headers=[]), row(start + 1, headers=[]))
    plan = only_plan(lake)
    seen = lake.table(TABLE).scan().to_arrow().to_pylist()
    rows = [one | {"level": QUARANTINED if one["key"] is None else 3} for one in seen if one["offset"] >= start]
    superseded = plan.records - len(rows)
    publish(lake, ready(lake, plan, rows, Fates(superseded=superseded, quarantined=1)).identifier)
    return {lakes.on_disk(path) for path in lakes.paths(find_quarantine(lake))}


def find_quarantine(lake: Lake) -> Table:
    table = find(lake, TABLE)
    assert table is not None
    return table
