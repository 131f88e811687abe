"""Collect the garbage of a table, and of Firn's home on this machine.

A dry run finds exactly what a removal would. Each part looks again right before it deletes, so collectors, runs and
other writers may work at the same time; the next collector resumes an interrupted one.
"""

from collections.abc import Mapping
from dataclasses import replace

from pipeline.gc.garbage import Garbage, Kind
from pipeline.gc.in_use import Works
from pipeline.gc.limits import KeepLimits
from pipeline.gc.orphans import orphans
from pipeline.gc.plans import old_plans
from pipeline.gc.references import Unreferenced
from pipeline.gc.reports import old_reports
from pipeline.gc.side_branches import old_on_branches
from pipeline.gc.stale import End, FoundStage, found_stages
from pipeline.gc.sweep import clear
from pipeline.lake import Lake
from pipeline.lake.folders import Stored


def collect_table(lake: Lake, identifier: str, now_ms: int, *, remove: bool, data: bool = True) -> list[Garbage]:
    """Garbage of table ``identifier``: already deleted with ``remove``, otherwise only listed.

    ``data`` includes data files that no snapshot refers to; this lists Firn's folder below the table's data and reads
    all manifests of its history. Referenced files never go, except those on a side branch past their limit. Raises
    RefusedError for an unknown table or a wrong limit, UnavailableError when catalog or store do not answer; whatever
    was removed by then was garbage.
    """
    with lake.answering():
        found = _stages(lake, identifier, now_ms, remove=remove)
        found += old_on_branches(lake, identifier, now_ms, remove=remove)
        if data:
            found += orphans(lake, identifier, now_ms, remove=remove)
        return found


def collect_home(lake: Lake, now_ms: int, *, remove: bool, works: Works | None = None) -> list[Garbage]:
    """Garbage in the home of ``lake``: plan files and reports, of all tables.

    ``works`` says whether the scheduler run that holds a table's lease is still active; without it every such run
    counts as active. Raises RefusedError for a wrong limit.
    """
    plans, reports = KeepLimits.of_plans(), KeepLimits.of_reports()
    return [
        *old_plans(lake, plans, now_ms, remove=remove, works=works),
        *old_reports(lake, reports, now_ms, remove=remove),
    ]


def _stages(lake: Lake, identifier: str, now_ms: int, *, remove: bool) -> list[Garbage]:
    """Every stage of table ``identifier``; with ``remove``, stale ones are deleted."""
    stages = found_stages(lake, identifier, now_ms=now_ms)
    files = {one.identifier: one.files for one in stages}
    going = _going(lake, identifier, stages, files)
    found = [_finding(one, going.get(one.identifier, files[one.identifier]), now_ms) for one in stages]
    kept = clear(lake, identifier, stages).kept if remove else {}
    return [replace(one, goes=False, reason=kept[one.name]) if one.name in kept else one for one in found]


def _going(
    lake: Lake, identifier: str, stages: list[FoundStage], files: Mapping[str, list[Stored]]
) -> Mapping[str, list[Stored]]:
    """Files that go with their stages: a stage may have been published without being deleted."""
    ending = [one.identifier for one in stages if one.end in (End.DISCARD, End.SHELVE)]
    unreferenced = Unreferenced(file.path for name in ending for file in files[name])
    if unreferenced:
        unreferenced.look(lake, identifier)
    return {name: [file for file in files[name] if file.path in unreferenced] for name in ending}


def _finding(one: FoundStage, files: list[Stored], now_ms: int) -> Garbage:
    goes = one.end not in (End.STAY, End.UNKNOWN)
    reason = f"only its marker stays: it {one.reason}" if one.end is End.SHELVE else one.reason
    found = Garbage.of_files(Kind.STAGE, one.identifier, files, now_ms, goes=goes, reason=reason)
    # A stage is as old as its first document, whatever the age of its files.
    written_ms = one.documents.written_ms
    return replace(found, age_ms=None if written_ms is None else now_ms - written_ms)
