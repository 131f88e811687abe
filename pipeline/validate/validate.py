"""Put what plans and their compaction claim to the test, and store the verdicts on their stage.

The expectations measure for themselves; nothing of how the cleaner works is shared with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from expectations import Claim, JudgementError, Reading, Verdict, build_data_docs, judge_all
from pipeline.compact.inputs import spark_name
from pipeline.errors import FirnError, RefusedError, UnavailableError
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.spark import reason, sized_session
from pipeline.plan import Plan
from pipeline.policy import samples_of
from pipeline.stage import INPUTS, Accounting, Books, Stage, mark, parts_of
from pipeline.validate.parts import left_in_place, of_plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from expectations.claim import Lane as JudgedLane


@dataclass(frozen=True)
class Judged:
    """The verdict on one plan of a stage, or the error that kept it, or the whole stage, from having one.

    ``plan`` is its id; None when the error is the stage's.
    """

    stage: str
    title: str
    verdict: Verdict | None
    error: FirnError | None
    plan: str | None = None

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
    """Judge every stage of ``identifiers``: the results of their plans, in that order.

    Errors are collected, not raised (C20); plans that have no result, because compacting refused them, are left out. A
    result that has a verdict already keeps it; one that failed marks its plan. Validation results are stored under the
    lake's reports folder.
    """
    return list(chain.from_iterable(_of_job(lake, identifier, spark) for identifier in identifiers))


def build_reports(lake: Lake) -> Path:
    """Build the data-quality pages of all stored validation results; the path of the first page."""
    return build_data_docs(lake.reports_folder)


def _of_job(lake: Lake, identifier: str, spark: "SparkSession") -> list[Judged]:
    try:
        with lake.answering():
            return list(chain.from_iterable(_judged(lake, part, spark) for part in parts_of(lake, identifier)))
    except FirnError as error:
        return [Judged(identifier, identifier, None, error)]


def _judged(lake: Lake, identifier: str, spark: "SparkSession") -> list[Judged]:
    try:
        with lake.answering():
            stage = Stage.load(lake, identifier)
            recorded = stage.verdicts
            if recorded is None:
                stage.check()
                verdicts = _verdicts(lake, stage, spark)
                stage.record_verdicts(lake, {plan: verdict.to_dict() for plan, verdict in verdicts.items()})
            else:
                verdicts = {plan: _recorded(identifier, verdict) for plan, verdict in recorded.items()}
    except FirnError as error:
        return [Judged(identifier, identifier, None, error)]
    found = []
    for plan in stage.plans:
        if plan.id in verdicts:
            judged = Judged(identifier, plan.title, verdicts[plan.id], None, plan.id)
            if not judged.passed and stage.failure is None:
                mark(lake, identifier, plan, "validate", judged.failure)
            found.append(judged)
    return found


def _recorded(identifier: str, said: Mapping[str, Any]) -> Verdict:
    try:
        return Verdict.from_dict(said)
    except (KeyError, TypeError) as error:
        raise RefusedError(
            f"stage {identifier}: its verdict is not readable: {error}; allowed: as Firn wrote it"
        ) from error


def _verdicts(lake: Lake, stage: Stage, spark: "SparkSession") -> Mapping[str, Verdict]:
    """The verdict on each plan of the stage that has books."""
    books = stage.books
    if books is None or not books.plans:
        raise RefusedError(
            f"stage {stage.identifier} is {stage.state}; allowed: a result with its books (firn compact)"
        )
    plans = [plan for plan in stage.plans if plan.id in books.plans]
    try:
        return _compared(lake, stage, books, plans, spark)
    except (PySparkException, Py4JError, JudgementError) as error:
        raise UnavailableError(
            f"stage {stage.identifier} ({stage.title}): it could not be judged: {reason(error)}"
        ) from error


def _compared(
    lake: Lake, stage: Stage, books: Books, plans: Sequence[Plan], spark: "SparkSession"
) -> Mapping[str, Verdict]:
    columns, name = Columns.of(stage.table, stage.identifier), spark_name(lake, stage.identifier)
    records = sum(books.plans[plan.id].records_in + books.plans[plan.id].records_out for plan in plans)
    own = sized_session(lake, spark, records)

    # By snapshot: what is judged is what the verdict will be recorded for (C23).
    def read(version: str) -> DataFrame:
        return own.read.option("versionAsOf", version).table(name)

    inputs, left = read(stage.rewritten), None
    if stage.rewritten != INPUTS:
        replaced = {path for paths in stage.replaced().values() for path in paths}
        left = left_in_place(read(INPUTS), plans, replaced, columns)
    return judge_all(
        inputs if len(plans) == len(stage.plans) else of_plans(inputs, plans, columns),
        read(str(stage.result)),
        [_claim(plan, books.plans[plan.id]) for plan in plans],
        lake.reports_folder,
        checksum=None if books.checksum is None else int(books.checksum),
        left=left,
        samples=samples_of(lake.table(stage.target).properties),
        reading=_reading(columns),
    )


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


def _claim(plan: Plan, books: Accounting) -> Claim:
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
        **books.model_dump(exclude={"expired"}),
    )
