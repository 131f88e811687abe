"""Runs the suite of a lane for each plan of a stage and stores the results under the reports folder."""

from __future__ import annotations

import re
import time
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from great_expectations import RunIdentifier
from great_expectations.data_context.types.resource_identifiers import (
    ExpectationSuiteIdentifier,
    ValidationResultIdentifier,
)
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from expectations.custom.metric import as_batch
from expectations.evidence import collect_evidence
from expectations.reading import KAFKAS, Reading
from expectations.store import RESULTS, context_for
from expectations.suites import suite_for
from expectations.verdict import Finding, Sample, Verdict
from expectations.wording import log_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
    from pyspark.sql import DataFrame, SparkSession

    from expectations.claim import Claim
    from expectations.shown import Shown


class JudgementError(RuntimeError):
    """The validation could not be carried out, so there is no verdict. Says which plan, and why."""


def judge(
    inputs: DataFrame,
    outputs: DataFrame,
    claim: Claim,
    reports: Path,
    *,
    samples: Shown = "keys",
    reading: Reading = KAFKAS,
) -> Verdict:
    """Puts `claim` to the test: `inputs` are the records the plan read, `outputs` those the stage holds, in the
    columns that `reading` names. See `judge_all`."""
    return judge_all(inputs, outputs, [claim], reports, samples=samples, reading=reading)[claim.plan_id]


def judge_all(
    inputs: DataFrame,
    outputs: DataFrame,
    claims: Sequence[Claim],
    reports: Path,
    *,
    checksum: int | None = None,
    left: DataFrame | None = None,
    samples: Shown = "keys",
    reading: Reading = KAFKAS,
) -> dict[str, Verdict]:
    """Puts the claims of one job to the test, each on its own evidence, which one aggregation collects for all of them;
    the verdicts by plan id.

    inputs, outputs   the records that were read and those that the stage holds, of all plans
    claims            of one lane and level out, each of a topic partition of its own; else ValueError
    checksum          the sum of `fingerprint` over all records written, taken where they were read: then values are
                      read of `outputs` only (what that proves: see `sums`). None: those of both sides are compared
    left              the records of segments that stay where they are and are neither read nor written

    The validation results are stored as one new file per plan under `reports`; nothing there is ever changed, so any
    number of processes may judge at the same time. `samples` says what result and verdict show of
    offending records (see `shown`). Raises JudgementError where Spark could not read or compute.
    """
    _refuse_what_differs(claims)
    spark = inputs.sparkSession
    reports.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with TemporaryDirectory(prefix=".judging-", dir=reports) as folder:
        with _counted_jobs(spark, _run_name(claims[0])) as jobs:
            try:
                evidence = collect_evidence(
                    *(inputs, outputs, claims, reading), checksum=checksum, left=left, samples=samples
                )
            except (PySparkException, Py4JError) as error:
                plans = ", ".join(claim.plan_id for claim in claims)
                raise JudgementError(f"plan {plans} could not be validated: {_in_one_line(error)}") from error
        context = context_for(Path(folder))
        assets = context.data_sources.add_pandas("firn")
        stage = assets.add_dataframe_asset("stage").add_batch_definition_whole_dataframe("stage")
        shared = (time.monotonic() - started) / len(claims)
        verdicts = {}
        for claim, found in zip(claims, evidence, strict=True):
            since = time.monotonic()
            batch = stage.get_batch({"dataframe": as_batch(found)})
            result = batch.validate(suite_for(claim, samples=samples))
            _raise_for_errors(result, claim)
            verdict = Verdict(
                plan_id=claim.plan_id,
                passed=bool(result.success),
                expectations=tuple(_finding(one) for one in result.results),
                spark_jobs=len(jobs),
                seconds=round(shared + time.monotonic() - since, 3),
                run_name=_run_name(claim),
            )
            _store(context, result, verdict, claim, batch.id)
            verdicts[claim.plan_id] = verdict.bounded()
        _move_into_place(Path(folder) / RESULTS, reports / RESULTS)
    return verdicts


def _refuse_what_differs(claims: Sequence[Claim]) -> None:
    kinds = {(claim.table, claim.lane, claim.level_out) for claim in claims}
    if len(kinds) != 1:
        raise ValueError(f"claims of {sorted(kinds)} are judged together; allowed: one table, lane and level out")
    for name, values in (
        ("plan", [claim.plan_id for claim in claims]),
        ("topic partition", [(claim.topic, claim.partition) for claim in claims]),
    ):
        if len(set(values)) < len(values):
            raise ValueError(f"two claims of the same {name} are judged together: {values}; allowed: one each")


def _run_name(claim: Claim) -> str:
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', claim.plan_id)[:100]}-{uuid.uuid4().hex[:8]}"


def _store(
    context: EphemeralDataContext,
    result: ExpectationSuiteValidationResult,
    verdict: Verdict,
    claim: Claim,
    batch_id: str,
) -> None:
    run_time = datetime.now(UTC)
    run = RunIdentifier(run_name=verdict.run_name, run_time=run_time)
    cast("dict[str, Any]", result.meta).update(
        run_id=run,
        validation_time=run_time,
        batch_kwargs={"data_asset_name": log_name(claim.topic, claim.partition)},  # what its page shows
        firn={"claim": claim.to_dict(), "verdict": verdict.to_dict()},
    )
    suite = ExpectationSuiteIdentifier(name=result.suite_name)
    context.validation_results_store.store_validation_results(
        suite_validation_result=result,
        suite_validation_result_identifier=ValidationResultIdentifier(suite, run, batch_id),
    )


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
