"""Discard stages: what was never published is removed with its files, what was published leaves only its frame.

A data file is deleted only when no snapshot of the target holds it, current or past (C25): a file that a reader or
time travel can reach stays, whatever the stage says.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from pipeline.errors import FirnError, MetadataLostError, RefusedError
from pipeline.history.ancestors import ancestors
from pipeline.history.published_plans import plans_of, published
from pipeline.lake import Lake
from pipeline.lake.folders import DATA_FOLDER, DATA_PATH, delete_folder, files_in, job_folder, store
from pipeline.plan import Plan
from pipeline.plan.failure import FAILURE_PROPERTY
from pipeline.plan.plan import STAGE_INFIX
from pipeline.quarantine import quarantine
from pipeline.quarantine.repeated import retract_repeated
from pipeline.segments.held import Unheld, name_of
from pipeline.segments.live import LiveInputs
from pipeline.stage.claim import Claim, claimed
from pipeline.stage.fence import fence, fence_all
from pipeline.stage.holders import look_at_table, look_beside, tables_beside
from pipeline.stage.stage import Stage
from pipeline.tombstones import tombstones

_Folder = tuple[Table, str]
"""A table, and the location of a folder to which its credentials lead."""


def discard(lake: Lake, identifier: str) -> int:
    """Drop the stage ``identifier`` and delete its unpublished files; returns how many data files were deleted.

    Raises RefusedError when it is not a stage, ConflictError while it is being published.
    """
    Stage.load(lake, identifier)
    with claimed(lake, identifier, Claim.DISCARD) as stage:
        fence(lake, stage)
        return drop(lake, stage)


def discard_lost(lake: Lake, identifier: str) -> None:
    """Clear away the stage ``identifier``, which can't be read any more: its plans are gone, or all of its metadata.

    What its plans may have moved to the tables beside their own stays there, but for what lies there a second time:
    nothing says any more whether they were published. Raises ConflictError while it is being published, by a process
    that has read it before.
    """
    try:
        with claimed(lake, identifier, Claim.DISCARD, load=Stage.without_plans) as stage:
            check_places(stage)
            fence(lake, stage)
            retract_repeated(lake, stage.target, stage.job_id)
            _remove(lake, stage, committed=())
    except MetadataLostError:
        _delete_data(lake, *identifier.split(STAGE_INFIX, 1))
        forget(lake, identifier)


def _delete_data(lake: Lake, target: str, job_id: str) -> None:
    """Delete what no snapshot holds of a job whose stage can't be read."""
    table = lake.table(target)
    folders = _folders(lake, target, job_id, (table, job_folder(table, job_id)))
    if any(files_in(*store(*folder)) for folder in folders):
        # Nobody can tell who had claimed it. Who tries to publish it finds no stage, or a branch that has moved.
        fence_all(lake, target, job_id)
        retract_repeated(lake, target, job_id)
        for folder in folders:
            _delete_unheld(lake, target, folder, spared=())


def shelve(lake: Lake, identifier: str) -> None:
    """Leave nothing of the failed stage ``identifier`` but its catalog entry with plan and failure: a marker (C20).

    Its data files go, because nothing refers to them that other tools know of: orphan removal would find them. Raises
    ConflictError while it is being published.
    """
    with claimed(lake, identifier, Claim.DISCARD, outlived=True) as stage:
        check_places(stage)
        fence(lake, stage)
        target = lake.table(stage.target)
        _take_back(lake, target, stage, stage.plans)
        _delete_unreferenced(lake, stage, keep=())
        if stage.failure:
            shelved = stage.failure.model_copy(update={"shelved": True})
            lake.set_properties(identifier, {FAILURE_PROPERTY: shelved.model_dump_json()})


def drop(lake: Lake, stage: Stage, committed: Collection[str] = ()) -> int:
    """Remove what is left of a claimed stage: unreferenced data files, the catalog entry, then its metadata folder.

    In this order, so that after a crash the stage is still there to be discarded again. The results of plans whose ids
    are in ``committed`` are the table's. That a plan is published does not say so: it may have been by another process
    with a stage of its own, before this one was made.
    """
    target = lake.table(stage.target)
    check_places(stage)
    done = _published_plans(target, stage.job_id)
    _take_back(lake, target, stage, [plan for plan in stage.plans if plan.id not in done])
    return _remove(lake, stage, committed)


def _remove(lake: Lake, stage: Stage, committed: Collection[str]) -> int:
    removed = _delete_unreferenced(lake, stage, keep=committed)
    forget(lake, stage.identifier)
    delete_folder(stage.table, stage.table.location())
    return removed


def clear_attempt(lake: Lake, stage: Stage, folder: str) -> None:
    """Delete what a process wrote into its own ``folder`` for a stage that went meanwhile, unless a snapshot holds it.

    While the stage is there, whoever drops it clears all of the job's folder. What can't be looked at or deleted now is
    left to the collector.
    """
    with suppress(FirnError), lake.answering():
        if not lake.when_free(lambda: lake.catalog.table_exists(stage.identifier)):
            _delete_unheld(lake, stage.target, (lake.table(stage.target), folder), spared=())


def check_places(stage: Stage) -> None:
    """Refuse a stage whose folders are not its own: discarding it would delete what others may be writing there."""
    own = f"/{DATA_FOLDER}/{stage.job_id}"
    data, home = stage.table.properties.get(DATA_PATH, ""), stage.table.location()
    for what, found, ending in (
        (f"property {DATA_PATH}", data, own),
        ("location", home, f"/stages/{stage.job_id}"),
    ):
        if not found.endswith(ending) or ".." in found.split("/"):
            raise RefusedError(
                f"stage {stage.identifier}: its {what} is {found!r}; allowed: a folder of its own, that ends with "
                f"{ending}"
            )


def forget(lake: Lake, identifier: str) -> None:
    """Take the stage ``identifier`` out of the catalog, and leave every file where it is."""

    def drop_entry() -> None:
        try:
            lake.catalog.drop_table(identifier)
        except NoSuchTableError:
            return

    lake.when_free(drop_entry)


def take_back(
    lake: Lake, target: Table, job_id: str, plans: Sequence[Plan], replaced: Mapping[str, Sequence[str]]
) -> None:
    """Retract what ``plans`` of a job, which will not be published, have moved to the tables beside their own.

    That an input which was to be ``replaced`` (paths by plan id) is live proves that a plan was not published. Where
    another job has replaced them since, a history without this one does, if it is whole from the snapshot on that was
    planned for. Snapshots expire: without proof only that is taken back which lies there a second time, because nothing
    else may hold it.
    """
    live = {file.file_path for file in LiveInputs.find(target, [one for own in replaced.values() for one in own]).files}
    known = {snapshot.snapshot_id for snapshot in ancestors(target)}
    never = published(target, job_id) is None
    unpublished = [
        plan for plan in plans if not live.isdisjoint(replaced[plan.id]) or (never and plan.snapshot_id in known)
    ]
    quarantine.retract(lake, job_id, unpublished)
    tombstones.retract(lake, job_id, unpublished)
    unknown = [plan for plan in plans if plan not in unpublished]
    if unknown:
        retract_repeated(lake, unknown[0].table, job_id, [plan.id for plan in unknown])


def _take_back(lake: Lake, target: Table, stage: Stage, plans: Sequence[Plan]) -> None:
    # Without a result nothing was ever moved. Without manifests another process is dropping the same stage, and has
    # taken back what was to be.
    if plans and stage.result is not None:
        with suppress(FileNotFoundError):
            take_back(lake, target, stage.job_id, plans, stage.replaced())


def _published_plans(target: Table, job_id: str) -> frozenset[str]:
    """Ids of the plans of a job that were published, as far as the history knows."""
    snapshot = target.snapshot_by_id(published(target, job_id) or 0)
    if snapshot is None:
        return frozenset()
    # Without their document the plans count as unpublished here: what is live or referenced is looked for anyway.
    with suppress(RefusedError):
        return frozenset(plan.id for plan in plans_of(target, snapshot))
    return frozenset()


def _delete_unreferenced(lake: Lake, stage: Stage, keep: Collection[str]) -> int:
    """Delete what lies in the job's data folders and no snapshot holds: also what a killed writer left there.

    The results of plans whose ids are in ``keep`` are spared without looking: a snapshot holds them.
    """
    folders = _folders(lake, stage.target, stage.job_id, (stage.table, stage.table.properties[DATA_PATH]))
    spared = _results(stage, keep)
    return sum(_delete_unheld(lake, stage.target, folder, spared) for folder in folders)


def _folders(lake: Lake, target: str, job_id: str, own: _Folder) -> list[_Folder]:
    """Where data of the job may lie: its ``own`` folder, and what was copied to the tables beside ``target``."""
    return [own, *((table, job_folder(table, job_id)) for table in tables_beside(lake, target))]


def _results(stage: Stage, plan_ids: Collection[str]) -> frozenset[str]:
    """Names of the files that those plans have in the topic table; fewer when that can't be told."""
    if plan_ids:
        # Another process may be dropping the same stage, manifests and all; then the target is asked instead.
        with suppress(FileNotFoundError, RefusedError):
            sorted_files = stage.sorted_files()
            return frozenset(name_of(file.file_path) for plan_id in plan_ids for file in sorted_files[plan_id].kept)
    return frozenset()


def _delete_unheld(lake: Lake, target: str, folder: _Folder, spared: Collection[str]) -> int:
    """Delete the files in ``folder`` that no snapshot holds, but for those whose names are ``spared``; how many."""
    files, path = store(*folder)
    found = {file.path for file in files_in(files, path)}
    suspects = {path for path in found if name_of(path) not in spared}
    if not suspects:
        return 0
    unheld = Unheld(suspects)
    look_beside(lake, target, unheld)
    look_at_table(lake, target, unheld)
    unreferenced = {path for path in suspects if path in unheld}
    for path in sorted(unreferenced):
        with suppress(FileNotFoundError):
            files.delete_file(path)
    if found == unreferenced:
        delete_folder(*folder)
    return len({name_of(path) for path in unreferenced})
