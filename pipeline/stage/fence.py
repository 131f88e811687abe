"""What keeps a publisher that was taken for dead from committing yet: it may stand still, or its request may be late.

A claim is believed for a time, and whoever discards a stage after that deletes its files. A commit of them that comes
later would leave a table whose files are gone. Commits ask for the snapshot that they were made on
(``assert-ref-snapshot-id`` of the Iceberg REST catalog specification), so one more snapshot refuses them all.
"""

from pipeline.errors import ConflictError, GoneError
from pipeline.lake import Lake
from pipeline.stage.claim import Claim
from pipeline.stage.stage import Stage

FENCE = "firn.fence"
"""Key of a snapshot's summary: the job that can't be published any more."""


def fence(lake: Lake, stage: Stage) -> None:
    """Move the branch of ``stage``'s target, if a publisher has ever claimed the stage: no commit of it is applied now.

    The claim to discard it has to be there already: a publisher that tries again finds that.
    """
    if not any(name.startswith(Claim.PUBLISH.value) for name in stage.table.properties):
        return

    def commit() -> None:
        target = lake.single_attempt(lake.table(stage.target))
        with target.transaction() as transaction:
            # No files: readers see what they saw.
            transaction.update_snapshot({FENCE: stage.job_id}).fast_append().commit()

    lake.until_committed(commit)


def check_undisturbed(lake: Lake, stage: Stage) -> None:
    """Raise ConflictError when somebody has begun to discard ``stage`` since it was loaded, or has done so."""
    try:
        found = lake.table(stage.identifier).properties
    except GoneError:
        found = None
    if found is None or any(name.startswith(Claim.DISCARD.value) for name in found.keys() - stage.table.properties):
        raise ConflictError(
            f"stage {stage.identifier}: it was discarded while it was being published, as if by a process that had "
            "died; plan again"
        )
