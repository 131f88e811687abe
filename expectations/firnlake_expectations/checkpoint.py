"""The gate before publishing: Great Expectations checks what the judge found about the plans of a job, and its store
keeps the result. Each plan has a verdict, which is a document.

The evidence is a table in a temporary SQLite file. The data source, the suite, and the validation definition have the
same names in every job of a lane; the table is the data asset, and the job names the run. Where users have actions of
their own, a checkpoint runs them after the validation.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sqlite3
import sys
import uuid
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import great_expectations as gx

from firnlake_expectations.claim import Finding, Verdict
from firnlake_expectations.findings import Judgement, rows
from firnlake_expectations.promises.table import OWN_SUITES, promises_for
from firnlake_expectations.templates import RESULTS, VERDICTS, write_page
from firnlake_expectations.temporary import temporary_folder
from firnlake_expectations.wording import file_name, log_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from great_expectations.checkpoint.actions import ValidationAction
    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

    from firnlake_expectations.claim import Claim
    from firnlake_expectations.findings import Findings

# What Great Expectations has loaded lasts as long as the process; to search it for garbage takes a second as it ends.
# DuckDB complains if its objects are not freed at the end, so this helps only a process that loads DuckDB later.
if "duckdb" not in sys.modules:
    gc.freeze()

ACTIONS = "FIRN_CHECKPOINT_ACTIONS"
"""Environment variable: the function (``module:function``) that returns further actions of every checkpoint."""

ONE_AT_A_TIME = Lock()
"""Great Expectations has one context per process."""


class UnjudgedError(Exception):
    """Great Expectations did not check everything, or not what was found."""


def verdicts(
    claims: Sequence[Claim],
    per_claim: Sequence[Findings],
    reports: Path,
    *,
    job: str,
    seconds: float = 0.0,
    own: Mapping[str, Sequence[Finding]] = MappingProxyType({}),
) -> dict[str, Verdict]:
    """The verdict on the plan of each of `claims`, which share table and lane, by plan id.

    Stores the validation result of the `job` and a document per plan as new files under `reports`; they never change,
    so any number of processes may judge at the same time. `seconds` is the time that the judge took for all plans,
    `own` what the suites of the table's owner found, by plan id.
    Raises UnjudgedError if Great Expectations did not check all that was found.
    """
    judged = zip(claims, per_claim, strict=True)
    judgements = [Judgement(claim, rows(claim, one), own.get(claim.plan_id, ())) for claim, one in judged]
    validation = check(judgements, job, reports)
    now = datetime.now(UTC)
    given = {}
    for judgement, findings in zip(judgements, per_claim, strict=True):
        plan_id = judgement.claim.plan_id
        verdict = Verdict(
            plan_id=plan_id,
            passed=judgement.passed,
            expectations=(
                *(
                    Finding(row.promise.name, row.promise.sentence, not row.broken, row.observed, row.samples)
                    for row in judgement.rows
                ),
                *judgement.own,
            ),
            seconds=round(seconds / len(claims), 3),
            run_name=f"{now:%Y%m%dT%H%M%S.%fZ}-{re.sub(r'[^A-Za-z0-9_-]', '_', plan_id)[:100]}-{uuid.uuid4().hex[:8]}",
            validation=validation,
            closely=findings.closely,
        )
        document = {
            "validated": now.isoformat(),
            "claim": judgement.claim.to_dict(),
            "verdict": verdict.to_dict(),
        }
        write_page(reports / VERDICTS / f"{verdict.run_name}.json", json.dumps(document, indent=2, sort_keys=True))
        given[plan_id] = verdict
    return given


def evidence_of(judgement: Judgement) -> dict[str, str | int]:
    """The plan's row in the evidence, with 0 for what its lane promises only of other plans."""
    claim = judgement.claim
    columns: dict[str, str | int] = {
        "plan": claim.plan_id,
        "topic_partition": log_name(claim.topic, claim.partition),
        "snapshot": str(claim.snapshot_id or "unknown"),
    }
    columns |= {OWN_SUITES.checked: len(judgement.own), OWN_SUITES.name: sum(not one.passed for one in judgement.own)}
    for row in judgement.rows:
        columns |= {row.promise.checked: row.checked, **row.violations}
    for promise in promises_for(claim.lane):
        for name in (promise.checked, *promise.columns):
            columns.setdefault(name, 0)
    return columns


def check(judgements: Sequence[Judgement], job: str, reports: Path) -> str:
    """Check the evidence of `job`, whose plans share table and lane, and store the result under `reports`.

    Returns the name of the run. Raises UnjudgedError unless Great Expectations looked at all plans, answered for every
    promise of the lane, and agrees with what was found.
    """
    claim = judgements[0].claim
    run_name = f"{file_name(job)}-{uuid.uuid4().hex[:8]}"
    evidence = [evidence_of(one) for one in judgements]
    with ONE_AT_A_TIME, temporary_folder() as folder:
        path = Path(folder, "evidence.sqlite")
        write_evidence(path, evidence)
        result = _run(path, claim, len(judgements), run_name, context_of(reports))
    compare(result, claim.lane, evidence)
    return run_name


def write_evidence(path: Path, evidence: Sequence[Mapping[str, str | int]]) -> None:
    """Write a row per plan into table ``evidence`` of a new SQLite file at `path`. No column takes NULL."""
    columns = list(evidence[0])
    kinds = ((name, "TEXT" if isinstance(value, str) else "INTEGER") for name, value in evidence[0].items())
    typed = ", ".join(f'"{name}" {kind} NOT NULL' for name, kind in kinds)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE evidence ({typed})")
        places = ", ".join("?" * len(columns))
        database.executemany(
            f"INSERT INTO evidence VALUES ({places})",
            [[row[name] for name in columns] for row in evidence],
        )


def _run(
    path: Path, claim: Claim, plans: int, run_name: str, context: EphemeralDataContext
) -> ExpectationSuiteValidationResult:
    from great_expectations import Checkpoint, ValidationDefinition
    from great_expectations.core.run_identifier import RunIdentifier

    from firnlake_expectations.suites import PLANS, suite_of

    actions = _actions()
    source = context.data_sources.add_sqlite("firn", connection_string=f"sqlite:///{quote(str(path))}")
    asset = source.add_table_asset(file_name(claim.table), table_name="evidence")
    suite = context.suites.add(suite_of(claim.lane))
    definition = ValidationDefinition(name=suite.name, data=asset.add_batch_definition_whole_table("all"), suite=suite)
    run_id, parameters = RunIdentifier(run_name=run_name), {PLANS: plans}
    try:
        if actions is None:
            # Without actions a checkpoint adds nothing to the result, and doubles the time.
            return definition.run(run_id=run_id, expectation_parameters=parameters, result_format="COMPLETE")
        with _of_actions():
            checkpoint = context.checkpoints.add(
                Checkpoint(
                    name=suite.name,
                    validation_definitions=[context.validation_definitions.add(definition)],
                    result_format="COMPLETE",
                    actions=actions(claim.table),
                )
            )
            done = checkpoint.run(run_id=run_id, expectation_parameters=parameters)
        (result,) = done.run_results.values()
        return result
    finally:
        source.get_execution_engine().close()


@contextmanager
def _of_actions() -> Iterator[None]:
    """Errors within are those of the actions: Great Expectations has no name for them."""
    try:
        yield
    except Exception as error:
        raise UnjudgedError(f"the actions of {ACTIONS}: {type(error).__name__}: {error}") from error


def _actions() -> Callable[[str], list[ValidationAction]] | None:
    """The function that FIRN_CHECKPOINT_ACTIONS names; None if it names none."""
    named = os.environ.get(ACTIONS)
    try:
        return function_named(named) if named else None
    except ValueError as error:
        raise UnjudgedError(
            f"{ACTIONS} is {named!r}, but {error}; allowed: module:function, which takes a table's name and returns "
            "Great Expectations' actions"
        ) from error


def function_named(text: str) -> Callable[[str], Any]:
    """The function that `text` names as ``module:function``. Raises ValueError if there is none."""
    module, _, name = text.partition(":")
    try:
        found: Callable[[str], Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(str(error)) from error
    return found


def compare(result: ExpectationSuiteValidationResult, lane: str, evidence: Sequence[Mapping[str, Any]]) -> None:
    """Raise UnjudgedError unless `result` says of every promise of `lane` what the `evidence` says."""
    answers = {one.expectation_config.type: one for one in result.results if one.expectation_config}
    rows = answers.pop("expect_table_row_count_to_equal", None)
    if rows is None or not rows.success:
        raise UnjudgedError(
            f"the evidence has {rows and rows.result} rows; allowed: one for each of {len(evidence)} plans"
        )
    for promise in (*promises_for(lane), OWN_SUITES):
        broken = {name: sum(row[name] for row in evidence) for name in promise.columns}
        sums = {"plans": len(evidence), "checked": sum(row[promise.checked] for row in evidence)} | broken
        answer = answers.pop(promise.name, None)
        told = answer.result.get("details", {}) if answer else {}
        if (
            answer is None
            or {name: told.get(name) for name in sums} != sums
            or answer.success != (not any(broken.values()))
        ):
            said = answer.exception_info or answer.result if answer else "nothing"
            raise UnjudgedError(f"Great Expectations says of {promise.name}: {said}; allowed: {sums}")
    if answers or result.success != all(one.success for one in result.results):
        raise UnjudgedError(
            f"Great Expectations says {result.success}, and of no promise of lane {lane}: {list(answers)}"
        )


def configured(folder: Path) -> str:
    """The path of `folder` in Great Expectations' configuration, where a dollar sign begins the name of a variable."""
    return str(folder.resolve()).replace("$", r"\$")


def context_of(reports: Path, sites: dict[str, Any] | None = None) -> EphemeralDataContext:
    """A context that stores its results as files under `reports` and everything else in memory.

    No suite, data source or configuration is stored as a file, so processes share no mutable state.
    Usage statistics are off.
    """
    from great_expectations.data_context.types.base import DataContextConfig, ProgressBarsConfig

    memory = {"store_backend": {"class_name": "InMemoryStoreBackend"}}
    config = DataContextConfig(
        stores={
            "expectations": {"class_name": "ExpectationsStore", **memory},
            "checkpoints": {"class_name": "CheckpointStore", **memory},
            "validation_definition_store": {"class_name": "ValidationDefinitionStore", **memory},
            "results": {
                "class_name": "ValidationResultsStore",
                "store_backend": {
                    "class_name": "TupleFilesystemStoreBackend",
                    "base_directory": configured(reports / RESULTS),
                    "suppress_store_backend_id": True,
                },
            },
        },
        expectations_store_name="expectations",
        checkpoint_store_name="checkpoints",
        validation_results_store_name="results",
        data_docs_sites=sites or {},
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
    )
    return gx.get_context(mode="ephemeral", project_config=config)
