"""Stages that nobody will publish, as ``sweep`` finds them, with what goes with each."""

from collections.abc import Mapping
from dataclasses import replace

from pipeline.gc.finding import Finding, Kind
from pipeline.lake import Lake
from pipeline.lake.folders import Stored
from pipeline.segments.held import Unheld
from pipeline.stage.holders import look_at_table, look_beside
from pipeline.stage.leftovers import End, Leftovers, LeftStage
from pipeline.stage.sweep import clear


def left_stages(lake: Lake, identifier: str, now_ms: int, *, remove: bool) -> list[Finding]:
    """Every stage of table ``identifier`` and what lies about of former ones, all gone that has to, with ``remove``."""
    left = Leftovers.find(lake, identifier, now_ms=now_ms)
    files = {one.identifier: one.files for one in left.stages}
    going = _going(lake, identifier, left, files)
    found = [_of_stage(one, going.get(one.identifier, files[one.identifier]), now_ms) for one in left.stages]
    found += [
        Finding.of_files(
            Kind.STAGE_FOLDER, one.location, one.files, now_ms, goes=True, reason="no stage is registered for it"
        )
        for one in left.folders
    ]
    found += [
        Finding.of_files(Kind.PLAN_LIST, one.path, [one], now_ms, goes=True, reason="no snapshot of the table names it")
        for one in left.documents
    ]
    kept = clear(lake, left).kept if remove else {}
    return [replace(one, goes=False, reason=kept[one.name]) if one.name in kept else one for one in found]


def _going(
    lake: Lake, identifier: str, left: Leftovers, files: Mapping[str, list[Stored]]
) -> Mapping[str, list[Stored]]:
    """Of the files of stages that go, those that go with them: a stage may have been published and never dropped."""
    ending = [one.identifier for one in left.stages if one.end in (End.DISCARD, End.SHELVE)]
    unheld = Unheld(file.path for name in ending for file in files[name])
    look_beside(lake, identifier, unheld)
    look_at_table(lake, identifier, unheld)
    return {name: [file for file in files[name] if file.path in unheld] for name in ending}


def _of_stage(left: LeftStage, files: list[Stored], now_ms: int) -> Finding:
    goes = left.end not in (End.STAY, End.UNKNOWN)
    reason = f"only its marker stays: it {left.reason}" if left.end is End.SHELVE else left.reason
    found = Finding.of_files(Kind.STAGE, left.identifier, files, now_ms, goes=goes, reason=reason)
    # A stage is as old as the last change to it, whatever lies in its folder.
    return replace(found, age_ms=now_ms - left.stage.table.metadata.last_updated_ms if left.stage else None)
