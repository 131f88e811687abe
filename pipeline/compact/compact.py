"""Run plans in Spark: each one's inputs are read from its stage and its result is written back there.

Many plans share one Spark application; one that fails does not stop the others (C20). The target is never written.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from pipeline.compact import fate
from pipeline.compact.books import Written, counts_of, record
from pipeline.compact.inputs import FINGERPRINT, Reader, spark_name
from pipeline.compact.layout import scans, write_options
from pipeline.compact.newest import counting, survivors_of
from pipeline.compact.rounds import EVERYTHING, rounds
from pipeline.compact.survey import Survey, persisted, prepared, surveyed
from pipeline.compact.working import as_stored
from pipeline.errors import (
    ConflictError,
    FirnError,
    GoneError,
    RefusedError,
    UnavailableError,
)
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.spark import reason, sized_session
from pipeline.plan import Job, Plan, jobs_of
from pipeline.policy import samples_of
from pipeline.sense import Lane
from pipeline.stage import BURIED, INPUTS, QUARANTINED, Accounting, Stage, mark, open_stage, split
from pipeline.stage.leave import leave
from pipeline.stage.published import PublishedPlan, published_plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DROPPED = (fate.OF_ABORTED, fate.MARKER_REMOVED)


@dataclass(frozen=True)
class Outcome:
    """What became of one plan: its stage's name, and the books or the error."""

    plan: Plan
    stage: str
    accounting: Accounting | None
    error: FirnError | None


def compact(lake: Lake, plans: Sequence[Plan], spark: "SparkSession") -> list[Outcome]:
    """Compact every plan into the stage of its job; outcomes in the order of ``plans``.

    A stage that an earlier try has compacted already is taken as it is (C25). Errors are collected, not raised; a plan
    that was refused is marked and not planned again as it is, and a job that fails is split: one torn file of one plan
    holds up no other (C20).
    """
    # Together they keep to the budget in keys (C17); small ones fill each other's idle cores.
    threads = min((plan.cleaner_threads for plan in plans), default=1)
    with ThreadPoolExecutor(threads) as workers:
        found = workers.map(lambda job: _outcomes(lake, job, spark), jobs_of(plans))
        by_plan = {outcome.plan.id: outcome for outcomes in found for outcome in outcomes}
    return [by_plan[plan.id] for plan in plans]


def _outcomes(lake: Lake, job: Job, spark: "SparkSession") -> list[Outcome]:
    """Of every plan of ``job``. One that was published before is as good as compacted: its inputs are gone for that."""
    with lake.answering():
        found = _tried(lake, job, spark)
    lost = [outcome.plan.id for outcome in found if isinstance(outcome.error, ConflictError)]
    before: Mapping[str, tuple[int, PublishedPlan]] = {}
    if lost:
        # Whoever can't look any more has lost the race, as far as it knows.
        with suppress(FirnError), lake.answering():
            before = published_plans(lake.table(job.table), lost)
    return [
        replace(outcome, accounting=before[outcome.plan.id][1].accounting, error=None)
        if outcome.plan.id in before
        else outcome
        for outcome in found
    ]


def _tried(lake: Lake, job: Job, spark: "SparkSession") -> list[Outcome]:
    try:
        with lake.answering():
            stage = open_stage(lake, job)
            refused = _written(lake, stage, spark)
            if refused is None:
                return [outcome for plan in job for outcome in _tried(lake, Job((plan,)), spark)]
            stage = Stage.load(lake, job.stage)
    except FirnError as error:
        if isinstance(error, GoneError) and error.identifier == job.stage:
            # Not refused: somebody else published or discarded it meanwhile, and what is due will be planned again.
            gone = ConflictError(f"stage {job.stage} went while it was compacted: {error}; plan again")
            return [Outcome(plan, job.stage, None, gone) for plan in job]
        if isinstance(error, RefusedError):
            _mark(lake, job, dict.fromkeys((plan.id for plan in job), error))
        return [Outcome(plan, job.stage, None, error) for plan in job]
    _mark(lake, job, refused)
    return [_outcome(stage, plan, refused) for plan in job]


def _written(lake: Lake, stage: Stage, spark: "SparkSession") -> Mapping[str, RefusedError] | None:
    """The plans that were refused, by id, once the others are in the stage; None: all go on in stages of their own."""
    if stage.is_split:
        return None
    try:
        return {} if stage.books else _write(lake, stage, spark)
    except FirnError:
        if len(stage.plans) + len(stage.left_out) == 1:
            raise
        split(lake, stage)
        return None


def _mark(lake: Lake, job: Job, refused: Mapping[str, RefusedError]) -> None:
    for plan in job:
        if plan.id in refused:
            mark(lake, job.stage, plan, "compact", str(refused[plan.id]))


def _outcome(stage: Stage, plan: Plan, refused: Mapping[str, RefusedError]) -> Outcome:
    books = stage.books.plans.get(plan.id) if stage.books else None
    if books is not None:
        return Outcome(plan, stage.identifier, books, None)
    if plan.id in stage.left_out:
        return Outcome(plan, stage.identifier, None, ConflictError(stage.left_out[plan.id]))
    error = refused.get(plan.id) or RefusedError(
        f"plan {plan.id} ({plan.title}) was refused when stage {stage.identifier} was compacted; plan again"
    )
    return Outcome(plan, stage.identifier, None, error)


def _write(lake: Lake, stage: Stage, spark: "SparkSession") -> Mapping[str, RefusedError]:
    """Clean the inputs into the stage's main branch and record the books of what was written; who was refused."""
    try:
        columns = Columns.of(stage.table, stage.identifier)
        own = sized_session(lake, spark, sum(plan.records for plan in stage.plans))
        samples = samples_of(lake.table(stage.target).properties)
        reader = Reader(own, spark_name(lake, stage.identifier), columns, stage.plans, samples)
        if stage.plans[0].lane is Lane.MERGE:
            return _copy(lake, stage, reader)
        return _clean(lake, stage, reader)
    except (PySparkException, Py4JError) as error:
        raise UnavailableError(
            f"{stage.title}: Spark could not write stage {stage.identifier}: {reason(error)}"
        ) from error


def _copy(lake: Lake, stage: Stage, reader: Reader) -> Mapping[str, RefusedError]:
    """Lane merge (C13)."""
    records = fate.merged(reader.records(INPUTS, scans(reader.plans, frozenset(), reader.columns)))
    counted = _write_out(stage, reader, records)
    record(lake, stage, Written(counted, {}, frozenset()))
    return {}


def _clean(lake: Lake, stage: Stage, reader: Reader) -> Mapping[str, RefusedError]:
    """The other lanes, in two passes (C2 to C10); a plan that is refused leaves no record behind."""
    with surveyed(reader) as survey:
        refused = survey.repeats.refused
        if len(refused) < len(stage.plans):
            stage = leave(lake, stage, survey.stay)
            told = Observation(f"survivors of {stage.identifier}")
            counted = _pass(stage, reader, replace(survey, words=counting(survey.words, told)))
            survivors = survey.tail + survivors_of(told.get)
            record(lake, stage, Written(counted, survey.repeats.counts, survey.stay, survivors, frozenset(refused)))
    return {stage.plans[number].id: error for number, error in refused.items()}


def _pass(stage: Stage, reader: Reader, survey: Survey) -> Counter[str]:
    """Pass 2, in as many rounds as it takes."""
    packed = scans(reader.plans, survey.stay, reader.columns, survey.left)
    # Plans that share a job have few words together: their job's limits see to that.
    parts = rounds(reader.plans[0], survey.stay) if len(reader.plans) == 1 else [EVERYTHING]
    counted: Counter[str] = Counter()
    with persisted(survey.words, StorageLevel.DISK_ONLY) if len(parts) > 1 else nullcontext():
        for place, part in enumerate(parts):
            read = reader.records(stage.rewritten, packed, part)
            records = fate.cleaned(prepared(read, reader.plans, survey.repeats), survey.words_of(part))
            counted.update(_write_out(stage, reader, records, first=place == 0))
    return counted


def _write_out(stage: Stage, reader: Reader, judged: DataFrame, *, first: bool = True) -> Counter[str]:
    """Write the records that stay or go to a side table as the stage's content, or add them.

    Returns what ``counts_of`` counted.
    """
    fates = Observation(f"fates of {stage.identifier}")
    level = (
        F.when(F.col(fate.FATE) == fate.QUARANTINED, QUARANTINED)
        .when(F.col(fate.FATE) == fate.REMOVED, BURIED)
        .otherwise(reader.plans[0].level_out)
    )
    stays = ~F.col(fate.FATE).isin(*_DROPPED)
    kept = judged.observe(fates, *counts_of(reader.plans[0], F.when(stays, F.col(FINGERPRINT)))).where(stays)
    writer = as_stored(kept, reader.columns, level).writeTo(reader.name)
    for key, value in write_options(reader.plans[0]).items():
        writer = writer.option(key, value)
    if first:
        # Also takes away what a try that was killed may have added.
        writer.overwrite(F.lit(True))
    else:
        writer.append()
    return Counter({name: count or 0 for name, count in fates.get.items()})
