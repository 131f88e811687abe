"""The gate before publishing: Great Expectations checks what the judge found about the plans of a job, and its store
keeps the result. Each plan has a verdict, which is a document.

The evidence is a data frame with a row per plan and a column per promise, with the number of violations. The suite of a
lane expects that each of these columns adds up to 0; the verdicts say which plans broke a promise. The data source, the
suite, and the validation definition have the same names in every job of a lane; the table is the data asset, and the
job names the run.

Suites of a table's owner run on the records of a result before anybody sees these. Nothing is stored but the findings,
which name offsets. They show values only if reports may show them.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any

import great_expectations as gx
import pandas as pd
from great_expectations import ExpectationSuite, ValidationDefinition
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)
from great_expectations.expectations.core.expect_column_sum_to_be_between import ExpectColumnSumToBeBetween
from great_expectations.expectations.registry import list_registered_expectation_implementations

from firnlake_expectations.case import SAMPLES_PER_RULE, Finding, Sample
from firnlake_expectations.data_quality import RESULTS, VERDICTS, new_name, write_document
from firnlake_expectations.promises import OWN_SUITES, PROMISES, promises_for
from firnlake_expectations.wording import count, file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
    from great_expectations.datasource.fluent.interfaces import Batch
    from pyspark.sql import DataFrame

    from firnlake_expectations.case import Claim, Verdict
    from firnlake_expectations.wording import Shown

# What Great Expectations has loaded lasts as long as the process; to search it for garbage takes a second as it ends.
# DuckDB complains if its objects are not freed at the end, so this helps only a process that loads DuckDB later.
if "duckdb" not in sys.modules:
    gc.freeze()

ONE_AT_A_TIME = Lock()
"""Great Expectations has one context per process."""


class UnjudgedError(Exception):
    """Great Expectations did not check everything, or not what was found."""


def verdicts(found: Sequence[Verdict], reports: Path, *, job: str, seconds: float = 0.0) -> dict[str, Verdict]:
    """The verdicts `found` of one job, which share table and lane, once Great Expectations has checked them; by plan
    id.

    Stores the validation result of the `job` and a document per plan as new files under `reports`; they never change,
    so any number of processes may judge at the same time. `seconds` is the time that it took to find all verdicts.
    Raises UnjudgedError unless Great Expectations looked at all plans, answered for every promise of the lane, and
    agrees with what was found.
    """
    claim = found[0].claim
    evidence = [
        {
            **{row.name: row.broken for row in one.expectations if row.contract},
            OWN_SUITES.name: sum(not row.passed for row in one.expectations if not row.contract),
        }
        for one in found
    ]
    validation = f"{file_name(job)}-{uuid.uuid4().hex[:8]}"
    with ONE_AT_A_TIME:
        result = _run(evidence, claim, validation, context_of(reports))
    compare(result, claim.lane, evidence)
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    given = {}
    for one in found:
        plan_id = one.claim.plan_id
        given[plan_id] = replace(
            one,
            validated_ms=now_ms,
            seconds=round(seconds / len(found), 3),
            run_name=new_name(now_ms, plan_id),
            validation=validation,
        )
        write_document(reports / VERDICTS / f"{given[plan_id].run_name}.json", given[plan_id])
    return given


def _run(
    evidence: Sequence[Mapping[str, int]], claim: Claim, run_name: str, context: EphemeralDataContext
) -> ExpectationSuiteValidationResult:
    asset = context.data_sources.add_pandas("firn").add_dataframe_asset(file_name(claim.table))
    suite = context.suites.add(suite_of(claim.lane))
    batches = asset.add_batch_definition_whole_dataframe("all")
    definition = ValidationDefinition(name=suite.name, data=batches, suite=suite)
    run_id, rows = RunIdentifier(run_name=run_name), {"dataframe": pd.DataFrame(evidence)}
    return definition.run(run_id=run_id, batch_parameters=rows, result_format="BASIC")


def suite_of(lane: str) -> ExpectationSuite:
    """The suite of `lane`, which is the same for every job: its promises, and that the table's own suites are met."""
    return ExpectationSuite(
        name=f"firn-{lane}",
        expectations=[
            _class_named(one.name)(
                column=one.name,
                min_value=0,
                max_value=0,
                description=f"{one.sentence} ({one.name})",
                meta={"contract": one.number},
            )
            for one in (*promises_for(lane), OWN_SUITES)
        ],
    )


@cache
def _class_named(name: str) -> type[ExpectColumnSumToBeBetween]:
    """The class that Great Expectations registers as `name`, which results and Data Docs show."""
    words = "".join(word.capitalize() for word in name.split("_"))
    return type(words, (ExpectColumnSumToBeBetween,), {"__doc__": "No plan has a violation.", "__module__": __name__})


def compare(result: ExpectationSuiteValidationResult, lane: str, evidence: Sequence[Mapping[str, int]]) -> None:
    """Raise UnjudgedError unless `result` says of every promise of `lane` what the `evidence` says."""
    answers = {one.expectation_config.type: one for one in result.results if one.expectation_config}
    expected = {one.name: sum(row[one.name] for row in evidence) for one in (*promises_for(lane), OWN_SUITES)}
    for name, violations in expected.items():
        answer = answers.pop(name, None)
        if answer is None or answer.result.get("observed_value") != violations or answer.success != (violations == 0):
            said = answer.exception_info or answer.result if answer else "nothing"
            raise UnjudgedError(
                f"Great Expectations says of {name} and {len(evidence)} plans: {said}; allowed: a sum of {violations}"
            )
    if answers or result.success != all(one.success for one in result.results):
        raise UnjudgedError(
            f"Great Expectations says {result.success}, and of no promise of lane {lane}: {list(answers)}"
        )


def _configured(folder: Path) -> dict[str, str]:
    """The store in `folder`, as Great Expectations configures it: a dollar sign begins the name of a variable."""
    return {
        "class_name": "TupleFilesystemStoreBackend",
        "base_directory": str(folder.resolve()).replace("$", r"\$"),
    }


def context_of(reports: Path) -> EphemeralDataContext:
    """A context that stores its results as files under `reports` and everything else in memory.

    No suite, data source or configuration is stored as a file, so processes share no mutable state.
    Usage statistics are off.
    """
    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(),
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
    )
    stored = config.stores[config.validation_results_store_name]
    stored["store_backend"] = {**_configured(reports / RESULTS), "suppress_store_backend_id": True}
    return gx.get_context(mode="ephemeral", project_config=config)


def build_data_docs(reports: Path, target: Path) -> Path:
    """Build Great Expectations' Data Docs of the results stored under `reports` and of the lanes' suites in the folder
    `target`; returns the front page."""
    context = context_of(reports)
    for lane in dict.fromkeys(lane for promise in PROMISES for lane in promise.lanes):
        context.suites.add(suite_of(lane))
    site: Any = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": _configured(target),
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }
    context.add_data_docs_site("Firn", site)
    context.build_data_docs()
    return target / "index.html"


def read_suite(text: str) -> ExpectationSuite:
    """The suite in Great Expectations' JSON. Raises ValueError unless it has at least one expectation, and all of known
    types: Great Expectations' own, and those that are defined in the modules which FIRN_SUITE_MODULES names."""
    for module in filter(None, map(str.strip, os.environ.get("FIRN_SUITE_MODULES", "").split(","))):
        try:
            import_module(module)
        except Exception as error:  # it is the owner's code
            raise ValueError(f"FIRN_SUITE_MODULES names {module}: {type(error).__name__}: {error}") from error
    told = json.loads(text)
    match told:
        case {"expectations": [*listed]}:
            types = {str(one.get("type")) for one in listed}
        case _:
            raise ValueError("it is no suite in JSON")
    # Great Expectations itself would leave these out, and the rest would pass.
    if unknown := types - {*list_registered_expectation_implementations()}:
        raise ValueError(f"it has expectations of unknown types: {', '.join(sorted(unknown))}")
    suite = ExpectationSuite(**told)
    if not suite.expectations or len(suite.expectations) != len(listed):
        raise ValueError(f"it has {count(len(suite.expectations), 'expectation')}")
    return suite


def findings_of_suites(
    suites: Iterable[ExpectationSuite],
    records: pd.DataFrame | DataFrame,
    table: str,
    offset: str,
    shown: Shown,
    reports: Path,
) -> tuple[Finding, ...]:
    """The findings of `suites` in the `records` of a result (a data frame of pandas or of Spark), whose column `offset`
    tells them apart: one for each expectation. An expectation that can't be checked has failed.

    Raises an error if a suite can't be run as a whole."""
    with ONE_AT_A_TIME:
        sources = context_of(reports).data_sources
        in_pandas = isinstance(records, pd.DataFrame)
        source = sources.add_pandas("firn-staged") if in_pandas else sources.add_spark("firn-staged")
        asset = source.add_dataframe_asset(file_name(table))
        batch = asset.add_batch_definition_whole_dataframe("staged").get_batch({"dataframe": records})
        try:
            return tuple(finding for suite in suites for finding in _findings(suite, batch, offset, shown))
        finally:
            if not isinstance(records, pd.DataFrame):
                records.unpersist()  # Great Expectations has persisted it, for its many passes


def _findings(suite: ExpectationSuite, batch: Batch, offset: str, shown: Shown) -> list[Finding]:
    asked = {"result_format": "COMPLETE", "unexpected_index_column_names": [offset], "include_unexpected_rows": False}
    results: Any = batch.validate(suite, result_format=asked).results
    if len(results) != len(suite.expectations):
        raise ValueError(f"{len(results)} of {count(len(suite.expectations), 'expectation')} checked")
    columns = batch.columns()
    return [_finding(suite.name, one.to_json_dict(), columns, offset, shown) for one in results]


def _finding(suite: str, one: Mapping[str, Any], columns: Sequence[str], offset: str, shown: Shown) -> Finding:
    config, result = one["expectation_config"], one["result"]
    told = {name: value for name, value in config["kwargs"].items() if name != "batch_id"}
    sentence = config.get("description") or f"{config['type']}: {json.dumps(told, default=str, sort_keys=True)}"
    if failed := _failed(one["exception_info"], columns, shown):
        observed = f"It could not be checked: {failed}."
    elif "element_count" in result:
        observed = f"{result['unexpected_count']:,} of {count(result['element_count'], 'record')}."
    elif shown == "full" and result.get("observed_value") is not None:
        observed = f"Observed: {result['observed_value']}."
    elif shown == "full" and result.get("partial_unexpected_list"):
        observed = f"Unexpected: {result['partial_unexpected_list'][:SAMPLES_PER_RULE]}."
    else:
        observed = "Met." if one["success"] else "Not met."
    return Finding(
        f"{suite}: {config['type']}",
        sentence,
        passed=bool(one["success"]),
        observed=observed,
        samples=() if one["success"] or shown == "none" else _samples(result.get("unexpected_index_list"), offset),
    )


_UNKNOWN = re.compile(r"""Error: The column "(.+)" in BatchData does not exist\.|name '(.+)' is not defined""")
"""What Great Expectations, or pandas in a row condition, says of an unknown column. The name is the suite's."""


def _failed(raised: Mapping[str, Any], columns: Sequence[str], shown: Shown) -> str:
    """Why an expectation could not be checked; empty if it was. Any other reason than an unknown column may quote a
    record."""
    every = [raised] if "raised_exception" in raised else raised.values()
    reasons = [str(one["exception_message"]).strip() for one in every if one["raised_exception"]]
    for reason in reasons:
        if unknown := _UNKNOWN.fullmatch(reason):
            return f"the records have no column {unknown[1] or unknown[2]}; found: {', '.join(columns)}"
    if reasons and shown != "full":
        return "the reason may quote a record; firn.report.samples = full shows it"
    return "; ".join(dict.fromkeys(" ".join(reason.split()).rstrip(".") for reason in reasons))


def _samples(unexpected: Sequence[Mapping[str, Any]] | None, offset: str) -> tuple[Sample, ...]:
    offsets = sorted(int(place[offset]) for place in unexpected or ())[:SAMPLES_PER_RULE]
    return tuple(Sample(one, None, "unexpected") for one in offsets)
