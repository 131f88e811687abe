"""Discard stages: what was never published is removed with its files, what was published leaves only its frame.

A data file is deleted only when no snapshot of the target holds it, current or past (C25): a file that a reader or
time travel can reach stays, whatever the stage says.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyarrow.fs import FileSelector, FileSystem
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from pipeline import clock
from pipeline.errors import FirnError, RefusedError
from pipeline.lake import Lake
from pipeline.plan import Plan
from pipeline.plan.plan import STAGE_INFIX
from pipeline.policy import Policies
from pipeline.quarantine import quarantine
from pipeline.segments.live import LiveInputs
from pipeline.segments.manifests import Manifests
from pipeline.stage.claim import LEASE_MS, Claim, claimed
from pipeline.stage.open import DATA_PATH, stages_folder
from pipeline.stage.published import published
from pipeline.stage.stage import Stage, stages_of
from pipeline.tombstones import tombstones

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile


@dataclass(frozen=True)
class Swept:
    """What a sweep did: stages discarded with the reason of each, and stages kept because something forbade it."""

    discarded: dict[str, str]
    kept: dict[str, str]


def discard(lake: Lake, identifier: str) -> int:
    """Drop the stage ``identifier`` and delete its unpublished files; returns how many data files were deleted.

    Raises RefusedError when it is not a stage, ConflictError while it is being published.
    """
    Stage.load(lake, identifier)
    with claimed(lake, identifier, Claim.DISCARD) as stage:
        return drop(lake, stage)


def drop(lake: Lake, stage: Stage) -> int:
    """Remove what is left of a claimed stage: unreferenced data files, the catalog entry, then its metadata folder.

    In this order, so that after a crash the stage is still there to be discarded again.
    """
    target = lake.table(stage.plan.table)
    was_published = published(target, stage.plan.id) is not None
    if not was_published:
        take_back(lake, target, stage.plan)
    removed = _delete_unreferenced(lake, target, stage, keep_result=was_published)

    def forget() -> None:
        try:
            lake.catalog.drop_table(stage.identifier)
        except NoSuchTableError:
            return

    lake.when_free(forget)
    _delete_folder(stage.table, stage.table.location())
    return removed


def take_back(lake: Lake, target: Table, plan: Plan) -> None:
    """Retract what a plan that will not be published has moved to the tables beside its own.

    A live input proves that it was not published. The history does not: snapshots expire. Without that proof
    nothing is ever taken back, because nothing else may hold it.
    """
    if LiveInputs.find(target, [segment.path for segment in plan.inputs]).files:
        quarantine.retract(lake, plan)
        tombstones.retract(lake, plan)


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
    target = lake.table(identifier)
    for folder in _forgotten(lake, target, identifier):
        _delete_folder(target, folder)
        discarded[folder] = "no stage is registered for this folder"
    return Swept(discarded, kept)


def _unpublishable(lake: Lake, stage: Stage) -> str | None:
    target = lake.table(stage.plan.table)
    age = clock.now_ms() - stage.table.metadata.last_updated_ms
    limit = Policies.parse(stage.plan.table, target.properties).default.stage_max_age_ms
    if age > limit:
        return f"it is {age} ms old, firn.stage.max.age.ms allows {limit}"
    live = LiveInputs.find(target, [segment.path for segment in stage.plan.inputs])
    return f"its input {live.gone[0]} is no longer live" if live.gone else None


def _forgotten(lake: Lake, target: Table, identifier: str) -> list[str]:
    """Metadata folders without a stage: a process died just before it registered one, or just after it dropped one.

    A folder younger than a claim's lease may belong to a stage that is being registered right now, and is left alone.
    """
    root = stages_folder(target)
    files, folder = _store(target, root)
    newest: dict[str, int] = {}
    for info in files.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True)):
        if info.is_file:
            plan_id = info.path.removeprefix(folder).lstrip("/").partition("/")[0]
            newest[plan_id] = max(newest.get(plan_id, 0), (info.mtime_ns or 0) // 1_000_000)
    registered = {name.rpartition(STAGE_INFIX)[2] for name in stages_of(lake, identifier)}
    limit = clock.now_ms() - LEASE_MS
    return [f"{root}/{plan_id}" for plan_id, ms in newest.items() if plan_id not in registered and ms < limit]


def _delete_unreferenced(lake: Lake, target: Table, stage: Stage, *, keep_result: bool) -> int:
    """Delete what lies in the stage's data folder and no snapshot holds: also what a killed writer left there.

    ``keep_result`` spares the stage's own result without looking: it was published, so a snapshot holds it.
    """
    held: set[str] = set()
    if keep_result:
        # Another process may be dropping the same stage, manifests and all; then the target is asked instead.
        with suppress(FileNotFoundError):
            held = {_name(file.file_path) for file in stage.files()}
    files, folder = _store(stage.table, stage.table.properties[DATA_PATH])
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


def _delete_folder(table: Table, location: str) -> None:
    """Delete the folder ``location`` of a stage of ``table``, in which nothing but metadata is left."""
    files, folder = _store(table, location)
    if not folder.strip("/"):
        raise RefusedError(
            f"stage location {location!r} is not a folder of its own; allowed: a folder below the target's"
        )
    # Another process may be clearing the same folder, or write to it: what is left then is swept as forgotten.
    with suppress(OSError):
        files.delete_dir(folder)


def _store(table: Table, location: str) -> tuple[FileSystem, str]:
    """The file system that holds ``location``, under the table's own credentials, and the path there.

    Locations are literal, to PyIceberg and to Spark: a percent sign in one is part of a name and no escape.
    """
    scheme, netloc, path = PyArrowFileIO.parse_location(location, table.io.properties)
    return PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, netloc), path
