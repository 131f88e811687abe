"""Discard stages: what was never published is removed with its files, what was published leaves only its frame.

A data file is deleted only when no snapshot of the target holds it, current or past (C25): a file that a reader or
time travel can reach stays, whatever the stage says.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pyarrow.fs import FileSelector, FileSystem, FileType
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from pipeline import clock
from pipeline.errors import FirnError, RefusedError
from pipeline.lake import Lake
from pipeline.policy import Policies
from pipeline.quarantine import quarantine
from pipeline.segments.live import LiveInputs
from pipeline.segments.read import entries
from pipeline.stage.claim import Claim, claim
from pipeline.stage.open import DATA_PATH
from pipeline.stage.published import published
from pipeline.stage.stage import Stage, stages_of


@dataclass(frozen=True)
class Swept:
    """What a sweep did: stages discarded with the reason of each, and stages kept because something forbade it."""

    discarded: dict[str, str]
    kept: dict[str, str]


def discard(lake: Lake, identifier: str) -> int:
    """Drop the stage ``identifier`` and delete its unpublished files; returns how many data files were deleted.

    Raises RefusedError when it is not a stage, ConflictError while it is being published.
    """
    stage = Stage.load(lake, identifier)
    claim(lake, stage, Claim.DISCARD)
    return drop(lake, stage)


def drop(lake: Lake, stage: Stage) -> int:
    """Remove what is left of a claimed stage: unreferenced data files, the catalog entry, then its metadata folder.

    In this order, so that after a crash the stage is still there to be discarded again.
    """
    target = lake.table(stage.plan.table)
    inputs = [segment.path for segment in stage.plan.inputs]
    was_published = published(target, stage.plan.id) is not None
    # A live input proves that the plan was not published. Without that proof quarantined records are never taken back.
    if not was_published and LiveInputs.find(target, inputs).files:
        quarantine.retract(lake, stage.plan)
    removed = _delete_unreferenced(lake, target, stage, keep_result=was_published)

    def forget() -> None:
        try:
            lake.catalog.drop_table(stage.identifier)
        except NoSuchTableError:
            return

    lake.when_free(forget)
    _delete_folder(stage.table.location())
    return removed


def sweep(lake: Lake, identifier: str, plan_ids: Iterable[str] = ()) -> Swept:
    """Discard the stages of table ``identifier`` that nobody will publish any more.

    These are the ones of ``plan_ids`` (the caller's own), those that can't be published because an input is gone, and
    those older than ``firn.stage.max.age.ms``. Age is by the machine's clock: it is what stamped the stage.
    """
    own = frozenset(plan_ids)
    discarded: dict[str, str] = {}
    kept: dict[str, str] = {}
    for name in stages_of(lake, identifier):
        try:
            stage = Stage.load(lake, name)
            reason = "its run is over" if stage.plan.id in own else _unpublishable(lake, stage)
            if reason:
                discard(lake, name)
                discarded[name] = reason
        except FirnError as error:
            kept[name] = str(error)
    return Swept(discarded, kept)


def _unpublishable(lake: Lake, stage: Stage) -> str | None:
    target = lake.table(stage.plan.table)
    age = clock.now_ms() - stage.table.metadata.last_updated_ms
    limit = Policies.parse(stage.plan.table, target.properties).default.stage_max_age_ms
    if age > limit:
        return f"it is {age} ms old, firn.stage.max.age.ms allows {limit}"
    live = LiveInputs.find(target, [segment.path for segment in stage.plan.inputs])
    return f"its input {live.gone[0]} is no longer live" if live.gone else None


def _delete_unreferenced(lake: Lake, target: Table, stage: Stage, *, keep_result: bool) -> int:
    """Delete what lies in the stage's data folder and no snapshot holds: also what a killed writer left there.

    ``keep_result`` spares the stage's own result without looking: it was published, so a snapshot holds it.
    """
    files, folder = FileSystem.from_uri(stage.table.properties[DATA_PATH])
    found = {
        info.path
        for info in files.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True))
        if info.is_file
    }
    suspects = found - {_path(file.file_path) for file in stage.files()} if keep_result else set(found)
    if not suspects:
        return 0
    quarantined = quarantine.find(lake, stage.plan.table)
    unreferenced = suspects - _referenced(target) - (_referenced(quarantined) if quarantined else set())
    for path in sorted(unreferenced):
        files.delete_file(path)
    if found == unreferenced:
        files.delete_dir(folder)
    return len(unreferenced)


def _referenced(table: Table) -> set[str]:
    """Paths, as the file system spells them, of every data file that any snapshot of ``table`` holds."""
    manifests: dict[str, ManifestFile] = {
        manifest.manifest_path: manifest
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
    }
    held = (entry.data_file.file_path for entry in entries(table.io, list(manifests.values())))
    return {_path(path) for path in held}


def _path(uri: str) -> str:
    """The path as the file system spells it."""
    return str(FileSystem.from_uri(_uri(uri))[1])


def _uri(path: str) -> str:
    """Java writes ``file:/a``, PyIceberg ``file:///a``; both mean the same file."""
    return f"file:///{path.removeprefix('file:').lstrip('/')}" if path.startswith("file:") else path


def _delete_folder(location: str) -> None:
    files, folder = FileSystem.from_uri(_uri(location))
    if not folder.strip("/"):
        raise RefusedError(
            f"stage location {location!r} is not a folder of its own; allowed: a folder below the target's"
        )
    if files.get_file_info(folder).type == FileType.Directory:
        files.delete_dir(folder)
