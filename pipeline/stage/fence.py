"""What keeps a publisher that was taken for dead from committing yet: it may stand still, or its request may be late.

A claim is believed for a time, and whoever discards a stage after that deletes its files. A commit of them that comes
later would leave a table whose files are gone. Commits ask for the snapshot that they were made on
(``assert-ref-snapshot-id`` of the Iceberg REST catalog specification), so one more snapshot refuses them all.
"""

from collections.abc import Callable
from functools import partial

from pyiceberg.table import Table

from pipeline.errors import ConflictError, GoneError
from pipeline.lake import Lake
from pipeline.stage.claim import Claim, claims
from pipeline.stage.holders import FINDERS
from pipeline.stage.stage import Stage

FENCE = "firn.fence"
"""Key of a snapshot's summary: the job that can't be published any more."""


def fence(lake: Lake, stage: Stage) -> None:
    """Move the branches of ``stage``'s target and of the tables beside it, if a publisher has a claim on the stage.

    No commit that it has sent is applied after that. The claim to discard the stage has to be there already: a
    publisher that tries again finds it.
    """
    if claims(stage.table.properties, Claim.PUBLISH):
        fence_all(lake, stage.target, stage.job_id)


def fence_all(lake: Lake, target: str, job_id: str) -> None:
    """Move the branches of ``target`` and of the tables beside it, whoever may be publishing the job."""
    _move(lake, partial(lake.table, target), job_id)
    _fence_beside(lake, target, job_id)


def fence_others(lake: Lake, identifier: str, own: int = 0) -> None:
    """Keep other publishers of the stage ``identifier``, which is published, from handing over what it left out.

    The table itself has moved on already. ``own`` is how many of the claims are the caller's.
    """
    try:
        stage = Stage.without_plans(lake, identifier)
    except GoneError:
        return
    if len(claims(stage.table.properties, Claim.PUBLISH)) > own:
        _fence_beside(lake, stage.target, stage.job_id)


def _fence_beside(lake: Lake, target: str, job_id: str) -> None:
    for find in FINDERS:
        _move(lake, partial(find, lake, target), job_id)


def _move(lake: Lake, load: Callable[[], Table | None], job_id: str) -> None:
    lake.until_committed(partial(_append_nothing, lake, load, job_id))


def _append_nothing(lake: Lake, load: Callable[[], Table | None], job_id: str) -> None:
    table = load()
    if table is not None:
        with lake.single_attempt(table).transaction() as transaction:
            # No files: readers see what they saw.
            transaction.update_snapshot({FENCE: job_id}).fast_append().commit()


def check_undisturbed(lake: Lake, stage: Stage) -> None:
    """Raise ConflictError when somebody has begun to discard ``stage`` since it was loaded, or has done so."""
    try:
        found = lake.table(stage.identifier).properties
    except GoneError:
        found = None
    if found is None or claims(found, Claim.DISCARD).keys() - stage.table.properties:
        raise ConflictError(
            f"stage {stage.identifier}: it was discarded while it was being published, as if by a process that had "
            "died; plan again"
        )
