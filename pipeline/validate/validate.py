"""Put what a plan and its compaction claim to the test, and store the verdict on the stage.

The expectations measure for themselves; nothing of how the cleaner works is shared with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from expectations import Claim, JudgementError, Reading, Verdict, build_data_docs, judge
from pipeline.compact.inputs import spark_name
from pipeline.errors import FirnError, RefusedError, UnavailableError
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.spark import reason
from pipeline.stage import Accounting, Stage, mark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from expectations.claim import Lane as JudgedLane


@dataclass(frozen=True)
class Judged:
    """One stage's verdict, or the error that kept it from having one."""

    stage: str
    title: str
    verdict: Verdict | None
    error: FirnError | None

    @property
    def passed(self) -> bool:
        return self.verdict is not None and self.verdict.passed

    @property
    def failure(self) -> str:
        """Why it did not pass, in one line; empty when it did."""
        if self.verdict is None:
            return str(self.error)
        broken = "; ".join(f"{finding.name}: {finding.observed}" for finding in self.verdict.failures)
        return f"validation failed: {broken}" if broken else ""


def validate(lake: Lake, identifiers: Sequence[str], spark: "SparkSession") -> list[Judged]:
    """Judge every stage of ``identifiers``; results in that order, errors collected, not raised (C20).

    A result that has a verdict already keeps it; one that failed marks its plan (C20). Validation results are stored
    under the lake's reports folder.
    """
    return [_judged(lake, identifier, spark) for identifier in identifiers]


def build_reports(lake: Lake) -> Path:
    """Build the data-quality pages of all stored validation results; the path of the first page."""
    return build_data_docs(lake.reports_folder)


def _judged(lake: Lake, identifier: str, spark: "SparkSession") -> Judged:
    try:
        stage = Stage.load(lake, identifier)
        recorded = (stage.verdicts or {}).get(stage.plan.id)
        if recorded is not None:
            verdict = Verdict.from_dict(recorded)
        else:
            stage.check()
            verdict = _judge(lake, stage, spark)
            stage.record_verdicts(lake, {stage.plan.id: verdict.to_dict()})
    except FirnError as error:
        return Judged(identifier, identifier, None, error)
    judged = Judged(identifier, stage.plan.title, verdict, None)
    if not judged.passed and stage.failure is None:
        mark(lake, identifier, stage.plan, "validate", judged.failure)
    return judged


def _judge(lake: Lake, stage: Stage, spark: "SparkSession") -> Verdict:
    books = stage.books.plans.get(stage.plan.id) if stage.books else None
    if books is None:
        raise RefusedError(
            f"stage {stage.identifier} is {stage.state}; allowed: a result with its books (firn compact)"
        )
    name = spark_name(lake, stage.identifier)
    try:
        # Both sides by snapshot: what is judged is what the verdict will be recorded for (C23).
        inputs = spark.read.option("versionAsOf", stage.rewritten).table(name)
        result = spark.read.option("versionAsOf", str(stage.result)).table(name)
        reading = _reading(Columns.of(stage.table, stage.identifier))
        return judge(inputs, result, _claim(stage, books), lake.reports_folder, reading=reading)
    except (PySparkException, Py4JError, JudgementError) as error:
        raise UnavailableError(
            f"stage {stage.identifier} ({stage.plan.title}): it could not be judged: {reason(error)}"
        ) from error


def _reading(columns: Columns) -> Reading:
    return Reading(
        key=columns.key,
        offset=columns.offset,
        topic=columns.topic,
        partition=columns.partition,
        topic_name=columns.topic_name,
        tombstone=columns.tombstone,
        level=columns.level,
        delete_horizon=columns.delete_horizon,
        transactions=not columns.adopted,
    )


def _claim(stage: Stage, books: Accounting) -> Claim:
    plan = stage.plan
    return Claim(
        table=plan.table,
        # Lane retain has no stage, so no claim is ever made for it.
        lane=cast("JudgedLane", plan.lane.value),
        plan_id=plan.id,
        topic=plan.topic,
        partition=plan.partition,
        now_ms=plan.now_ms,
        level_out=plan.level_out,
        clean_below=plan.clean_below,
        log_end_offset=plan.log_end_offset,
        delete_retention_ms=plan.delete_retention_ms,
        transactional=plan.transactional,
        markers=plan.markers,
        **books.model_dump(exclude={"expired", "segments_left", "records_left", "bytes_left"}),
    )
