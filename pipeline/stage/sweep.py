"""Sweep: discard the stages that nobody will publish any more, and shelve those whose plans failed."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyarrow.fs import FileSelector
from pyiceberg.table import Table

from pipeline import clock
from pipeline.errors import FirnError, MetadataLostError
from pipeline.lake import Lake
from pipeline.plan.failure import stages_of
from pipeline.plan.plan import STAGE_INFIX
from pipeline.policy import Policies
from pipeline.segments.live import LiveInputs
from pipeline.stage.claim import LEASE_MS
from pipeline.stage.discard import discard, forget, shelve
from pipeline.stage.folders import delete_folder, stages_folder, store
from pipeline.stage.published import commits_folder, document_of
from pipeline.stage.stage import Stage


@dataclass(frozen=True)
class Swept:
    """What a sweep did: stages discarded, shelved as failure markers, and kept because something forbade it, and why.

    Markers that were there already and stages that may still be published are not listed.
    """

    discarded: dict[str, str] = field(default_factory=dict)
    shelved: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)


def sweep(lake: Lake, identifier: str, plan_ids: Iterable[str] = ()) -> Swept:
    """Discard the stages of table ``identifier`` that nobody will publish any more.

    These are the ones of ``plan_ids`` (the caller's own), those that can't be published because an input is gone, and
    those older than ``firn.stage.max.age.ms``. Age is by the machine's clock: it is what stamped the stage. A failed
    stage whose inputs are all live is not discarded, however old, but shelved: it marks what must not be tried again,
    until another failure of the same lane and topic partition takes its place (C20).
    """
    swept = Swept()
    stages = _load(lake, identifier, swept)
    # Loaded after the stages: an input that landed since the target was loaded would look as if it were gone.
    target = lake.table(identifier)
    reasons = _Reasons(target, identifier, stages, frozenset(plan_ids))
    for stage in stages:
        try:
            reason = reasons.to_discard(stage)
            if reason:
                discard(lake, stage.identifier)
                swept.discarded[stage.identifier] = reason
            elif stage.failure and not stage.failure.shelved:
                shelve(lake, stage.identifier)
                swept.shelved[stage.identifier] = str(stage.failure)
        except FirnError as error:
            swept.kept[stage.identifier] = str(error)
    for folder in _forgotten(lake, target, identifier):
        delete_folder(target, folder)
        swept.discarded[folder] = "no stage is registered for this folder"
    _delete_documents(target)
    return swept


def _load(lake: Lake, identifier: str, swept: Swept) -> list[Stage]:
    """The stages that can be read. One whose metadata file is gone is of no use to anybody, and forgotten."""
    stages = []
    for name in stages_of(lake, identifier):
        try:
            stages.append(Stage.load(lake, name))
        except MetadataLostError as error:
            forget(lake, name)
            swept.discarded[name] = str(error)
        except FirnError as error:
            swept.kept[name] = str(error)
    return stages


class _Reasons:
    """Why stages are discarded; the target's manifests are read once for all of them."""

    def __init__(self, target: Table, identifier: str, stages: Sequence[Stage], own: frozenset[str]) -> None:
        self._max_age_ms = Policies.parse(identifier, target.properties).default.stage_max_age_ms
        self._own = own
        paths = {segment.path for stage in stages for plan in stage.plans for segment in plan.inputs}
        self._gone = frozenset(LiveInputs.find(target, sorted(paths)).gone) if paths else frozenset()
        self._newest_failures = {
            (stage.plan.topic_partition, stage.plan.lane): stage.identifier
            for stage in sorted(stages, key=lambda stage: stage.failure.clock_ms if stage.failure else 0)
            if stage.failure
        }

    def to_discard(self, stage: Stage) -> str | None:
        """Why ``stage`` goes; None when it stays."""
        if stage.failure is None and any(plan.id in self._own for plan in stage.plans):
            return "its run is over"
        age = clock.now_ms() - stage.table.metadata.last_updated_ms
        if stage.failure is None and age > self._max_age_ms:
            return f"it is {age} ms old, firn.stage.max.age.ms allows {self._max_age_ms}"
        gone = [next((one.path for one in plan.inputs if one.path in self._gone), None) for plan in stage.plans]
        if all(gone):
            # As long as one plan of a job can be published the stage may be.
            return f"its input {gone[0]} is no longer live"
        if stage.failure:
            newest = self._newest_failures[stage.plan.topic_partition, stage.plan.lane]
            return None if newest == stage.identifier else f"{newest} failed after it"
        return None


def _forgotten(lake: Lake, target: Table, identifier: str) -> list[str]:
    """Metadata folders without a stage: a process died just before it registered one, or just after it dropped one.

    A folder younger than a claim's lease may belong to a stage that is being registered right now, and is left alone.
    """
    root = stages_folder(target)
    files, folder = store(target, root)
    newest: dict[str, int] = {}
    for info in files.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True)):
        if info.is_file:
            job_id = info.path.removeprefix(folder).lstrip("/").partition("/")[0]
            newest[job_id] = max(newest.get(job_id, 0), (info.mtime_ns or 0) // 1_000_000)
    registered = {name.rpartition(STAGE_INFIX)[2] for name in stages_of(lake, identifier)}
    limit = clock.now_ms() - LEASE_MS
    return [f"{root}/{job_id}" for job_id, ms in newest.items() if job_id not in registered and ms < limit]


def _delete_documents(target: Table) -> None:
    """Delete lists of plans whose commit never came about, or is expired; young ones may be of one on its way."""
    named = {document_of(snapshot) for snapshot in target.metadata.snapshots}
    files, folder = store(target, commits_folder(target))
    limit = clock.now_ms() - LEASE_MS
    for info in files.get_file_info(FileSelector(folder, allow_not_found=True)):
        if info.is_file and info.base_name not in named and (info.mtime_ns or 0) // 1_000_000 < limit:
            with suppress(FileNotFoundError):
                files.delete_file(info.path)
