"""Compact the plans of a lane. The changes go to the stage of their job, where no reader of the table sees them."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from firnlake.compact.convert import converted
from firnlake.compact.erase import erased
from firnlake.compact.inputs import PlanInputs
from firnlake.compact.rewrite import Target
from firnlake.compact.tasks import Attempt, rewritten
from firnlake.engine.engine import Engine, WorkerLostError, threads_per_task
from firnlake.errors import ConflictError, RefusedError, contained
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import job_folder
from firnlake.iceberg.parquet import DICTIONARY_OF, WriteOptions
from firnlake.job.change import Change
from firnlake.job.garbage import delete_attempt, discard
from firnlake.job.inputs import CheckedInputs
from firnlake.job.outcomes import ByPlan, PlanOutcome, carried_out, forget
from firnlake.job.plan import Plan, stage_parts
from firnlake.job.stage import Stage, jobs_of, title_of
from firnlake.table.columns import ColumnRoles
from firnlake.table.history import Counts
from firnlake.table.policy import Policies
from firnlake_expectations.wording import count

_LOST: Final = (RefusedError, WorkerLostError)
"""Errors that another try of the same plan would meet again."""


def compact(lake: Lake, plans: Sequence[Plan], engine: Engine) -> list[PlanOutcome]:
    """Compact every plan into the stage of its job, on ``engine``; returns outcomes in the order of ``plans``.

    What an earlier attempt has compacted is reused (C25). Errors are collected, not raised. A refused plan is marked as
    failed, and waits (C20).
    """
    jobs = jobs_of(plans)

    def work(stage: str) -> list[PlanOutcome]:
        done, failed = _changes(lake, stage, jobs[stage], engine)
        counts = {plan_id: one.counts for plan_id, one in done.items()}
        return [
            PlanOutcome(stage, plan.id, plan.title, failed.get(plan.id), counts.get(plan.id)) for plan in jobs[stage]
        ]

    by_id = {one.plan_id: one for one in carried_out(lake, "compact", jobs, work, _LOST, _LOST)}
    return [by_id[plan.id] for plan in plans]


def _changes(lake: Lake, name: str, job: Sequence[Plan], engine: Engine) -> ByPlan[Change]:
    """The changes of the job's plans, which are now in the stage ``name``, and the errors of the others."""
    for plan in job:
        plan.check_clock()
    target, job_id = stage_parts(name)
    table = lake.table(target)
    # A user who runs a failed plan again wants another try.
    forget(table, job)
    former = Stage.listed(table, job_id)
    # A later change of the table may be in conflict with what an earlier attempt has compacted; publishing checks that.
    done = {plan_id: one for plan_id, one in former.changes.items() if one.fits(table)}
    left = [plan for plan in job if plan.id not in done]
    checked = CheckedInputs.find(table, left)
    if not checked.files:
        return done, dict(checked.conflicts)
    stage = Stage.open(job, table)
    made, failed = _compacted(lake, stage, [plan for plan in left if plan.id in checked.files], checked, engine, done)
    return done | made, failed | dict(checked.conflicts)


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
    folder = f"{job_folder(table, stage.job_id)}/{uuid.uuid4().hex[:16]}"
    with ExitStack() as undo:
        # No document names these files yet, so no other process knows of them.
        undo.callback(delete_attempt, table, folder)
        results, failed = _results(stage, plans, checked, engine, folder)
        changes: dict[str, Change] = {}
        for plan_id, change in results.items():
            try:
                changes[plan_id] = change.model_copy(update={"counts": _counts(change)})
            except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one plan
                failed[plan_id] = contained(error, change.plan.subject)
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


def _results(
    stage: Stage, plans: Sequence[Plan], checked: CheckedInputs, engine: Engine, folder: str
) -> ByPlan[Change]:
    """What ``plans`` of one lane do to their tables; counted are only the fates of records. Files go to ``folder``."""
    traits = plans[0].lane.traits
    if traits.writes == "nothing":
        return {plan.id: Change.joined(plan, ()) for plan in plans}, {}
    table, columns = stage.loaded, ColumnRoles.of(stage.loaded, stage.target)
    samples = Policies.parse(stage.target, table.properties).default.report_samples
    threads = threads_per_task(engine.parallelism, len(plans))
    inputs = [PlanInputs.of(plan, table, columns, checked, samples, threads) for plan in plans]
    title = f"{stage.target}, {title_of(plans)}, {count(sum(plan.records for plan in plans), 'record')}"
    attempt = Attempt(table, inputs, _target(stage, columns, folder), engine, title)
    if traits.writes == "deletes":
        return converted(attempt)
    return erased(attempt) if traits.serves_requests else rewritten(attempt)


def _target(stage: Stage, columns: ColumnRoles, folder: str) -> Target:
    table = stage.loaded
    # A cleaning leaves every key once. A part of a key, or a key in a copy, may repeat.
    repeats = stage.plans[0].lane.traits.copies or len(columns.key) > 1
    unique = [columns.offset, *(() if repeats else columns.key)]
    # A Parquet dictionary of values that never repeat is wasted work, unless the table asks for it.
    properties = {**{f"{DICTIONARY_OF}{name}": "false" for name in unique}, **table.properties}
    if not columns.levels_apart:
        # Only the bounds tell the level of a file.
        properties[f"write.metadata.metrics.column.{columns.level}"] = "full"
    return Target(folder, WriteOptions(table.schema(), properties, stage.target), table.spec())


def _counts(change: Change) -> Counts:
    """The record counts of ``change``, which has counted the fates of records. Lane `convert` reads segments that all
    stay, and writes delete files; lane `retain` reads none."""
    plan, fates, traits = change.plan, change.counts, change.plan.lane.traits
    converts = traits.writes == "deletes"
    taken = [segment for segment in plan.inputs if segment.path not in change.in_place]
    in_place = [segment for segment in plan.inputs if segment.path in change.in_place]
    # Of a file that is listed more than once, a cleaning reads only the first listing.
    listed_again = sum(one.records - one.records // one.copies for one in taken) if traits.cleans else 0
    records_in = sum(segment.records for segment in (in_place if converts else taken)) - fates.deleted + fates.restored
    figures = {
        "records_in": records_in,
        "records_out": records_in if converts else sum(file.record_count for file in change.kept),
        "superseded": fates.superseded + listed_again,
        "repeated": fates.repeated + listed_again,
        "expired": records_in if change.drops else 0,
        "bytes_in": sum(segment.bytes for segment in taken),
        "bytes_out": sum(file.file_size_in_bytes for file in (*change.kept, *change.deletes)),
        "segments_in": len(taken),
        "segments_out": len(change.kept),
        "segments_in_place": len(in_place),
        "records_in_place": 0 if converts else sum(segment.records for segment in in_place),
        "bytes_in_place": sum(segment.bytes for segment in in_place),
    }
    return Counts(**{**fates.model_dump(), **figures})
