"""Plan files in Firn's home: written by one task, read by later ones, kept for a while for retries."""

import re
from pathlib import Path
from typing import Final

from pipeline.care.garbage import Garbage, Kind
from pipeline.care.in_use import Waiting, Works
from pipeline.care.limits import KeepLimits
from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.folders import Stored
from pipeline.plan import Plan

PLAN_FILE: Final = re.compile(r"[0-9a-f]{16}\.json")


def old_plans(
    lake: Lake, limits: KeepLimits, now_ms: int, *, remove: bool, works: Works | None = None
) -> list[Garbage]:
    """Plan files of all tables beyond ``limits``, except those that a stage or an active run still needs."""
    files = sorted(_files(lake.plans_folder), key=lambda file: -file.age_ms(now_ms))
    waiting = Waiting(lake, works)
    total = sum(file.bytes for file in files)
    garbage = []
    for file in files:
        reason = limits.exceeded(file.age_ms(now_ms), total)
        if reason is None:
            continue
        waits = _waits(waiting, file, now_ms)
        if waits is None:
            total -= file.bytes
            if remove:
                Path(file.path).unlink(missing_ok=True)
        reason = waits or reason
        garbage.append(Garbage.of_files(Kind.PLAN, file.path, [file], now_ms, goes=waits is None, reason=reason))
    return garbage


def _files(folder: Path) -> list[Stored]:
    """Firn's own files in the folder; other files are ignored."""
    paths = (path for path in folder.glob("*.json") if PLAN_FILE.fullmatch(path.name))
    # None: its run has just ended.
    return [file for path in paths if (file := Stored.at(path))]


def _waits(waiting: Waiting, file: Stored, now_ms: int) -> str | None:
    """The stage or run that needs the plan in ``file``; None when there is none, or the file is no plan."""
    try:
        plan = Plan.read(Path(file.path))
    except RefusedError:
        return None
    stage = waiting.stage_of(plan.table, plan.id)
    if stage and not stage.failure:
        return f"{stage.identifier} holds its result, which may still be published"
    run = waiting.run_of(plan.table, now_ms - file.age_ms(now_ms))
    return f"run {run} works on {plan.table}" if run else None
