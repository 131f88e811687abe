"""Run plans in Spark: each one's inputs are read from its stage and its result is written back there.

Many plans share one Spark application; one that fails does not stop the others (C20). The target is never written.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from pipeline.compact import fate
from pipeline.compact.inputs import Reader, spark_name
from pipeline.compact.layout import scans, write_options
from pipeline.compact.survey import Survey, prepared, surveyed
from pipeline.compact.working import as_stored
from pipeline.errors import FirnError, RefusedError, UnavailableError
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.spark import reason
from pipeline.plan import Job, Plan
from pipeline.sense import Lane
from pipeline.stage import BURIED, INPUTS, QUARANTINED, Accounting, Books, Stage, mark, open_stage
from pipeline.stage.leave import leave

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DROPPED = (fate.SUPERSEDED, fate.STILL_BURIED, fate.OF_ABORTED, fate.MARKER_REMOVED)
_COUNTED = (fate.SUPERSEDED, fate.REMOVED, fate.QUARANTINED, fate.RESTORED, fate.OF_ABORTED, fate.MARKER_REMOVED)


@dataclass(frozen=True)
class Outcome:
    """What became of one plan: its stage's name, and the books or the error."""

    plan: Plan
    stage: str
    accounting: Accounting | None
    error: FirnError | None


def compact(lake: Lake, plans: Sequence[Plan], spark: "SparkSession") -> list[Outcome]:
    """Compact every plan into its stage; outcomes in the order of ``plans``.

    A stage that an earlier try has compacted already is taken as it is (C25). Errors are collected, not raised; a plan
    that was refused is marked and not planned again as it is (C20).
    """
    # Together they keep to the budget in keys (C17); small ones fill each other's idle cores.
    threads = min((plan.cleaner_threads for plan in plans), default=1)
    with ThreadPoolExecutor(threads) as workers:
        return list(workers.map(lambda plan: _outcome(lake, plan, spark), plans))


def _outcome(lake: Lake, plan: Plan, spark: "SparkSession") -> Outcome:
    try:
        stage = open_stage(lake, Job((plan,)))
        if stage.books is None:
            stage = _write(lake, stage, spark)
    except RefusedError as error:
        mark(lake, plan.stage, plan, "compact", str(error))
        return Outcome(plan, plan.stage, None, error)
    except FirnError as error:
        return Outcome(plan, plan.stage, None, error)
    return Outcome(plan, plan.stage, stage.books.plans[plan.id] if stage.books else None, None)


def _write(lake: Lake, stage: Stage, spark: "SparkSession") -> Stage:
    """Clean the inputs into the stage's main branch and record the books of what was written."""
    plan = stage.plan
    try:
        columns = Columns.of(stage.table, stage.identifier)
        reader = Reader(spark, spark_name(lake, stage.identifier), columns, (plan,))
        books = _copy(lake, stage, reader) if plan.lane is Lane.MERGE else _clean(lake, stage, reader)
    except (PySparkException, Py4JError) as error:
        raise UnavailableError(
            f"plan {plan.id} ({plan.title}): Spark could not write stage {plan.stage}: {reason(error)}"
        ) from error
    return Stage.load(lake, stage.identifier).record_books(lake, Books(plans={plan.id: books}))


def _copy(lake: Lake, stage: Stage, reader: Reader) -> Accounting:
    """Lane merge (C13)."""
    records = fate.merged(reader.records(INPUTS, scans(reader.plans, frozenset(), reader.columns)))
    counted = _replace(stage, reader, records)
    return _books(Stage.load(lake, stage.identifier), counted)


def _clean(lake: Lake, stage: Stage, reader: Reader) -> Accounting:
    """The other lanes, in two passes (C2 to C10)."""
    with surveyed(reader) as survey:
        for error in survey.repeats.refused.values():
            raise error
        stage = leave(lake, stage, survey.stay)
        read = reader.records(stage.rewritten, scans(reader.plans, survey.stay, reader.columns))
        records = fate.cleaned(prepared(read, reader.plans, survey.repeats), survey.words)
        counted = _replace(stage, reader, records)
    return _books(Stage.load(lake, stage.identifier), counted, survey)


def _replace(stage: Stage, reader: Reader, judged: DataFrame) -> dict[str, int]:
    """Write the records that stay or go to a side table as the stage's content; how many met each fate."""
    fates = Observation(f"fates of {stage.identifier}")
    counts = [F.count_if(F.col(fate.FATE) == name).alias(name) for name in _COUNTED]
    level = (
        F.when(F.col(fate.FATE) == fate.QUARANTINED, QUARANTINED)
        .when(F.col(fate.FATE) == fate.REMOVED, BURIED)
        .otherwise(reader.plans[0].level_out)
    )
    kept = judged.observe(fates, *counts).where(~F.col(fate.FATE).isin(*_DROPPED))
    writer = as_stored(kept, reader.columns, level).writeTo(reader.name)
    for key, value in write_options(reader.plans[0]).items():
        writer = writer.option(key, value)
    writer.overwrite(F.lit(True))
    return fates.get


def _books(stage: Stage, fates: dict[str, int], survey: Survey | None = None) -> Accounting:
    plan = stage.plan
    kept = stage.sorted_files()[plan.id].kept
    stay = survey.stay if survey else frozenset()
    repeated = sum(survey.repeats.counts.values()) if survey else 0
    taken = [segment for segment in plan.inputs if segment.path not in stay]
    left = [segment for segment in plan.inputs if segment.path in stay]
    return Accounting(
        records_in=sum(segment.records for segment in taken) + fates[fate.RESTORED],
        records_out=sum(file.record_count for file in kept),
        superseded=fates[fate.SUPERSEDED] + repeated,
        repeated=repeated,
        tombstones_removed=fates[fate.REMOVED],
        quarantined=fates[fate.QUARANTINED],
        restored=fates[fate.RESTORED],
        aborted=fates[fate.OF_ABORTED],
        markers_removed=fates[fate.MARKER_REMOVED],
        bytes_in=sum(segment.bytes for segment in taken),
        bytes_out=sum(file.file_size_in_bytes for file in kept),
        segments_in=len(taken),
        segments_out=len(kept),
        segments_left=len(left),
        records_left=sum(segment.records for segment in left),
        bytes_left=sum(segment.bytes for segment in left),
    ).check(f"stage {stage.identifier}")
