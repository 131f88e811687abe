"""Publish a stage by compare-and-swap on the target's current snapshot.

Each attempt loads the target, checks everything again on exactly that snapshot, and commits only on top of it. A lost
race means: load, check and try again. PyIceberg's own retry is off, because it would commit on a snapshot that nobody
checked.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from pipeline.errors import ConflictError, OutcomeUnknownError, RefusedError
from pipeline.lake import Lake
from pipeline.plan import Plan
from pipeline.plan.plan import STAGE_INFIX
from pipeline.quarantine import quarantine
from pipeline.segments import read
from pipeline.stage import QUARANTINED, Accounting, Stage
from pipeline.stage.accounting import SUMMARY_PREFIX
from pipeline.stage.claim import Claim, claim
from pipeline.stage.discard import drop
from pipeline.stage.open import check_inputs
from pipeline.stage.published import PLAN_ID, published

RACE_SECONDS = 300
"""How long a publish goes on losing races against appenders before it gives up; the stage stays."""


@dataclass(frozen=True)
class Publication:
    """What a publish did. ``repeated`` is true when the plan had been published before: nothing was changed now."""

    table: str
    plan_id: str
    snapshot_id: int
    attempts: int
    repeated: bool
    accounting: Accounting | None


@dataclass(frozen=True)
class _Validated:
    """A stage that passed: the only thing ``_commit`` takes, and only ``_validated`` makes one (C23)."""

    stage: Stage
    accounting: Accounting
    files: list[DataFile]
    quarantined: list[DataFile]


def publish(lake: Lake, identifier: str) -> Publication:
    """Publish the stage ``identifier`` and drop it; a plan that is published already is left as it is (C25).

    Raises RefusedError without a passing verdict on exactly this result, or when files of the stage are gone;
    ConflictError when the target changed under the plan (an input gone, a row-level delete, an older record landed
    below a tombstone that the plan removes); OutcomeUnknownError when the catalog did not say what became of the commit.
    """
    table, _, plan_id = identifier.partition(STAGE_INFIX)
    if not plan_id:
        raise RefusedError(f"{identifier!r} is not a stage; allowed: <namespace>.<table>{STAGE_INFIX}<plan id>")
    before = published(lake.table(table), plan_id)
    registered = lake.when_free(lambda: lake.catalog.table_exists(identifier))
    if before is not None:
        if registered:
            drop(lake, Stage.load(lake, identifier))
        return Publication(table, plan_id, before, attempts=0, repeated=True, accounting=None)
    validated = _validated(Stage.load(lake, identifier))
    claim(lake, validated.stage, Claim.PUBLISH)
    try:
        snapshot_id, attempts = _race(lambda: _attempt(lake, validated))
    except ConflictError:
        quarantine.retract(lake, validated.stage.plan)
        raise
    drop(lake, validated.stage)
    return Publication(table, plan_id, snapshot_id, attempts, repeated=False, accounting=validated.accounting)


def _validated(stage: Stage) -> _Validated:
    verdict = stage.verdict
    if verdict is None or stage.accounting is None:
        raise RefusedError(
            f"stage {stage.identifier} is {stage.state}; allowed: a passing verdict on its result (firn validate)"
        )
    if verdict["passed"] is not True:
        failed = [item["name"] for item in verdict["expectations"] if not item["passed"]]
        raise RefusedError(
            f"stage {stage.identifier} failed validation ({', '.join(failed)}); allowed: a passing verdict"
        )
    files = stage.files()
    gone = [file.file_path for file in files if not stage.table.io.new_input(file.file_path).exists()]
    if gone:
        raise RefusedError(
            f"stage {stage.identifier}: {len(gone)} of {len(files)} files are gone, first {gone[0]}; allowed: all there "
            "(discard the stage and plan again)"
        )
    level = [field.name for field in stage.table.spec().fields].index("level")
    return _Validated(
        stage=stage,
        accounting=stage.accounting.check(f"stage {stage.identifier}"),
        files=[file for file in files if file.partition[level] != QUARANTINED],
        quarantined=[file for file in files if file.partition[level] == QUARANTINED],
    )


def _race(attempt: Callable[[], int]) -> tuple[int, int]:
    """Run ``attempt`` until it wins; its snapshot id and how many tries that took."""
    tries = Retrying(
        retry=retry_if_exception_type(CommitFailedException),
        wait=wait_random_exponential(multiplier=0.05, max=5),
        stop=stop_after_delay(RACE_SECONDS),
        retry_error_callback=_lost,
    )
    snapshot_id = tries(attempt)
    return snapshot_id, int(tries.statistics["attempt_number"])


def _lost(state: RetryCallState) -> int:
    raise ConflictError(
        f"lost {state.attempt_number} races against other commits within {RACE_SECONDS} s; try again later"
    )


def _attempt(lake: Lake, validated: _Validated) -> int:
    """Check and commit on the snapshot that is current now; returns the new snapshot's id."""
    plan = validated.stage.plan
    target = lake.table(plan.table)
    before = published(target, plan.id)
    if before is not None:
        return before
    inputs = check_inputs(target, plan)
    _check_nothing_older_landed(target, plan, validated.accounting)
    quarantine.append(lake, target, plan, validated.quarantined)
    try:
        _commit(lake, target, validated, inputs)
    except CommitFailedException:
        raise
    except Exception as error:
        # Anything else leaves it open whether the commit was applied: look before anybody retries or cleans up.
        known = published(lake.table(plan.table), plan.id)
        if known is None:
            raise OutcomeUnknownError(
                f"table {plan.table}: the commit of plan {plan.id} ended without an answer ({error}); everything is kept, "
                "publish again"
            ) from error
    snapshot_id = published(lake.table(plan.table), plan.id)
    if snapshot_id is None:
        raise OutcomeUnknownError(
            f"table {plan.table}: the commit of plan {plan.id} is not in its history; publish again"
        )
    return snapshot_id


def _commit(lake: Lake, target: Table, validated: _Validated, inputs: list[DataFile]) -> None:
    plan = validated.stage.plan
    # The property is set on this copy only: a table update carries changes, not the properties it was made under.
    metadata = target.metadata.model_copy(
        update={"properties": target.metadata.properties | {"commit.retry.num-retries": "0"}}
    )
    pinned = Table(target.name(), metadata, target.metadata_location, target.io, lake.catalog)
    summary = validated.accounting.summary() | {
        PLAN_ID: plan.id,
        f"{SUMMARY_PREFIX}lane": plan.lane.value,
        f"{SUMMARY_PREFIX}topic-partition": str(plan.topic_partition),
        f"{SUMMARY_PREFIX}reason": plan.reason,
    }
    with pinned.transaction() as transaction:
        with transaction.update_snapshot(snapshot_properties=summary).overwrite() as swap:
            for file in inputs:
                swap.delete_data_file(file)
            for file in validated.files:
                swap.append_data_file(file)


def _check_nothing_older_landed(target: Table, plan: Plan, accounting: Accounting) -> None:
    """C9: a tombstone goes only while nothing outside the inputs can hold an older record than it."""
    if not accounting.tombstones_removed:
        return
    taken = {segment.path for segment in plan.inputs}
    end = max(segment.last_offset for segment in plan.inputs)
    bound = end if plan.clean_below is None else min(end, plan.clean_below)
    for segment in read(target, plan.table).by_partition.get(plan.topic_partition, ()):
        if segment.path not in taken and segment.records and segment.base_offset < bound:
            raise ConflictError(
                f"plan {plan.id} ({plan.title}) removes {accounting.tombstones_removed} tombstones below offset {bound}, but "
                f"segment {segment} landed since with older offsets; plan again"
            )
