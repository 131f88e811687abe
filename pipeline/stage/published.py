"""Whether a plan was published: the snapshot summary says so, as far back as the table's history reaches."""

from pyiceberg.table import Table

from pipeline.stage.accounting import SUMMARY_PREFIX

PLAN_ID = f"{SUMMARY_PREFIX}plan-id"


def published(target: Table, plan_id: str) -> int | None:
    """Id of the snapshot by which ``plan_id`` was published; None when ``target``'s history has none."""
    for snapshot in target.metadata.snapshots:
        if snapshot.summary and snapshot.summary.get(PLAN_ID) == plan_id:
            return snapshot.snapshot_id
    return None
