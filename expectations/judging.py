"""Runs the suite of a lane on one stage, stores the result under the reports folder, returns the verdict."""

from __future__ import annotations

import re
import time
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, cast

from great_expectations import RunIdentifier
from great_expectations.data_context.types.resource_identifiers import (
    ExpectationSuiteIdentifier,
    ValidationResultIdentifier,
)
from pyspark.errors import PySparkException

from expectations.evidence import comparison
from expectations.reading import KAFKAS, Reading
from expectations.store import RESULTS, context_for
from expectations.suites import suite_for
from expectations.verdict import Finding, Sample, Verdict
from expectations.wording import log_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult
    from pyspark.sql import DataFrame, SparkSession

    from expectations.claim import Claim


class JudgementError(RuntimeError):
    """The validation could not be carried out, so there is no verdict. Says which plan, and why."""


def judge(
    inputs: DataFrame,
    outputs: DataFrame,
    claim: Claim,
    reports: Path,
    *,
    samples: Literal["none", "keys"] = "keys",
    reading: Reading = KAFKAS,
) -> Verdict:
    """Puts `claim` to the test: `inputs` are the records the plan read, `outputs` those the stage holds, in the
    columns that `reading` names.

    The validation result is stored as one new file under `reports`; nothing there is ever changed, so any
    number of processes may judge at the same time. `samples="none"` keeps the keys of offending records out
    of the result and of the verdict. Raises JudgementError where Spark could not read or compute.
    """
    spark = inputs.sparkSession
    run_name = f"{re.sub(r'[^A-Za-z0-9_-]', '_', claim.plan_id)[:100]}-{uuid.uuid4().hex[:8]}"
    run_time = datetime.now(UTC)
    reports.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".judging-", dir=reports) as folder:
        context = context_for(Path(folder))
        asset = context.data_sources.add_spark("firn", persist=False).add_dataframe_asset("stage")
        started = time.monotonic()
        with _counted_jobs(spark, run_name) as jobs:
            try:
                batch = asset.add_batch_definition_whole_dataframe("stage").get_batch(
                    {"dataframe": comparison(inputs, outputs, reading)}
                )
                result = batch.validate(suite_for(claim, samples=samples))
            except PySparkException as error:
                raise JudgementError(f"plan {claim.plan_id} could not be validated: {_in_one_line(error)}") from error
        seconds = time.monotonic() - started
        _raise_for_errors(result, claim)
        findings = tuple(_finding(one) for one in result.results)
        verdict = Verdict(claim.plan_id, bool(result.success), findings, len(jobs), round(seconds, 3), run_name)
        run = RunIdentifier(run_name=run_name, run_time=run_time)
        cast("dict[str, Any]", result.meta).update(
            run_id=run,
            validation_time=run_time,
            batch_kwargs={"data_asset_name": log_name(claim.topic, claim.partition)},  # what its page shows
            firn={"claim": claim.to_dict(), "verdict": verdict.to_dict()},
        )
        suite = ExpectationSuiteIdentifier(name=result.suite_name)
        context.validation_results_store.store_validation_results(
            suite_validation_result=result,
            suite_validation_result_identifier=ValidationResultIdentifier(suite, run, batch.id),
        )
        _move_into_place(Path(folder) / RESULTS, reports / RESULTS)
    return verdict.bounded()


def _finding(one: Any) -> Finding:
    details = one.result["details"]
    return Finding(
        name=one.expectation_config.type,
        sentence=one.expectation_config.description,
        passed=bool(one.success),
        observed=one.result["observed_value"],
        samples=tuple(Sample(**sample) for sample in details["samples"]),
    )


def _raise_for_errors(result: ExpectationSuiteValidationResult, claim: Claim) -> None:
    """Great Expectations turns an exception into an unmet expectation; a stage that can't be read is neither."""
    for one in result.results:
        if not one.result:
            raise JudgementError(f"plan {claim.plan_id} could not be validated: {_message(one.exception_info)}")


def _message(exception_info: dict[str, Any]) -> str:
    """The first message in what Great Expectations keeps of an exception: by metric, or of the one."""
    infos = [exception_info, *(info for info in exception_info.values() if isinstance(info, dict))]
    return _in_one_line(next((info["exception_message"] for info in infos if info.get("exception_message")), ""))


def _in_one_line(message: object) -> str:
    """What went wrong, without the Java stack trace that Spark's messages carry."""
    return " ".join(str(message).split("\n\tat ")[0].split())


def _move_into_place(written: Path, results: Path) -> None:
    """Moves the one result file: whoever builds the pages meanwhile sees all of it or nothing."""
    for file in written.rglob("*.json"):
        target = results / file.relative_to(written)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)


@contextmanager
def _counted_jobs(spark: SparkSession, group: str) -> Iterator[list[int]]:
    """Fills the list with the ids of the Spark jobs that the block started; it stays empty on Spark Connect.

    The caller's job group, if any, is put back: it is what a caller cancels its jobs by.
    """
    jobs: list[int] = []
    try:
        context = spark.sparkContext
    except PySparkException:
        yield jobs
        return
    names = ("spark.jobGroup.id", "spark.job.description")
    before = {name: context.getLocalProperty(name) for name in names}
    context.setLocalProperty("spark.jobGroup.id", group)
    context.setLocalProperty("spark.job.description", f"validate {group}")
    try:
        yield jobs
    finally:
        jobs.extend(context.statusTracker().getJobIdsForGroup(group))
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None unsets; the stub omits it
