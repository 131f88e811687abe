"""What side branches hold: their files, and a removed tombstone."""

from pathlib import Path

from firnlake.iceberg.branches import REMOVED, REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.catalog import Lake
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.lakes import TABLE, Fates, append_two, only_plan, ready, row
from tests.support.publishing import publish


def files_on(lake: Lake, branch: str) -> set[Path]:
    """The data files of ``branch`` as it is now."""
    return {on_disk(path) for path in lakes.paths(on_branch(lake.table(TABLE), branch))}


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
