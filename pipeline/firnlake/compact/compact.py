"""Compact the plans of a lane. Results go to the stage of their job, where no reader of the table sees them."""

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from pyiceberg.manifest import DataFile

from firnlake.compact.attempt import Attempt
from firnlake.compact.compactions import COMPACTIONS
from firnlake.compact.inputs import Partitions, PlanInputs
from firnlake.compact.keep_or_drop import Outcome
from firnlake.compact.rewrite import Target
from firnlake.compact.tasks import Result
from firnlake.engine.engine import Engine, WorkerLostError, threads_per_task
from firnlake.errors import ConflictError, FirnError, GoneError, RefusedError, contained
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.files import job_folder
from firnlake.iceberg.manifest_writers import check_positions
from firnlake.iceberg.parquet import DICTIONARY_OF, WriteOptions
from firnlake.job.collect import delete_attempt, discard, forget_failures
from firnlake.job.failures import mark, report_refusal
from firnlake.job.job import Job, jobs_of
from firnlake.job.plan import Input, Plan
from firnlake.job.result import PlanFiles, PlanResult, StagedResult, files_by_plan
from firnlake.job.stage import OpenedStage, Stage, missing, open_stage
from firnlake.table.columns import ColumnRoles
from firnlake.table.policy import samples_of
from firnlake.table.published_plans import PublishedPlan, RecordCounts, published_plans
from firnlake_expectations.wording import count

_PLAN_FAILED = (RefusedError, WorkerLostError)
"""Errors that another try of the same plan would meet again."""


@dataclass(frozen=True)
class Compacted:
    """Outcome of one plan: the name of its stage, and either the record counts or the error."""

    plan: Plan
    stage: str
    counts: RecordCounts | None
    error: FirnError | None


def compact(lake: Lake, plans: Sequence[Plan], engine: Engine) -> list[Compacted]:
    """Compact every plan into the stage of its job, on ``engine``; returns outcomes in the order of ``plans``.

    A stage that an earlier try has already compacted is reused (C25). Errors are collected, not raised. A refused plan
    is marked as failed, and is planned again only after its inputs have changed.
    """
    by_id = {one.plan.id: one for job in jobs_of(plans) for one in _of_job(lake, job, engine)}
    return [by_id[plan.id] for plan in plans]


def _of_job(lake: Lake, job: Job, engine: Engine) -> list[Compacted]:
    """Compact every plan of ``job``. A published plan counts as compacted: publication removed its inputs."""
    compacted = _tried(lake, job, engine)
    lost = [one.plan.id for one in compacted if isinstance(one.error, ConflictError)]
    before: Mapping[str, tuple[int, PublishedPlan]] = {}
    if lost:
        # If the lookup fails, the plan keeps its conflict, because another process may have published it.
        with suppress(FirnError), lake.answering():
            before = published_plans(lake.table(job.table), lost)
    return [
        replace(one, counts=before[one.plan.id][1].counts, error=None) if one.plan.id in before else one
        for one in compacted
    ]


def _tried(lake: Lake, job: Job, engine: Engine) -> list[Compacted]:
    try:
        with lake.answering():
            for plan in job:
                plan.check_clock()
            # A user who runs a failed plan again wants another try.
            forget_failures(lake, job.table, {job.id, *(plan.id for plan in job)})
            opened = open_stage(lake, job)
            refused = _written(lake, opened, engine)
            if refused is None:
                return [one for plan in job for one in _tried(lake, Job((plan,)), engine)]
            stage = Stage.load(lake, job.stage)
    except Exception as raised:  # noqa: BLE001  # whatever it is, it concerns one plan
        error = contained(raised, job.plans[0].subject)
        if isinstance(error, GoneError) and error.identifier == job.stage:
            # Not a refusal: another process has published or discarded the stage, and due work will be planned again.
            gone = ConflictError(f"stage {job.stage} was deleted while it was compacted: {error}; plan again")
            return [Compacted(plan, job.stage, None, gone) for plan in job]
        if isinstance(error, _PLAN_FAILED):
            _mark(lake, job, dict.fromkeys((plan.id for plan in job), error))
        return [Compacted(plan, job.stage, None, error) for plan in job]
    _mark(lake, job, refused)
    return [_compacted(stage, plan, refused) for plan in job]


def _written(lake: Lake, opened: OpenedStage, engine: Engine) -> Mapping[str, FirnError] | None:
    """The failures by plan id; the other plans are now in the stage. None if each plan must get its own stage."""
    stage = opened.stage
    if stage.is_split:
        return None
    try:
        return {} if stage.result else _write(lake, opened, engine)
    except Exception:
        if len(stage.plans) == 1:
            raise
        stage.record_split()
        return None


def _mark(lake: Lake, job: Job, refused: Mapping[str, FirnError]) -> None:
    """Mark and report the ``refused`` plans, except plans that passed in another process; the next run retries unmarked
    plans."""
    for plan in job:
        if plan.id in refused and not _passed(lake, job, plan):
            for record in (mark, report_refusal):
                with suppress(FirnError):
                    record(lake, plan, "compact", str(refused[plan.id]))


def _passed(lake: Lake, job: Job, plan: Plan) -> bool:
    try:
        return Stage.load(lake, job.stage).passed(plan.id)
    except FirnError:
        return False


def _compacted(stage: Stage, plan: Plan, refused: Mapping[str, FirnError]) -> Compacted:
    own = stage.of_plan(plan.id)
    if own is not None:
        return Compacted(plan, stage.identifier, own.counts, None)
    if plan.id in stage.conflicts:
        return Compacted(plan, stage.identifier, None, ConflictError(stage.conflicts[plan.id]))
    error = refused.get(plan.id) or RefusedError(
        f"plan {plan.id} ({plan.title}) was refused when stage {stage.identifier} was compacted; plan again"
    )
    return Compacted(plan, stage.identifier, None, error)


def _write(lake: Lake, opened: OpenedStage, engine: Engine) -> Mapping[str, FirnError]:
    """Write and record the results of the stage's plans; returns the failures by plan id.

    Raises the failure when no plan is left, or when a retry may help; ConflictError when another process has discarded
    the stage meanwhile.
    """
    stage, plans = opened.stage, [plan for plan in opened.stage.plans if plan.id not in opened.conflicts]
    if plans[0].lane.traits.writes == "deletes":
        check_positions(stage.table)
    target = _target(stage)
    with ExitStack() as undo:
        # No result names these files yet, so no other process knows of them.
        undo.callback(delete_attempt, stage.table, target.folder)
        started = time.monotonic()
        title = f"{plans[0].table}, {stage.title}, {count(sum(plan.records for plan in plans), 'record')}"
        attempt = Attempt(stage.table, _inputs(opened, plans, engine), target, engine, title)
        done, failed = COMPACTIONS[plans[0].lane](attempt)
        again = next((error for error in failed.values() if not isinstance(error, _PLAN_FAILED)), None)
        if again or not done:
            raise again or next(iter(failed.values()))
        core_ms = round((time.monotonic() - started) * 1000) * engine.parallelism
        result = _result(opened, [plan for plan in plans if plan.id in done], done, core_ms)
        undo.callback(result.abandon, stage.table)
        # This process may have been paused while another one discarded the stage with this try's files.
        stage.check_undisturbed()
        _check_there(stage, done)
        undo.pop_all()
    stage.record_result(result)
    try:
        stage.check_undisturbed()
    except ConflictError:
        discard(lake, stage.identifier)
        raise
    return failed


def _inputs(opened: OpenedStage, plans: Sequence[Plan], engine: Engine) -> list[PlanInputs]:
    table = opened.stage.table
    threads = threads_per_task(engine.parallelism, len(plans))
    columns, samples = ColumnRoles.of(table, opened.stage.target), samples_of(table.properties)
    return [
        PlanInputs.of(
            plan,
            DataFiles.of(table, f"table {plan.table}, {plan.topic_partition}"),
            columns,
            opened.files,
            opened.deletes,
            samples,
            threads,
        )
        for plan in plans
    ]


def _target(stage: Stage) -> Target:
    table, columns = stage.table, ColumnRoles.of(stage.table, stage.target)
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
    return {name: "false" for name in names if name not in stage.table.properties}


def _result(opened: OpenedStage, plans: Sequence[Plan], done: Mapping[str, Result], core_ms: int) -> StagedResult:
    """The results of ``plans`` as the stage records them; raises RefusedError when record counts don't add up."""
    stage, table = opened.stage, opened.stage.table
    spec_id = table.spec().spec_id
    files = [file.data_file(spec_id) for plan in plans for file in done[plan.id].files]
    deletes = [file.data_file() for plan in plans for file in done[plan.id].deletes]
    by_plan = files_by_plan(table, f"stage {stage.identifier}", plans, files, deletes)
    by_id = {
        plan.id: PlanResult(
            counts=counts_of(plan, by_plan[plan.id], done[plan.id]),
            fingerprint=str(done[plan.id].fingerprint),
            in_place=tuple(sorted(done[plan.id].in_place)),
            merged=done[plan.id].merged,
        )
        for plan in plans
    }
    conflicts = {plan_id: str(conflict) for plan_id, conflict in opened.conflicts.items()}
    return StagedResult.of(table, stage.documents.location, stage.opening, by_id, conflicts, files, core_ms, deletes)


def _check_there(stage: Stage, done: Mapping[str, Result]) -> None:
    lengths = {file.path: file.bytes for result in done.values() for file in result.files}
    lengths |= {file.path: file.bytes for result in done.values() for file in result.deletes}
    gone = missing(lengths, lengths, stage.stored())
    if gone:
        raise ConflictError(
            f"stage {stage.identifier}: gone: {len(gone)} of {count(len(lengths), 'file')} just written, first "
            f"{gone[0]}; plan again"
        )


def counts_of(plan: Plan, files: PlanFiles, result: Result) -> RecordCounts:
    """The record counts of ``plan``, whose result is in ``files``."""
    if plan.lane.traits.writes == "deletes":
        return _converted(plan, files, result)
    counts = result.counts
    taken = [segment for segment in plan.inputs if segment.path not in result.in_place]
    in_place = [segment for segment in plan.inputs if segment.path in result.in_place]
    whole = plan.lane.traits.copies
    repeated = counts[Outcome.REPEATED] + (0 if whole else _further_listings(taken))
    restored, deleted = counts[Outcome.RESTORED], counts[Outcome.DELETED]
    return RecordCounts(
        records_in=sum(segment.records for segment in taken) - deleted + restored,
        records_out=_records(files.kept),
        superseded=counts[Outcome.SUPERSEDED] + repeated,
        repeated=repeated,
        tombstones_removed=0 if whole else _records(files.removed_tombstones),
        quarantined=_records(files.quarantined),
        restored=restored,
        aborted=counts[Outcome.ABORTED],
        markers_removed=counts[Outcome.MARKER_REMOVED],
        erased=counts[Outcome.ERASED],
        deleted=deleted,
        bytes_in=sum(segment.bytes for segment in taken),
        bytes_out=sum(file.file_size_in_bytes for file in files.kept),
        segments_in=len(taken),
        segments_out=len(files.kept),
        segments_in_place=len(in_place),
        records_in_place=sum(segment.records for segment in in_place),
        bytes_in_place=sum(segment.bytes for segment in in_place),
    )


def _converted(plan: Plan, files: PlanFiles, result: Result) -> RecordCounts:
    """The counts of lane `convert`: all segments stay, and the bytes written are those of delete files."""
    deleted = result.counts[Outcome.DELETED]
    return RecordCounts(
        records_in=plan.records - deleted,
        records_out=plan.records - deleted,
        superseded=0,
        tombstones_removed=0,
        quarantined=0,
        deleted=deleted,
        bytes_in=0,
        bytes_out=sum(file.file_size_in_bytes for file in files.deletes),
        segments_in=0,
        segments_out=0,
        segments_in_place=len(plan.inputs),
        bytes_in_place=plan.bytes,
    )


def _further_listings(taken: Sequence[Input]) -> int:
    """Records of repeated listings of a file, beyond the first: the file is read once."""
    return sum(one.records - one.records // one.copies for one in taken)


def _records(files: Sequence[DataFile]) -> int:
    return sum(file.record_count for file in files)
