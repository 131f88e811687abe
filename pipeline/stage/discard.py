"""Discard stages: what was never published is removed with its files, what was published leaves only its frame.

A data file is deleted only when no snapshot of the target holds it, current or past (C25): a file that a reader or
time travel can reach stays, whatever the stage says.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from pyarrow.fs import FileSelector
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from pipeline.lake import Lake
from pipeline.plan import Plan
from pipeline.plan.failure import FAILURE_PROPERTY
from pipeline.quarantine import quarantine
from pipeline.segments.live import LiveInputs
from pipeline.segments.manifests import Manifests
from pipeline.stage.claim import Claim, claimed
from pipeline.stage.folders import delete_folder, store
from pipeline.stage.open import DATA_PATH
from pipeline.stage.published import published
from pipeline.stage.stage import Stage
from pipeline.tombstones import tombstones

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile


def discard(lake: Lake, identifier: str) -> int:
    """Drop the stage ``identifier`` and delete its unpublished files; returns how many data files were deleted.

    Raises RefusedError when it is not a stage, ConflictError while it is being published.
    """
    Stage.load(lake, identifier)
    with claimed(lake, identifier, Claim.DISCARD) as stage:
        return drop(lake, stage)


def shelve(lake: Lake, identifier: str) -> None:
    """Leave nothing of the failed stage ``identifier`` but its catalog entry with plan and failure: a marker (C20).

    Its data files go, because nothing refers to them that other tools know of: orphan removal would find them. Raises
    ConflictError while it is being published.
    """
    with claimed(lake, identifier, Claim.DISCARD, outlived=True) as stage:
        target = lake.table(stage.plan.table)
        take_back(lake, target, stage.plan)
        _delete_unreferenced(lake, target, stage, keep_result=False)
        if stage.failure:
            shelved = stage.failure.model_copy(update={"shelved": True})
            lake.set_properties(identifier, {FAILURE_PROPERTY: shelved.model_dump_json()})


def drop(lake: Lake, stage: Stage) -> int:
    """Remove what is left of a claimed stage: unreferenced data files, the catalog entry, then its metadata folder.

    In this order, so that after a crash the stage is still there to be discarded again.
    """
    target = lake.table(stage.plan.table)
    was_published = published(target, stage.plan.id) is not None
    if not was_published:
        take_back(lake, target, stage.plan)
    removed = _delete_unreferenced(lake, target, stage, keep_result=was_published)
    forget(lake, stage.identifier)
    delete_folder(stage.table, stage.table.location())
    return removed


def forget(lake: Lake, identifier: str) -> None:
    """Take the stage ``identifier`` out of the catalog, and leave every file where it is."""

    def drop_entry() -> None:
        try:
            lake.catalog.drop_table(identifier)
        except NoSuchTableError:
            return

    lake.when_free(drop_entry)


def take_back(lake: Lake, target: Table, plan: Plan) -> None:
    """Retract what a plan that will not be published has moved to the tables beside its own.

    A live input proves that it was not published. The history does not: snapshots expire. Without that proof
    nothing is ever taken back, because nothing else may hold it.
    """
    if LiveInputs.find(target, [segment.path for segment in plan.inputs]).files:
        quarantine.retract(lake, plan)
        tombstones.retract(lake, plan)


def _delete_unreferenced(lake: Lake, target: Table, stage: Stage, *, keep_result: bool) -> int:
    """Delete what lies in the stage's data folder and no snapshot holds: also what a killed writer left there.

    ``keep_result`` spares the stage's own result without looking: it was published, so a snapshot holds it.
    """
    held: set[str] = set()
    if keep_result:
        # Another process may be dropping the same stage, manifests and all; then the target is asked instead.
        with suppress(FileNotFoundError):
            held = {_name(file.file_path) for file in stage.files()}
    files, folder = store(stage.table, stage.table.properties[DATA_PATH])
    found = {
        info.path
        for info in files.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True))
        if info.is_file
    }
    suspects = {path for path in found if _name(path) not in held}
    if not suspects:
        return 0
    beside = (quarantine.find(lake, stage.plan.table), tombstones.find(lake, stage.plan.table))
    held = _referenced(target).union(*(_referenced(table) for table in beside if table))
    unreferenced = {path for path in suspects if _name(path) not in held}
    for path in sorted(unreferenced):
        with suppress(FileNotFoundError):
            files.delete_file(path)
    if found == unreferenced:
        with suppress(FileNotFoundError):
            files.delete_dir(folder)
    return len({_name(path) for path in unreferenced})


def _referenced(table: Table) -> set[str]:
    """Names of every data file that any snapshot of ``table`` holds."""
    manifests: dict[str, ManifestFile] = {
        manifest.manifest_path: manifest
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
    }
    return {_name(entry.data_file.file_path) for entry in Manifests(table.io).live(manifests.values())}


def _name(path: str) -> str:
    """The last part of a path. Writers put a UUID there, so it tells files apart, and unlike the rest of a path it is
    spelled the same by everyone: Java writes ``file:/a``, PyIceberg ``file:///a``, a file system ``/a``.
    A checksum that Hadoop's local file system keeps beside a file (``.<name>.crc``) stays and goes with it.
    """
    name = path.rpartition("/")[2]
    return name[1:-4] if name.startswith(".") and name.endswith(".crc") else name
