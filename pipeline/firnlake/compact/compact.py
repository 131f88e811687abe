"""Compact the plans of a lane. The changes go to the stage of their job, where no reader of the table sees them."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import DataFile

from firnlake.compact.convert import converted
from firnlake.compact.erase import erased
from firnlake.compact.inputs import Partitions, PlanInputs
from firnlake.compact.keep_or_drop import Outcome
from firnlake.compact.rewrite import Rewritten, Target
from firnlake.compact.tasks import Attempt, rewritten
from firnlake.engine.engine import Engine, WorkerLostError, threads_per_task
from firnlake.errors import ConflictError, FirnError, RefusedError, contained
from firnlake.iceberg.branches import QUARANTINED, REMOVED
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.files import job_folder
from firnlake.iceberg.manifests import check_positions
from firnlake.iceberg.parquet import DICTIONARY_OF, WriteOptions
from firnlake.job.change import Change
from firnlake.job.failures import forget
from firnlake.job.garbage import delete_attempt, discard
from firnlake.job.inputs import CheckedInputs
from firnlake.job.job import Job, jobs_of
from firnlake.job.outcomes import ByPlan, by_plan, sorted_out
from firnlake.job.plan import STAGED, Plan
from firnlake.job.stage import Stage
from firnlake.lanes.answer import Traits
from firnlake.table.columns import ColumnRoles
from firnlake.table.history import Counts
from firnlake.table.policy import Policies
from firnlake_expectations.wording import count

_LOST: Final = (RefusedError, WorkerLostError)
"""Errors that another try of the same plan would meet again."""


@dataclass(frozen=True)
class Compacted:
    """Outcome of one plan: the name of its stage, and either the record counts or the error."""

    plan: Plan
    stage: str
    counts: Counts | None
    error: FirnError | None


def compact(lake: Lake, plans: Sequence[Plan], engine: Engine) -> list[Compacted]:
    """Compact every plan into the stage of its job, on ``engine``; returns outcomes in the order of ``plans``.

    What an earlier attempt has compacted is reused (C25). Errors are collected, not raised. A refused plan is marked as
    failed, and waits (C20). A published plan counts as compacted: publication removed its inputs.
    """
    by_id = {one.plan.id: one for job in jobs_of(plans) for one in _of_job(lake, job, engine)}
    return [by_id[plan.id] for plan in plans]


def _of_job(lake: Lake, job: Job, engine: Engine) -> list[Compacted]:
    done, failed = by_plan(lake, job.plans, lambda: _changes(lake, job, engine))
    published, errors = sorted_out(lake, "compact", job.plans, failed, _LOST, reported=True)
    counts = {plan_id: one.counts for plan_id, one in done.items()}
    counts |= {plan_id: own.counts for plan_id, (_, own) in published.items()}
    return [Compacted(plan, job.stage, counts.get(plan.id), errors.get(plan.id)) for plan in job]


def _changes(lake: Lake, job: Job, engine: Engine) -> ByPlan[Change]:
    """The changes of the job's plans, which are now in its stage, and the errors of the others."""
    for plan in job:
        plan.of_lane(*STAGED)
        plan.check_clock()
    table = lake.table(job.table)
    # A user who runs a failed plan again wants another try.
    forget(table, job)
    former = Stage.find(lake, table, job.id)
    # A later change of the table may be in conflict with what an earlier attempt has compacted; publishing checks that.
    done = dict(former.changes) if former and former.attempt and former.attempt.fits(table) else {}
    left = [plan for plan in job if plan.id not in done]
    checked = CheckedInputs.find(table, left)
    if not checked.files:
        return done, dict(checked.conflicts)
    stage = Stage.open(job, table)
    made, failed = _compacted(lake, stage, [plan for plan in left if plan.id in checked.files], checked, engine, done)
    return done | made, failed | dict(checked.conflicts)


def _compaction(traits: Traits) -> Callable[[Attempt], ByPlan[Rewritten]]:
    """How lanes with these ``traits`` compact their plans."""
    if traits.writes == "deletes":
        return converted
    return erased if traits.serves_requests else rewritten


def _compacted(
    lake: Lake,
    stage: Stage,
    plans: Sequence[Plan],
    checked: CheckedInputs,
    engine: Engine,
    done: Mapping[str, Change],
) -> ByPlan[Change]:
    """Compact ``plans``, and record their changes with those that are ``done``.

    Raises ConflictError when another process has discarded the stage meanwhile.
    """
    table = stage.loaded
    if plans[0].lane.traits.writes == "deletes":
        check_positions(table)
    target = _target(stage)
    with ExitStack() as undo:
        # No document names these files yet, so no other process knows of them.
        undo.callback(delete_attempt, table, target.folder)
        title = f"{stage.target}, {Job(tuple(plans)).title}, {count(sum(plan.records for plan in plans), 'record')}"
        attempt = Attempt(table, _inputs(stage, plans, checked, engine), target, engine, title)
        results, failed = _compaction(plans[0].lane.traits)(attempt)
        changes: dict[str, Change] = {}
        for plan in plans:
            if plan.id in results:
                try:
                    changes[plan.id] = _change(plan, results[plan.id])
                except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one plan
                    failed[plan.id] = contained(error, plan.subject)
        # This process may have been paused while another one discarded the stage with this attempt's files.
        stage.check_undisturbed()
        if changes:
            stage.record_changes([*done.values(), *changes.values()])
            undo.pop_all()
    try:
        stage.check_undisturbed()
    except ConflictError:
        discard(lake, stage.identifier)
        raise
    return changes, failed


def _inputs(stage: Stage, plans: Sequence[Plan], checked: CheckedInputs, engine: Engine) -> list[PlanInputs]:
    table = stage.loaded
    threads = threads_per_task(engine.parallelism, len(plans))
    columns = ColumnRoles.of(table, stage.target)
    samples = Policies.parse(stage.target, table.properties).default.report_samples
    return [
        PlanInputs.of(
            plan,
            DataFiles.of(table, f"table {plan.table}, {plan.topic_partition}"),
            columns,
            {file.file_path: file for file in checked.files[plan.id]},
            checked.deletes,
            samples,
            threads,
        )
        for plan in plans
    ]


def _target(stage: Stage) -> Target:
    table = stage.loaded
    columns = ColumnRoles.of(table, stage.target)
    own = _without_dictionaries(stage, columns)
    if not columns.levels_apart:
        # Only the bounds tell the level of a file.
        own[f"write.metadata.metrics.column.{columns.level}"] = "full"
    options = WriteOptions(table.schema(), {**table.properties, **own}, stage.target)
    folder = f"{job_folder(table, stage.job_id)}/{uuid.uuid4().hex[:16]}"
    return Target(folder, options, Partitions(table.schema(), table.spec(), columns))


def _without_dictionaries(stage: Stage, columns: ColumnRoles) -> dict[str, str]:
    """Properties that turn off Parquet dictionaries of columns whose values never repeat: building them is wasted work.

    The table's own settings for the column take precedence.
    """
    copies = any(plan.lane.traits.copies for plan in stage.plans)
    # A cleaning leaves every key once. A part of a key, or a key in a copy, may repeat.
    unique = [columns.offset] if copies or len(columns.key) > 1 else [columns.offset, *columns.key]
    names = [f"{DICTIONARY_OF}{name}" for name in unique]
    return {name: "false" for name in names if name not in stage.loaded.properties}


def _change(plan: Plan, own: Rewritten) -> Change:
    """The change that ``own`` makes."""
    change = Change(
        plan=plan,
        counts=Counts.none(),
        fingerprint=str(own.fingerprint),
        in_place=own.in_place,
        merged=own.merged,
        kept=tuple(file for level, file in own.files if level not in (QUARANTINED, REMOVED)),
        quarantined=tuple(file for level, file in own.files if level == QUARANTINED),
        removed_tombstones=tuple(file for level, file in own.files if level == REMOVED),
        deletes=own.deletes,
    )
    return change.model_copy(update={"counts": _counts(change, own)})


def _counts(change: Change, own: Rewritten) -> Counts:
    """The record counts of ``change``. Lane `convert` reads segments that all stay, and writes delete files."""
    plan, counts, whole = change.plan, own.counts, change.plan.lane.traits.copies
    converts = plan.lane.traits.writes == "deletes"
    taken = [segment for segment in plan.inputs if segment.path not in own.in_place]
    in_place = [segment for segment in plan.inputs if segment.path in own.in_place]
    # Of a file that is listed more than once, the listings beyond the first are read only by a lane that copies.
    listed_again = 0 if whole else sum(one.records - one.records // one.copies for one in taken)
    repeated = counts[Outcome.REPEATED] + listed_again
    restored, deleted = counts[Outcome.RESTORED], counts[Outcome.DELETED]
    records_in = sum(segment.records for segment in (in_place if converts else taken)) - deleted + restored
    return Counts(
        records_in=records_in,
        records_out=records_in if converts else _records(change.kept),
        superseded=counts[Outcome.SUPERSEDED] + repeated,
        repeated=repeated,
        tombstones_removed=0 if whole else _records(change.removed_tombstones),
        quarantined=_records(change.quarantined),
        restored=restored,
        aborted=counts[Outcome.ABORTED],
        markers_removed=counts[Outcome.MARKER_REMOVED],
        erased=counts[Outcome.ERASED],
        deleted=deleted,
        bytes_in=sum(segment.bytes for segment in taken),
        bytes_out=sum(file.file_size_in_bytes for file in (*change.kept, *change.deletes)),
        segments_in=len(taken),
        segments_out=len(change.kept),
        segments_in_place=len(in_place),
        records_in_place=0 if converts else sum(segment.records for segment in in_place),
        bytes_in_place=sum(segment.bytes for segment in in_place),
    )


def _records(files: Sequence[DataFile]) -> int:
    return sum(file.record_count for file in files)
