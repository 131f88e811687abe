"""Compact the plans of a lane: each one's result lies in the stage of its job, where no reader of the table sees it.

Write–audit–publish begins here: what is written now is judged by `validate` and made visible by `publish`. The target
table is never written; a plan that fails does not stop the others (C20).
"""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from pyiceberg.exceptions import CommitFailedException

from pipeline.compact.books import books_of
from pipeline.compact.inputs import PlanInputs
from pipeline.compact.partitions import Partitions
from pipeline.compact.results import results
from pipeline.compact.rewrite import Target
from pipeline.compact.tasks import Result
from pipeline.engine import Engine, WorkerLostError
from pipeline.errors import ConflictError, FirnError, GoneError, RefusedError
from pipeline.history.published_plans import PublishedPlan, published_plans
from pipeline.history.record_counts import RecordCounts
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.data_files import DataFiles
from pipeline.lake.folders import job_folder
from pipeline.lake.parquet_writer import WriteOptions
from pipeline.plan import Job, Plan, jobs_of
from pipeline.policy import samples_of
from pipeline.segments.manifests import Manifests
from pipeline.stage import Stage, mark, open_stage, split
from pipeline.stage.discard import clear_attempt
from pipeline.stage.leave import leave
from pipeline.stage.swap import Swap

_PLAN_FAILED = (RefusedError, WorkerLostError)
"""What another try of the same plan would meet again."""


@dataclass(frozen=True)
class Compacted:
    """What became of one plan: its stage's name, and the record counts or the error."""

    plan: Plan
    stage: str
    counts: RecordCounts | None
    error: FirnError | None


def compact(lake: Lake, plans: Sequence[Plan], engine: Engine) -> list[Compacted]:
    """Compact every plan into the stage of its job, on ``engine``; in the order of ``plans``.

    A stage that an earlier try has compacted already is taken as it is (C25). Errors are collected, not raised; a plan
    that was refused is marked and not planned again as it is.
    """
    found = {one.plan.id: one for job in jobs_of(plans) for one in _of_job(lake, job, engine)}
    return [found[plan.id] for plan in plans]


def _of_job(lake: Lake, job: Job, engine: Engine) -> list[Compacted]:
    """Every plan of ``job``. One that was published before is as good as compacted: its inputs are gone for that."""
    found = _tried(lake, job, engine)
    lost = [one.plan.id for one in found if isinstance(one.error, ConflictError)]
    before: Mapping[str, tuple[int, PublishedPlan]] = {}
    if lost:
        # A process that can't look any more has lost the race, as far as it knows.
        with suppress(FirnError), lake.answering():
            before = published_plans(lake.table(job.table), lost)
    return [
        replace(one, counts=before[one.plan.id][1].counts, error=None) if one.plan.id in before else one
        for one in found
    ]


def _tried(lake: Lake, job: Job, engine: Engine) -> list[Compacted]:
    try:
        with lake.answering():
            stage = open_stage(lake, job)
            refused = _written(lake, stage, engine)
            if refused is None:
                return [one for plan in job for one in _tried(lake, Job((plan,)), engine)]
            stage = Stage.load(lake, job.stage)
    except FirnError as error:
        if isinstance(error, GoneError) and error.identifier == job.stage:
            # Not refused: another process published or discarded it meanwhile, and what is due will be planned again.
            gone = ConflictError(f"stage {job.stage} went while it was compacted: {error}; plan again")
            return [Compacted(plan, job.stage, None, gone) for plan in job]
        if isinstance(error, _PLAN_FAILED):
            _mark(lake, job, dict.fromkeys((plan.id for plan in job), error))
        return [Compacted(plan, job.stage, None, error) for plan in job]
    _mark(lake, job, refused)
    return [_compacted(stage, plan, refused) for plan in job]


def _written(lake: Lake, stage: Stage, engine: Engine) -> Mapping[str, FirnError] | None:
    """The plans that failed, by id, once the others are in the stage; None: all go on in stages of their own."""
    if stage.is_split:
        return None
    try:
        return {} if stage.books else _write(lake, stage, engine)
    except FirnError:
        if len(stage.plans) + len(stage.left_out) == 1:
            raise
        split(lake, stage)
        return None


def _mark(lake: Lake, job: Job, refused: Mapping[str, FirnError]) -> None:
    for plan in job:
        if plan.id in refused:
            mark(lake, job.stage, plan, "compact", str(refused[plan.id]))


def _compacted(stage: Stage, plan: Plan, refused: Mapping[str, FirnError]) -> Compacted:
    counts = stage.books.plans.get(plan.id) if stage.books else None
    if counts is not None:
        return Compacted(plan, stage.identifier, counts, None)
    if plan.id in stage.left_out:
        return Compacted(plan, stage.identifier, None, ConflictError(stage.left_out[plan.id]))
    error = refused.get(plan.id) or RefusedError(
        f"plan {plan.id} ({plan.title}) was refused when stage {stage.identifier} was compacted; plan again"
    )
    return Compacted(plan, stage.identifier, None, error)


def _write(lake: Lake, stage: Stage, engine: Engine) -> Mapping[str, FirnError]:
    """Write the results of the stage's plans and record their counts; the plans that failed.

    Raises what failed where no plan is left, or where trying again may help.
    """
    target = _target(lake, stage)
    with ExitStack() as undo:
        # Another process may have ended the job while this one stood still: then nobody else knows of these files.
        undo.callback(clear_attempt, lake, stage, target.folder)
        done, failed = results(_inputs(lake, stage), target, engine, stage.title)
        again = next((error for error in failed.values() if not isinstance(error, _PLAN_FAILED)), None)
        if again or not done:
            raise again or next(iter(failed.values()))
        in_place = {path for result in done.values() for path in result.in_place}
        stage = leave(lake, stage, in_place)
        _commit(lake, stage, done)
        stage = Stage.load(lake, stage.identifier)
        stage.record_books(lake, books_of(stage, done))
        undo.pop_all()
    return failed


def _inputs(lake: Lake, stage: Stage) -> list[PlanInputs]:
    columns = Columns.of(stage.table, stage.identifier)
    listed = {file.file_path: file for file in stage.inputs()}
    samples = samples_of(lake.table(stage.target).properties)
    return [
        PlanInputs.of(
            plan, DataFiles.of(stage.table, f"table {plan.table}, {plan.topic_partition}"), columns, listed, samples
        )
        for plan in stage.plans
    ]


def _target(lake: Lake, stage: Stage) -> Target:
    table = lake.table(stage.target)
    columns = Columns.of(stage.table, stage.identifier)
    # The stage says which columns repeat too little for a dictionary (``stage/open.py``).
    options = WriteOptions(stage.table.schema(), dict(stage.table.properties))
    folder = f"{job_folder(table, stage.job_id)}/{uuid.uuid4().hex[:16]}"
    return Target(folder, options, Partitions(stage.table.schema(), stage.table.spec(), columns))


def _commit(lake: Lake, stage: Stage, done: Mapping[str, Result]) -> None:
    """Make the results the stage's content; what a try that was killed may have left there goes."""
    spec_id = stage.table.spec().spec_id
    added = [file.data_file(spec_id) for result in done.values() for file in result.files]
    removed = {file.file_path for file in stage.content()}
    swap = Swap(stage.table, removed, added, {})
    try:
        lake.when_free(lambda: swap.commit(lake, stage.table, Manifests(stage.table.io)))
    except CommitFailedException as error:
        raise ConflictError(f"stage {stage.identifier} is being compacted by another process; plan again") from error
