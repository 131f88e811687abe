"""Publish a stage by compare-and-swap on the target's current snapshot.

Each attempt loads the target, checks everything again on exactly that snapshot, and commits only on top of it. A lost
race means: load, check and try again (PyIceberg's own retry would commit on a snapshot that nobody checked).
"""

from dataclasses import dataclass

from pyiceberg.table import Table

from pipeline.errors import ConflictError, RefusedError
from pipeline.lake import Lake
from pipeline.lake.mapping import COLUMNS
from pipeline.plan.plan import STAGE_INFIX
from pipeline.publish.late import check_nothing_older, check_same_markers
from pipeline.publish.race import race, summary
from pipeline.quarantine import quarantine
from pipeline.segments.manifests import Manifests
from pipeline.stage import Accounting, Stage
from pipeline.stage.claim import Claim, claimed
from pipeline.stage.discard import drop, take_back
from pipeline.stage.open import check_inputs
from pipeline.stage.published import published
from pipeline.stage.stage import SortedFiles
from pipeline.stage.swap import Swap
from pipeline.tombstones import tombstones


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
    files: SortedFiles


def publish(lake: Lake, identifier: str) -> Publication:
    """Publish the stage ``identifier`` and drop it; a plan that is published already is left as it is (C25).

    Raises RefusedError without a passing verdict on exactly this result, or when files of the stage are gone;
    ConflictError when the target changed under the plan (an input gone, a row-level delete, an older record landed
    below a tombstone that the plan removes); OutcomeUnknownError when the catalog did not say what became of
    the commit.
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
    try:
        return _publish(lake, identifier)
    except RefusedError:
        # Another process may have published the stage and dropped it in the meantime.
        before = published(lake.table(table), plan_id)
        if before is None:
            raise
        return Publication(table, plan_id, before, attempts=0, repeated=True, accounting=None)


def _publish(lake: Lake, identifier: str) -> Publication:
    Stage.load(lake, identifier)
    with claimed(lake, identifier, Claim.PUBLISH) as stage:
        # What is looked at under the claim stays as it is: no discard takes a file away any more.
        validated = _validated(stage)
        plan = stage.plan
        target = lake.table(plan.table)
        books = summary(plan, validated.accounting)
        swap = Swap(target, stage.replaced(), validated.files.kept, books)

        def check(current: Table, manifests: Manifests) -> None:
            check_inputs(current, plan, manifests)
            _check_same_shape(current, stage)
            check_nothing_older(current, plan, validated.accounting, manifests)
            check_same_markers(current, plan, manifests)
            quarantine.append(lake, current, plan, validated.files.quarantined)
            tombstones.append(lake, current, plan, validated.files.buried)

        try:
            snapshot_id, attempts = race(lake, plan, swap, check)
        except ConflictError:
            # The history was read and does not have the plan. No other error proves that no try was applied.
            swap.abandon(target)
            take_back(lake, lake.table(plan.table), plan)
            raise
        if snapshot_id == swap.snapshot_id:
            swap.tidy(target)
        else:
            # Another process published the same stage first.
            swap.abandon(target)
        drop(lake, stage)
    repeated = snapshot_id != swap.snapshot_id
    return Publication(plan.table, plan.id, snapshot_id, attempts, repeated, validated.accounting)


def _validated(stage: Stage) -> _Validated:
    stage.check()
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
    try:
        files = stage.sorted_files()
    except FileNotFoundError as error:
        raise RefusedError(
            f"stage {stage.identifier}: its list of files is gone ({error}); allowed: discard it and plan again"
        ) from error
    paths = [file.file_path for file in (*files.kept, *files.quarantined, *files.buried)]
    gone = [path for path in paths if not stage.table.io.new_input(path).exists()]
    if gone:
        raise RefusedError(
            f"stage {stage.identifier}: {len(gone)} of {len(paths)} files are gone, first {gone[0]}; allowed: all "
            "there (discard the stage and plan again)"
        )
    return _Validated(stage, stage.accounting.check(f"stage {stage.identifier}"), files)


def _check_same_shape(target: Table, stage: Stage) -> None:
    """The stage's files are what the table would have written now: by the same mapping, under the same partitioning."""
    same = stage.table.properties.get(COLUMNS) == target.properties.get(COLUMNS)
    if not same or stage.table.spec() != target.spec():
        raise ConflictError(
            f"plan {stage.plan.id} ({stage.plan.title}): {'the partitioning' if same else 'the mapping'} of table "
            f"{stage.plan.table} was changed since; plan again"
        )
