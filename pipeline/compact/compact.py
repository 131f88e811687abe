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
from pipeline.compact.layout import read_options, write_options
from pipeline.compact.repeats import without_repeats
from pipeline.compact.working import as_stored, column, with_working_columns
from pipeline.errors import FirnError, RefusedError, UnavailableError
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.spark import reason
from pipeline.plan import Plan
from pipeline.sense import Lane
from pipeline.stage import BURIED, INPUTS, QUARANTINED, Accounting, Stage, discard, mark, open_stage
from pipeline.stage.stage import BOOKS_PROPERTY

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
        stage = open_stage(lake, plan)
        if stage.failure:
            # Who runs the very plan again that failed wants another try.
            discard(lake, stage.identifier)
            stage = open_stage(lake, plan)
        if stage.accounting is None:
            stage = _write(lake, stage, spark)
    except RefusedError as error:
        mark(lake, plan.stage, "compact", str(error))
        return Outcome(plan, plan.stage, None, error)
    except FirnError as error:
        return Outcome(plan, plan.stage, None, error)
    return Outcome(plan, plan.stage, stage.accounting, None)


def _write(lake: Lake, stage: Stage, spark: "SparkSession") -> Stage:
    """Clean the inputs into the stage's main branch and record the books of what was written."""
    plan = stage.plan
    fates = Observation(f"fates of {plan.id}")
    try:
        columns = Columns.of(stage.table, stage.identifier)
        inputs, repeated = _inputs(lake, stage, columns, spark)
        writer = _result(inputs, plan, columns, fates).writeTo(spark_name(lake, stage.identifier))
        several = len(stage.table.spec().fields) > len(columns.partition_fields)
        for key, value in write_options(plan, several).items():
            writer = writer.option(key, value)
        writer.overwrite(F.lit(True))
        counted = fates.get
    except (PySparkException, Py4JError) as error:
        raise UnavailableError(
            f"plan {plan.id} ({plan.title}): Spark could not write stage {plan.stage}: {reason(error)}"
        ) from error
    written = Stage.load(lake, stage.identifier)
    books = _books(written, counted, repeated).check(f"stage {stage.identifier}")
    return written.record(lake, BOOKS_PROPERTY, books.model_dump())


def _inputs(lake: Lake, stage: Stage, columns: Columns, spark: "SparkSession") -> tuple[DataFrame, int]:
    """The plan's inputs with working columns, and how many repeated records were left out of them."""
    inputs = with_working_columns(read(lake, stage, spark), columns)
    return (inputs, 0) if stage.plan.lane is Lane.MERGE else without_repeats(inputs, stage.plan)


def _result(inputs: DataFrame, plan: Plan, columns: Columns, fates: Observation) -> DataFrame:
    """The records that stay or go to a side table, level set; ``fates`` counts the others as they are dropped."""
    judged = fate.merged(inputs) if plan.lane is Lane.MERGE else fate.cleaned(inputs, plan)
    counts = [F.count_if(F.col(fate.FATE) == name).alias(name) for name in _COUNTED]
    level = (
        F.when(F.col(fate.FATE) == fate.QUARANTINED, QUARANTINED)
        .when(F.col(fate.FATE) == fate.REMOVED, BURIED)
        .otherwise(plan.level_out)
    )
    kept = judged.observe(fates, *counts).where(~F.col(fate.FATE).isin(*_DROPPED))
    stored = as_stored(kept, columns, level).drop(fate.FATE)
    # One task writes one segment: its records in offset order, those for side tables (level < 0) before the others.
    return stored.sortWithinPartitions(column(columns.level), column(columns.offset))


def read(lake: Lake, stage: Stage, spark: "SparkSession") -> DataFrame:
    """The records that the plan takes, each input segment in the task of its output segment."""
    reader = spark.read.option("versionAsOf", INPUTS)
    for key, value in read_options(stage.plan).items():
        reader = reader.option(key, value)
    return reader.table(spark_name(lake, stage.identifier))


def spark_name(lake: Lake, identifier: str) -> str:
    """``identifier`` as Spark SQL quotes it, in the lake's catalog."""
    return ".".join(f"`{part}`" for part in (lake.name, *identifier.split(".")))


def _books(stage: Stage, fates: dict[str, int], repeated: int) -> Accounting:
    kept = stage.sorted_files().kept
    plan = stage.plan
    return Accounting(
        records_in=plan.records + fates[fate.RESTORED],
        records_out=sum(file.record_count for file in kept),
        superseded=fates[fate.SUPERSEDED] + repeated,
        repeated=repeated,
        tombstones_removed=fates[fate.REMOVED],
        quarantined=fates[fate.QUARANTINED],
        restored=fates[fate.RESTORED],
        aborted=fates[fate.OF_ABORTED],
        markers_removed=fates[fate.MARKER_REMOVED],
        bytes_in=plan.bytes,
        bytes_out=sum(file.file_size_in_bytes for file in kept),
        segments_in=len(plan.inputs),
        segments_out=len(kept),
    )
