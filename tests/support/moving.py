"""Commits that move main and a side branch, and what readers of both see."""

from collections.abc import Mapping
from pathlib import Path

from firnlake.iceberg.branches import QUARANTINE, QUARANTINED, REMOVED, REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.job.stage import Stage
from firnlake.plan.make import plan_table
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.lakes import NOW, TABLE, Fates, append_two, only_plan, ready, row
from tests.support.publishing import publish


def null_key_stage(lake: Lake, start: int = 0) -> Stage:
    """One that moves a record without a key, the one at ``start``, to the quarantine."""
    append_two(lake, row(start, key=None), row(start + 1))
    kept = [row(start, key=None, level=QUARANTINED), row(start + 1)]
    (plan,) = (one for one in plan_table(lake, TABLE, Lane.FULL, NOW, force=True) if one.partition == 0)
    return ready(lake, plan, kept, Fates(quarantined=1, superseded=plan.records - 2))


def seen(lake: Lake) -> tuple[list[int], list[int]]:
    """The offsets on main and in quarantine."""
    aside = on_branch(lake.table(TABLE), QUARANTINE).scan().to_arrow()["offset"].to_pylist()
    return lakes.offsets(lake), sorted(aside)


def heads(lake: Lake) -> Mapping[str, int]:
    return {name: ref.snapshot_id for name, ref in lake.table(TABLE).metadata.refs.items()}


def audit(lake: Lake) -> None:
    """Append to branch `audit`, which is not Firn's; main gets no snapshot."""
    table = lake.table(TABLE)
    if "audit" not in table.metadata.refs:
        current = table.metadata.current_snapshot_id
        assert current is not None
        table.manage_snapshots().create_branch(current, "audit").commit()
    lake.table(TABLE).append(lakes.stored([row(99, partition=9)]), branch="audit")


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
